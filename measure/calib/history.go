package calib

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"wattmark/measure"
)

// History is a set of records, oldest first.
type History []Record

// NewHistory sorts records by date, and drops those that are there twice.
func NewHistory(records []Record) History {
	h := slices.Clone(records)
	slices.SortFunc(h, func(a, b Record) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	return slices.CompactFunc(h, func(a, b Record) bool { return a.ID == b.ID })
}

// HistoryOf reads the records that a setup carries.
func HistoryOf(s *measure.Setup) (History, error) {
	var all []Record
	for _, c := range s.Records {
		r, err := Parse(c)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return NewHistory(all), nil
}

// Of reports whether a record speaks of a device.
func (r *Record) Of(id measure.Identity) bool {
	return r.Instrument.Kind == id.Kind && r.Instrument.Serial == id.Serial
}

// Apply puts the records in force on a nominal setup: each channel takes the
// newest record of this device that fits it, each shunt the newest record of
// its rail. A record fits where the instrument and the bench file still say the
// gain and the offset, or the resistance, that they said when it was made; what
// they say of uncertainties does not matter. The notes are for the operator:
// records that are not applied and why, records that have expired. The nominal
// setup is not changed.
func (h History) Apply(nominal measure.Setup, id measure.Identity, now time.Time) (s measure.Setup, notes []string, err error) {
	a := applying{h: h, id: id, used: map[int]bool{}, told: map[string]bool{}}
	s = nominal
	s.Channels, s.Rails, s.Records = slices.Clone(nominal.Channels), slices.Clone(nominal.Rails), nil
	for i := range s.Channels {
		a.channel(&s.Channels[i])
	}
	for i := range s.Rails {
		a.rail(&s.Rails[i])
	}
	a.strangers(&s)
	for i, r := range h {
		if !a.used[i] {
			continue
		}
		if !r.ValidUntil.IsZero() && now.After(r.ValidUntil) {
			a.tell("record %s of %s (%s, by %s) has expired on %s: calibrate again; until then it stays in force",
				r.ID, day(r.At), r.Done, r.By, day(r.ValidUntil))
		}
		c, err := r.Travel()
		if err != nil {
			return nominal, nil, err
		}
		s.Records = append(s.Records, c)
	}
	return s, a.notes, nil
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02") }

// applying is one Apply.
type applying struct {
	h     History
	id    measure.Identity
	used  map[int]bool
	told  map[string]bool
	notes []string
}

// tell adds a note, once.
func (a *applying) tell(format string, v ...any) {
	if t := fmt.Sprintf(format, v...); !a.told[t] {
		a.told[t] = true
		a.notes = append(a.notes, t)
	}
}

// channel gives a channel its newest scale that fits, and its newest note.
func (a *applying) channel(c *measure.Channel) {
	scaled, noted := false, false
	for i := len(a.h) - 1; i >= 0 && !(scaled && noted); i-- {
		r := &a.h[i]
		x := r.find(c.Name)
		if x == nil || !r.Of(a.id) {
			continue
		}
		switch {
		case x.Scale == nil:
			a.used[i], noted = a.used[i] || !noted, true
		case scaled:
		case x.Unit != c.Unit:
			a.tell("record %s of %s is not applied: %s was in %s then, and is in %s now", r.ID, day(r.At), c.Name, x.Unit, c.Unit)
		case !alike(x.Nominal.Gain, c.Gain) || !alike(x.Nominal.Offset, c.Offset):
			a.tell("record %s of %s is not applied to %s: the instrument or the bench file says gain %.6g and offset %.6g of it now, %.6g and %.6g when the record was made; calibrate again, or put back what it was",
				r.ID, day(r.At), c.Name, c.Gain, c.Offset, x.Nominal.Gain, x.Nominal.Offset)
		default:
			*c = x.Scale.On(*c)
			scaled = true
			a.use(i, c.Name)
		}
	}
}

// use marks the record that a channel follows, and what it rests on: a zero keeps
// the gain of an earlier record, a gain leans on the zero before it.
func (a *applying) use(i int, channel string) {
	var seen [2]bool // a zero, a gain
	for i >= 0 {
		kind := 1
		if a.h[i].Done == Zero {
			kind = 0
		}
		x := a.h[i].find(channel)
		if seen[kind] || x == nil || x.Scale == nil {
			return
		}
		a.used[i], seen[kind] = true, true
		i = slices.IndexFunc(a.h, func(r Record) bool { return x.Basis != "" && r.ID == x.Basis })
	}
}

// rail gives a shunt its newest resistance that fits.
func (a *applying) rail(r *measure.Rail) {
	if r.Wiring != measure.WiringShunt {
		return
	}
	for i := len(a.h) - 1; i >= 0; i-- {
		rec := &a.h[i]
		k := slices.IndexFunc(rec.Rails, func(x Rail) bool { return x.Name == r.Name })
		if k < 0 || !rec.Of(a.id) {
			continue
		}
		x := rec.Rails[k]
		if !alike(x.NominalOhm, float64(r.Shunt)) {
			a.tell("record %s of %s is not applied to rail %s: the bench file says a shunt of %.6g Ω now, %.6g Ω when the record was made; calibrate again, or put back what it was",
				rec.ID, day(rec.At), r.Name, float64(r.Shunt), x.NominalOhm)
			continue
		}
		r.Shunt, r.UShunt = measure.Ohm(x.Ohm), x.URel
		a.used[i] = true
		return
	}
}

// strangers tells of records that are about something else, and takes in the
// newest note about the bench as a whole.
func (a *applying) strangers(s *measure.Setup) {
	general := false
	for i := len(a.h) - 1; i >= 0; i-- {
		r := &a.h[i]
		if !r.Of(a.id) {
			a.tell("record %s of %s is not applied: it is of a %s, this is a %s", r.ID, day(r.At), r.Instrument, Instrument{a.id.Kind, a.id.Serial})
			continue
		}
		if r.Done == Note && len(r.Channels) == 0 && !general {
			a.used[i], general = true, true
		}
		for _, c := range r.Channels {
			if !slices.ContainsFunc(s.Channels, func(x measure.Channel) bool { return x.Name == c.Name }) {
				a.tell("record %s of %s is not applied to %s: this bench has no such channel", r.ID, day(r.At), c.Name)
			}
		}
		for _, x := range r.Rails {
			if !slices.ContainsFunc(s.Rails, func(y measure.Rail) bool { return y.Name == x.Name && y.Wiring == measure.WiringShunt }) {
				a.tell("record %s of %s is not applied to %s: this bench has no such shunt rail", r.ID, day(r.At), x.Name)
			}
		}
	}
}

func (i Instrument) String() string {
	if i.Serial == "" {
		return i.Kind + " without a serial number"
	}
	return i.Kind + " " + i.Serial
}

// find returns what a record says of a channel, nil for nothing.
func (r *Record) find(name string) *Channel {
	for i := range r.Channels {
		if r.Channels[i].Name == name {
			return &r.Channels[i]
		}
	}
	return nil
}

// InForce returns the newest record with a scale for a channel, or with a
// resistance for a rail; nil without one.
func (h History) InForce(name string) *Record {
	for i := len(h) - 1; i >= 0; i-- {
		if c := h[i].find(name); c != nil && c.Scale != nil {
			return &h[i]
		}
		if slices.ContainsFunc(h[i].Rails, func(x Rail) bool { return x.Name == name }) {
			return &h[i]
		}
	}
	return nil
}

// Nominal takes the records off a setup: what the instrument and the bench file
// alone say. Channels that no record is in force for stay as they are.
func Nominal(s measure.Setup) (measure.Setup, error) {
	h, err := HistoryOf(&s)
	if err != nil {
		return s, err
	}
	s.Channels, s.Rails, s.Records = slices.Clone(s.Channels), slices.Clone(s.Rails), nil
	for i, c := range s.Channels {
		for k := len(h) - 1; k >= 0; k-- {
			if x := h[k].find(c.Name); x != nil && x.Scale != nil && x.Scale.near(ScaleOf(c)) {
				s.Channels[i] = x.Nominal.On(c)
				break
			}
		}
	}
	for i, r := range s.Rails {
		for k := len(h) - 1; k >= 0; k-- {
			j := slices.IndexFunc(h[k].Rails, func(x Rail) bool { return x.Name == r.Name && alike(x.Ohm, float64(r.Shunt)) })
			if j >= 0 && r.Wiring == measure.WiringShunt {
				x := h[k].Rails[j]
				s.Rails[i].Shunt, s.Rails[i].UShunt = measure.Ohm(x.NominalOhm), x.NominalURel
				break
			}
		}
	}
	return s, nil
}

// near reports whether two scales are the same but for rounding.
func (s *Scale) near(t Scale) bool {
	return alike(s.Gain, t.Gain) && alike(s.Offset, t.Offset) && alike(s.UGain, t.UGain) && alike(s.UOffset, t.UOffset) && alike(s.Noise, t.Noise)
}

// alike forgives what a number loses on its way through another program.
func alike(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }
