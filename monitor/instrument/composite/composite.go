package composite

import (
	"context"
	"errors"
	"fmt"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/instrument"
)

// Composite is several instruments as one. It implements instrument.Instrument;
// it is deferred, and wants an instrument.DeferredSink, where a member is.
type Composite struct {
	members []Member
	align   Align
	open    bool
	base    int
	inputs  instrument.Inputs
	parts   []instrument.Inputs // the members' own
	// was is what a stream that lost its link knew of the members' hidden delays.
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
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	if err := a.Validate(names); err != nil {
		return nil, fmt.Errorf("composite: %w", err)
	}
	c := &Composite{members: members, align: a.WithDefaults()}
	c.learn()
	return c, nil
}

// learn joins what the members say of their inputs, once all of them know.
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
	if err := c.visible(); err != nil {
		_ = c.Close()
		return err
	}
	return nil
}

// visible refuses alignment by markers where a member could never see one.
func (c *Composite) visible() error {
	if c.align.By != Markers {
		return nil
	}
	for i, m := range c.members {
		if _, err := c.setup(i); err != nil {
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
				s.Rails = append(s.Rails, measure.Rail{Name: ch.Name, Role: measure.RolePSU, Wiring: measure.WiringAssumed, X: x, Y: -1, Assumed: assumedVolt})
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
	var parts []measure.Identity
	for _, m := range c.members {
		parts = append(parts, m.Instrument.Identity())
	}
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
