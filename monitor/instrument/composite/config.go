package composite

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// By says how the members' times are brought together.
type By string

// The ways to align.
const (
	// Trigger: a shared trigger line started all members at one instant.
	Trigger By = "trigger"
	// Clock: by the host's times of arrival.
	Clock By = "clock"
	// Markers: by the start marker in each member's own power, by Clock before it.
	Markers By = "markers"
)

// Align says how the members' times are brought together.
type Align struct {
	// By is the way; default Markers.
	By By
	// U is the standard uncertainty of Clock: links hide a delay that no arrival
	// shows. Default 10 ms.
	U time.Duration
	// SharedClock says that one oscillator drives all members: rates are not compared.
	SharedClock bool
	// Master is the member that gives the trigger and is started last; default
	// the first.
	Master string
}

// defaultU is what a link may hide: USB frames, a converter's latency timer of up
// to 16 ms for small packets, packets that fill for 10 ms.
const defaultU = 10 * time.Millisecond

// WithDefaults fills in what was left out.
func (a Align) WithDefaults() Align {
	if a.By == "" {
		a.By = Markers
	}
	if a.U == 0 {
		a.U = defaultU
	}
	return a
}

// Validate reports what cannot be used with members of the given names.
func (a Align) Validate(names []string) error {
	switch a.By {
	case Trigger, Clock, Markers, "":
	default:
		return fmt.Errorf("align by %q: want trigger, markers or clock", a.By)
	}
	switch {
	case a.U < 0:
		return fmt.Errorf("align: u of %v: must not be negative", a.U)
	case a.Master != "" && a.By != Trigger:
		return errors.New("align: a master gives a trigger: say by: trigger")
	case a.Master != "" && !slices.Contains(names, a.Master):
		return fmt.Errorf("align: master %q: this bench has %s", a.Master, strings.Join(names, ", "))
	}
	return nil
}

// Member is one instrument of the whole.
type Member struct {
	// Name is unique; channels are called Name/channel.
	Name       string
	Instrument instrument.Instrument
	// Delay is how far its readings lie behind the times it tells, where that is
	// known. Markers see it by themselves.
	Delay measure.Seconds
	// Power is its own inputs under the calibration in force, and the rails that
	// they alone make: a marker is looked for in them. It is called after Open; it
	// may be nil, and give no rails.
	Power func(instrument.Inputs) ([]measure.Channel, []measure.Rail)
}

// Join is what members with these inputs deliver as one, in their order: the
// base's timebase, channels named member/channel, and their delays and holds.
// Inputs must have channels. base is the index of the member whose timebase it is.
func Join(members []Member, in []instrument.Inputs, a Align) (out instrument.Inputs, base int) {
	for i := range in {
		if in[i].Timebase.SampleRate() > in[base].Timebase.SampleRate() {
			base = i
		}
	}
	out.Timebase = in[base].Timebase
	late := false
	for i, m := range members {
		r := in[i].Response
		if held(in[base].Timebase, in[i].Timebase) {
			r.Update = max(r.Update, period(in[i].Timebase))
			out.Response.Centred = true
		}
		out.Response.Tau = max(out.Response.Tau, r.Tau)
		out.Response.Window = max(out.Response.Window, r.Window)
		out.Response.Update = max(out.Response.Update, r.Update)
		late = late || in[i].Response.Update > 0
		_, rest := split(members, i, base, in[base].Timebase, a)
		for _, c := range in[i].Channels {
			c.Name = m.Name + "/" + c.Name
			c.Skew += rest
			out.Channels = append(out.Channels, c)
		}
	}
	// A sensor that shows each value after its time lags, whoever stands beside it.
	out.Response.Centred = out.Response.Centred && !late
	return out, base
}

// split divides a member's known delay into what moves its readings by whole
// scans of the base, in seconds, and the rest, which goes with its channels.
func split(members []Member, i, base int, tb measure.Timebase, a Align) (moved, rest measure.Seconds) {
	if a.By == Markers {
		return 0, 0
	}
	scan := float64(period(tb))
	moved = measure.Seconds(math.Round(float64(members[i].Delay-members[base].Delay)/scan) * scan)
	return moved, members[i].Delay - moved
}

func period(tb measure.Timebase) measure.Seconds { return tb.Seconds(tb.TicksPerScan) }

// held tells whether a member is so much slower that its readings are shown
// several times.
func held(base, m measure.Timebase) bool {
	const slower = 1.5
	return period(m) > slower*period(base)
}
