// Package composite makes one instrument of several: two scopes for six signals, a
// DAQ for the slot beside a serial meter for the plugs. What comes out is one
// stream on the timebase of the fastest member, the base.
//
//	member ─▶ feed ─┐ (a goroutine each; blocks are copied, host's time noted)
//	member ─▶ feed ─┼─▶ session ─▶ tracks ─▶ merger ─▶ Sink
//	member ─▶ feed ─┘       │         ▲
//	                        ├─▶ lead: how a member's clock runs against the host's
//	                        ├─▶ detector: the start marker in the member's own power
//	                        └─▶ spool file, where a member delivers only at the end
//
// # Placing
//
// Every scan of the base shows, of each other member, the reading that is nearest
// in time: a reading of a slower member stands from half-way to its predecessor
// to half-way to its successor. So each of its counts appears, the hold delays
// nothing on average, and no count is made up. A scan of the base for which a
// member has no reading within half of its period, because the member lost
// some, is left out and is part of an EventGap. A member that runs faster than
// the base, by the tolerance of two crystals, has a reading now and then that
// no scan shows; a note at the end counts them.
//
// Held readings are not independent: Inputs gives the longest hold as the
// Response's Update, by which the budget counts independent readings.
//
// # Aligning
//
// Trigger: all first scans were taken at one instant. Clock: device times are
// compared through the arrival of blocks at the host. Markers: as Clock until the
// start marker was seen in every member's own power, then by that; output lags
// behind by the length of a marker meanwhile, so that the marker itself and all
// behind it lie right, while the capture runs: the host plays its marker only
// once the first scans have come. From there on the rates of the members are
// compared through the host's clock (series.Rate's least delays, as lines), or,
// where the whole is deferred, by the two markers.
package composite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// Composite is several instruments as one. It implements instrument.Instrument;
// it is deferred (see instrument.Sink) where a member is.
type Composite struct {
	members []Member
	align   Align
	open    bool
	base    int
	inputs  instrument.Inputs
	parts   []instrument.Inputs // the members' own
	// was keeps the members' hidden delays of a stream that lost its link.
	was *known
}

// known are the delays that the start marker showed and the host's clock does not.
type known struct {
	spec   marker.Spec
	hidden []float64 // seconds, by member
}

// New makes one instrument of members, which it owns from then on.
func New(members []Member, a Align) (*Composite, error) {
	if len(members) < 2 {
		return nil, errors.New("composite: one instrument needs no composite")
	}
	if err := a.Validate(lists.Map(members, func(m Member) string { return m.Name })); err != nil {
		return nil, fmt.Errorf("composite: %w", err)
	}
	c := &Composite{members: members, align: a.WithDefaults()}
	c.learn()
	return c, nil
}

// learn joins the members' inputs, once all of them are known.
func (c *Composite) learn() {
	c.parts = c.parts[:0]
	for _, m := range c.members {
		in := m.Instrument.Inputs()
		if len(in.Channels) == 0 {
			c.inputs = instrument.Inputs{}
			return
		}
		c.parts = append(c.parts, in)
	}
	c.inputs, c.base = Join(c.members, c.parts, c.align)
}

// Open opens all members, one after the other; where one fails none stays open.
func (c *Composite) Open(ctx context.Context) error {
	if c.open {
		return errors.New("composite: open: already open")
	}
	for _, m := range c.members {
		if err := m.Instrument.Open(ctx); err != nil {
			_ = c.Close()
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	c.open = true
	c.learn()
	if c.align.By != Markers {
		return nil
	}
	for i, m := range c.members { // refused at once where a member could never see a marker
		if _, err := c.setup(i); err != nil && !m.beside(c.parts[i]) {
			_ = c.Close()
			return fmt.Errorf("align by markers: %s: %w: align by trigger or clock", m.Name, err)
		}
	}
	return nil
}

// assumedVolt turns a lone current into a power that rises and falls with it.
const assumedVolt = 12

// setup makes a power of a member's own channels, to look for markers in: its own
// rails, or all its currents where no rail is its alone.
func (c *Composite) setup(i int) (measure.Setup, error) {
	in := c.parts[i]
	s := measure.Setup{Timebase: in.Timebase, Response: in.Response, Channels: in.Channels}
	if power := c.members[i].Power; power != nil {
		s.Channels, s.Rails = power(in)
	}
	if len(s.Rails) == 0 {
		for x, ch := range s.Channels {
			if ch.Unit == measure.UnitAmpere {
				s.Rails = append(s.Rails, measure.Rail{
					Name: ch.Name, Role: measure.RolePSU, Wiring: measure.WiringAssumed, X: x, Y: -1, Assumed: assumedVolt,
				})
			}
		}
	}
	if len(s.Rails) == 0 {
		return s, errors.New("it has no rail and no current of its own in which a marker would show")
	}
	return s, s.Validate()
}

// Identity is that of all members, see measure.JoinIdentities.
func (c *Composite) Identity() instrument.Identity {
	parts := lists.Map(c.members, func(m Member) measure.Identity { return m.Instrument.Identity() })
	return measure.JoinIdentities(parts)
}

// Inputs are those of all members; see Join.
func (c *Composite) Inputs() instrument.Inputs { return c.inputs }

// Close releases all members. It is safe to call twice.
func (c *Composite) Close() error {
	c.open = false
	var errs []error
	for _, m := range c.members {
		if err := m.Instrument.Close(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.Name, err))
		}
	}
	return errors.Join(errs...)
}

