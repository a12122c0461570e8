package calib

import (
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
)

// bounds on what a record may hold; far more than any bench has.
const (
	maxItems  = 256
	maxPoints = 1000
	maxText   = 1000
)

// Validate reports the first thing that a record cannot say, and an ID that is
// not that of its content. Errors wrap ErrRecord.
func (r *Record) Validate() error {
	if err := r.check(); err != nil {
		return fmt.Errorf("record %.12s: %w: %w", measure.Printable(r.ID), ErrRecord, err)
	}
	return nil
}

func (r *Record) check() error {
	id, err := r.contentID()
	if err != nil {
		return err
	}
	if r.ID != id {
		return fmt.Errorf("its id is %q, its content's %s: it was edited, or cut off; records are never changed, make a new one", r.ID, id)
	}
	if r.At.IsZero() || r.By == "" || r.Instrument.Kind == "" {
		return errors.New("at, by and instrument.kind must be given")
	}
	for _, t := range [][2]string{
		{"by", r.By}, {"remark", r.Remark}, {"instrument", r.Instrument.Kind}, {"serial", r.Instrument.Serial}, {"reference", r.Conditions.Reference},
	} {
		if err := shortText(t[0], t[1]); err != nil {
			return err
		}
	}
	if t := r.Conditions.TemperatureC; t != nil && !finite(*t) {
		return fmt.Errorf("temperature_c is %v", *t)
	}
	if !r.ValidUntil.IsZero() && r.ValidUntil.Before(r.At) {
		return fmt.Errorf("valid_until %v lies before at %v", r.ValidUntil, r.At)
	}
	return r.checkContent()
}

// checkContent holds what a record says against what was done.
func (r *Record) checkContent() error {
	if len(r.Channels) > maxItems || len(r.Rails) > maxItems {
		return fmt.Errorf("%d channels and %d rails: at most %d of each", len(r.Channels), len(r.Rails), maxItems)
	}
	seen := map[string]bool{}
	once := func(name string) error {
		if name == "" || seen[name] {
			return fmt.Errorf("name %q: must be given, and only once", name)
		}
		seen[name] = true
		return shortText("name", name)
	}
	for _, c := range r.Channels {
		if err := once(c.Name); err != nil {
			return fmt.Errorf("channels: %w", err)
		}
		if err := c.check(r.Done); err != nil {
			return fmt.Errorf("channel %s: %w", c.Name, err)
		}
	}
	clear(seen)
	for _, x := range r.Rails {
		if err := once(x.Name); err != nil {
			return fmt.Errorf("rails: %w", err)
		}
		if !(x.Ohm > 0) || !finite(x.Ohm) || !(x.NominalOhm > 0) || !finite(x.NominalOhm) || !notNegative(x.URel) || !notNegative(x.NominalURel) {
			return fmt.Errorf("rail %s: ohm and nominal_ohm must be positive, u_rel and nominal_u_rel zero or positive", x.Name)
		}
	}
	switch r.Done {
	case Zero, Gain, Import:
		if len(r.Channels) == 0 || len(r.Rails) > 0 {
			return fmt.Errorf("a %s names channels, and no rails", r.Done)
		}
	case Shunt:
		if len(r.Rails) == 0 || len(r.Channels) > 0 {
			return errors.New("a shunt names rails, and no channels")
		}
	case Note:
		if r.Remark == "" || len(r.Rails) > 0 {
			return errors.New("a note has a remark, and no rails")
		}
	default:
		return fmt.Errorf("done is %q: want %s, %s, %s, %s or %s", r.Done, Zero, Gain, Import, Shunt, Note)
	}
	return nil
}

func (c *Channel) check(done Act) error {
	switch c.Unit {
	case measure.UnitVolt, measure.UnitAmpere, measure.UnitWatt:
	default:
		return fmt.Errorf("unit %q: want V, A or W", c.Unit)
	}
	if (c.Scale == nil) != (done == Note) || (c.Nominal == nil) != (done == Note) {
		return errors.New("scale and nominal must be given, save in a note")
	}
	for _, s := range []*Scale{c.Scale, c.Nominal} {
		if s == nil {
			continue
		}
		if !finite(s.Gain) || s.Gain == 0 || !finite(s.Offset) || !notNegative(s.UGain) || !notNegative(s.UOffset) || !notNegative(s.Noise) {
			return fmt.Errorf("a scale of %+v cannot be", *s)
		}
	}
	if err := shortText("basis", c.Basis); err != nil {
		return err
	}
	if len(c.Points) > maxPoints {
		return fmt.Errorf("%d points: at most %d", len(c.Points), maxPoints)
	}
	for i, p := range c.Points {
		if !finite(p.Value) || !finite(p.Reading) || !notNegative(p.U) || !notNegative(p.UReading) || !finite(p.MeanCount) || !notNegative(p.StdCount) {
			return fmt.Errorf("point %d of %+v cannot be", i+1, p)
		}
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func notNegative(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }

func shortText(what, s string) error {
	if len(s) > maxText {
		return fmt.Errorf("%s is %d bytes long: at most %d", what, len(s), maxText)
	}
	return measure.CheckText(what, s)
}
