package textin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

// Field is a column of a quantity as a format's reader understood it.
type Field struct {
	Column int
	Rail   string
	Unit   logfile.Unit
}

// Plan are the columns, channels and rails of a file.
type Plan struct {
	Columns  []Column
	Channels []measure.Channel // Gain is set by Apply
	Rails    []measure.Rail
	// Left names columns that were not used, with the reason.
	Left []string
}

// Options settle ambiguities of a file.
type Options struct {
	// Assumed are the voltages of rails of which only the current is there.
	Assumed map[string]measure.Volt
	// Rails names the rails that are wanted; none for all.
	Rails []string
}

// NewPlan makes rails of fields: a current and a voltage of one name make a clamp
// rail, and a power beside them is left, since it follows; a current alone takes
// the voltage that Options.Assumed has for its rail; a power alone is a rail itself. A
// power without a rail's name is the total, taken only where there is nothing else.
func NewPlan(columns []Column, fields []Field, o Options) (*Plan, error) {
	p := &Plan{Columns: columns}
	var names []string
	for i, f := range fields {
		if slices.ContainsFunc(fields[:i], func(g Field) bool { return g.Rail == f.Rail && g.Unit.Of == f.Unit.Of }) {
			return nil, fmt.Errorf("%w: two columns hold the same: %q is the second: remove or rename it",
				ErrInput, columns[f.Column].Text)
		}
		if !slices.Contains(names, f.Rail) && f.Rail != "" {
			names = append(names, f.Rail)
		}
	}
	for _, n := range o.Rails {
		if !slices.Contains(names, n) {
			return nil, fmt.Errorf("%w: --rail %s: its rails are %s", ErrInput, n, strings.Join(names, ", "))
		}
	}
	for _, n := range names {
		if len(o.Rails) > 0 && !slices.Contains(o.Rails, n) {
			continue
		}
		if err := p.rail(n, fields, o.Assumed); err != nil {
			return nil, err
		}
	}
	if w, ok := find(fields, "", measure.UnitWatt); ok && len(p.Rails) == 0 {
		p.Rails = append(p.Rails, measure.Rail{
			Name: "total", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: p.channel(w, "total.power"), Y: -1,
		})
	} else if ok {
		p.leave(w, "the rails make the total")
	}
	for rail := range o.Assumed {
		used := func(r measure.Rail) bool { return r.Name == rail && r.Wiring == measure.WiringAssumed }
		if !slices.ContainsFunc(p.Rails, used) {
			return nil, fmt.Errorf("%w: --assume %s: the file has no rail of that name with a current and no voltage",
				ErrInput, rail)
		}
	}
	if len(p.Rails) == 0 {
		return nil, fmt.Errorf("%w: no column makes a power: name them as in pcie_12v_current_a and "+
			`pcie_12v_voltage_v, gpu_power_w, or "12V current [mA]"`, ErrInput)
	}
	return p, nil
}

// find returns the field of a rail and unit.
func find(fields []Field, rail string, u measure.Unit) (f Field, ok bool) {
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Rail == rail && f.Unit.Of == u })
	if i < 0 {
		return f, false
	}
	return fields[i], true
}

// leave notes that a field is not used.
func (p *Plan) leave(f Field, why string) {
	p.Left = append(p.Left, p.Columns[f.Column].Text+": "+why)
}

// rail makes a rail of the fields of its name.
func (p *Plan) rail(name string, fields []Field, assumed map[string]measure.Volt) error {
	i, hasI := find(fields, name, measure.UnitAmpere)
	v, hasV := find(fields, name, measure.UnitVolt)
	w, hasW := find(fields, name, measure.UnitWatt)
	volts, assume := assumed[name]
	r := measure.Rail{Name: name, Y: -1}
	switch {
	case hasI && hasV:
		r.Wiring, r.X, r.Y = measure.WiringClamp, p.channel(i, name+".current"), p.channel(v, name+".voltage")
		if hasW {
			p.leave(w, "it follows from current and voltage")
		}
	case hasI && assume:
		r.Wiring, r.X, r.Assumed = measure.WiringAssumed, p.channel(i, name+".current"), volts
		if hasW {
			p.leave(w, "current and assumed voltage make the power")
		}
	case hasW:
		r.Wiring, r.X = measure.WiringPower, p.channel(w, name+".power")
		if hasI {
			p.leave(i, "the rail's power is there")
		}
		if hasV {
			p.leave(v, "the rail's power is there")
		}
	case hasI:
		return fmt.Errorf("%w: rail %s has a current (%q) and no voltage: "+
			"add a column %s_voltage_v, or say what to assume: --assume %s=12",
			ErrInput, name, p.Columns[i.Column].Text, name, name)
	default:
		p.leave(v, "a voltage without a current")
		return nil
	}
	p.Rails = append(p.Rails, r)
	return nil
}

// channel makes a channel of a field.
func (p *Plan) channel(f Field, name string) int {
	n := len(p.Channels)
	p.Channels = append(p.Channels, measure.Channel{Name: name, Unit: f.Unit.Of})
	c := &p.Columns[f.Column]
	c.Kind, c.Unit, c.Channel = Quantity, f.Unit, n
	return n
}

// Setup is the setup of a file that was looked at. uGain is a relative standard
// uncertainty that is stated for all channels.
func (p *Plan) Setup(s *Survey, uGain, uTick float64) measure.Setup {
	out := measure.Setup{Timebase: s.Timebase(uTick), Rails: slices.Clone(p.Rails), Channels: slices.Clone(p.Channels)}
	for i := range out.Channels {
		out.Channels[i].Gain, out.Channels[i].UGain = s.Gain[i], uGain
	}
	return out
}