// By describes how the members' times are brought together.
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

// Align describes how the members' times are brought together.
type Align struct {
	// By is the way; default Markers.
	By By `yaml:"by"`
	// U is the standard uncertainty of Clock: links hide a delay that no arrival
	// shows. Default 10 ms.
	U time.Duration `yaml:"u"`
	// SharedClock reports that one oscillator drives all members: rates are not compared.
	SharedClock bool `yaml:"shared_clock"`
	// Master is the member that gives the trigger and is started last; default
	// the first.
	Master string `yaml:"master"`
}

// WithDefaults fills in the fields that were left out. U is the delay that a link may hide: USB
// frames, a converter's latency timer of up to 16 ms for small packets, packets that fill for 10 ms.
func (a Align) WithDefaults() Align {
	const defaultU = 10 * time.Millisecond
	a.By, a.U = cmp.Or(a.By, Markers), cmp.Or(a.U, defaultU)
	return a
}

// Validate reports settings that cannot be used with members of the given names.
func (a Align) Validate(names []string) error {
	switch {
	case !slices.Contains([]By{Trigger, Clock, Markers, ""}, a.By):
		return fmt.Errorf("align by %q: want trigger, markers or clock", a.By)
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
	// Delay is how far its readings lie behind the times it reports, where that is
	// known. Markers see it by themselves.
	Delay measure.Seconds
	// Power is its own inputs under the calibration in force, and the rails that
	// they alone make: a marker is looked for in them. It is called after Open; it
	// may be nil, and give no rails.
	Power func(instrument.Inputs) ([]measure.Channel, []measure.Rail)
}

// wall is the channel of a member that measures the machine at the wall, and no rail of the card; -1 for others. Such a
// member is aligned by the clock alone, is never the base, and neither its response nor its losses are the whole's.
func (m *Member) wall(in instrument.Inputs) int {
	if m.Power != nil {
		if channels, rails := m.Power(in); len(rails) == 0 {
			return (&measure.Setup{Channels: channels}).Wall()
		}
	}
	return -1
}

func (m *Member) beside(in instrument.Inputs) bool { return m.wall(in) >= 0 }

// Join returns the inputs of members as one instrument, in their order: the
// base's timebase, channels named member/channel, and their delays and holds.
// Inputs must have channels. base is the index of the member whose timebase it is.
func Join(members []Member, in []instrument.Inputs, a Align) (out instrument.Inputs, base int) {
	beside := make([]bool, len(in))
	for i := range in {
		beside[i] = members[i].beside(in[i])
		if !beside[i] && (beside[base] || in[i].Timebase.SampleRate() > in[base].Timebase.SampleRate()) {
			base = i
		}
	}
	out.Timebase = in[base].Timebase
	late := false
	for i := range in {
		if !beside[i] {
			out.Response.Window = max(out.Response.Window, in[i].Response.Window)
		}
	}
	for i, m := range members {
		r := in[i].Response
		_, rest := split(members, i, base, in[base].Timebase, a, beside[i])
		for _, c := range in[i].Channels {
			c.Name = m.Name + "/" + c.Name
			// All readings count as means over the longest window: those over a shorter one are of a later middle.
			if c.Skew += rest + (out.Response.Window-r.Window)/2; beside[i] {
				c.Skew = rest - period(in[i].Timebase)/2 // the mean since the reading before
			}
			out.Channels = append(out.Channels, c)
		}
		if beside[i] {
			continue
		}
		const slower = 1.5 // than the base: from there on readings are shown several times
		if p := period(in[i].Timebase); p > slower*period(out.Timebase) {
			r.Update, out.Response.Centred = max(r.Update, p), true
		}
		out.Response.Tau = max(out.Response.Tau, r.Tau)
		out.Response.Update = max(out.Response.Update, r.Update)
		late = late || in[i].Response.Update > 0
	}
	// A sensor that shows each value after its time lags, in any company.
	out.Response.Centred = out.Response.Centred && !late
	return out, base
}

// split divides a member's known delay into whole scans of the base, in
// seconds, by which its readings move, and the rest, which goes with its channels. Markers show the delay of
// all but a member beside, which is aligned by the clock.
func split(members []Member, i, base int, tb measure.Timebase, a Align, beside bool) (moved, rest measure.Seconds) {
	if a.By == Markers && !beside {
		return 0, 0
	}
	scan, lag := float64(period(tb)), members[i].Delay-members[base].Delay
	moved = measure.Seconds(math.Round(float64(lag)/scan) * scan)
	if a.By == Markers {
		return moved, lag - moved // the base's own is in what relates its clock to the host's
	}
	return moved, members[i].Delay - moved
}

// period is the time from one scan to the next.
func period(tb measure.Timebase) measure.Seconds { return tb.Seconds(tb.TicksPerScan) }
