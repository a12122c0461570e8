package calib

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
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
// its rail. A record fits where the instrument and the bench file still state the
// gain and the offset, or the resistance, that they stated when it was made;
// uncertainties are not compared. The notes are for the operator:
// records that are not applied and why, records that have expired. The nominal
// setup is not changed. Of several instruments that are read as one each takes its
// own records, see Owners.
func (h History) Apply(nominal measure.Setup, id measure.Identity, now time.Time,
) (s measure.Setup, notes []string, err error) {
	a := applying{h: h, own: OwnersOf(&nominal, id), used: map[int]bool{}}
	s = nominal
	s.Channels, s.Rails, s.Records = slices.Clone(nominal.Channels), slices.Clone(nominal.Rails), nil
	for i := range s.Channels {
		a.channel(&s, i)
	}
	for i := range s.Rails {
		a.rail(&s, i)
	}
	a.strangers(&s)
	for i, r := range h {
		if !a.used[i] {
			continue
		}
		if r.Expired(now) {
			a.note("record %s of %s (%s, by %s) has expired on %s: calibrate again; until then ± U takes the nominal "+
				"uncertainty of its channels", r.ID, day(r.At), r.Done, r.By, day(r.ValidUntil))
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
	own   Owners
	used  map[int]bool
	notes []string
}

// note adds a note, once.
func (a *applying) note(format string, v ...any) {
	if t := fmt.Sprintf(format, v...); !slices.Contains(a.notes, t) {
		a.notes = append(a.notes, t)
	}
}

// unfit notes why a record is not applied.
func (a *applying) unfit(r *Record, format string, v ...any) {
	a.note("record %s of %s is not applied%s", r.ID, day(r.At), fmt.Sprintf(format, v...))
}

// channel gives a channel its newest scale that fits, and its newest note.
func (a *applying) channel(s *measure.Setup, channel int) {
	c := &s.Channels[channel]
	scaled, noted := false, false
	for i := len(a.h) - 1; i >= 0 && !(scaled && noted); i-- {
		r := &a.h[i]
		x := a.own.find(s, r, channel)
		if x == nil {
			continue
		}
		switch {
		case x.Scale == nil:
			a.used[i], noted = a.used[i] || !noted, true
		case scaled:
		case x.Unit != c.Unit:
			a.unfit(r, ": %s was in %s then, and is in %s now", c.Name, x.Unit, c.Unit)
		case !alike(x.Nominal.Gain, c.Gain) || !alike(x.Nominal.Offset, c.Offset):
			a.unfit(r, " to %s: the instrument or the bench file says gain %.6g and offset %.6g of it now, %.6g and "+
				"%.6g when the record was made; calibrate again, or put back what it was",
				c.Name, c.Gain, c.Offset, x.Nominal.Gain, x.Nominal.Offset)
		default:
			*c = x.Scale.On(*c)
			scaled = true
			a.use(i, s, channel)
		}
	}
}

// use marks the record that a channel follows, and the records below it: a zero keeps
// the gain of an earlier record, a gain leans on the zero before it.
func (a *applying) use(i int, s *measure.Setup, channel int) {
	var seen [2]bool // a zero, a gain
	for i >= 0 {
		kind := 1
		if a.h[i].Done == Zero {
			kind = 0
		}
		x := a.own.find(s, &a.h[i], channel)
		if seen[kind] || x == nil || x.Scale == nil {
			return
		}
		a.used[i], seen[kind] = true, true
		i = slices.IndexFunc(a.h, func(r Record) bool { return x.Basis != "" && r.ID == x.Basis })
	}
}

// rail gives a shunt its newest resistance that fits.
func (a *applying) rail(s *measure.Setup, rail int) {
	r := &s.Rails[rail]
	if r.Wiring != measure.WiringShunt {
		return
	}
	for i := len(a.h) - 1; i >= 0; i-- {
		rec := &a.h[i]
		k := slices.IndexFunc(rec.Rails, func(x Rail) bool { return x.Name == r.Name })
		if k < 0 || !rec.Of(a.own.ids[a.own.of[r.X]]) {
			continue
		}
		x := rec.Rails[k]
		if !alike(x.NominalOhm, float64(r.Shunt)) {
			a.unfit(rec, " to rail %s: the bench file says a shunt of %.6g Ω now, %.6g Ω when the record was made; "+
				"calibrate again, or put back what it was", r.Name, float64(r.Shunt), x.NominalOhm)
			continue
		}
		r.Shunt, r.UShunt = measure.Ohm(x.Ohm), x.URel
		a.used[i] = true
		return
	}
}

// strangers notes records of other devices and channels, and takes in the
// newest note about the bench as a whole.
func (a *applying) strangers(s *measure.Setup) {
	general := false
	for i := len(a.h) - 1; i >= 0; i-- {
		r := &a.h[i]
		if !slices.ContainsFunc(a.own.ids, r.Of) {
			a.unfit(r, ": it is of a %s, this is a %s", r.Instrument, a.own)
			continue
		}
		if r.Done == Note && len(r.Channels) == 0 && !general {
			a.used[i], general = true, true
		}
		for _, c := range r.Channels {
			switch {
			case a.names(s, r, c.Name):
			case a.own.unclear(r, c.Name):
				a.unfit(r, " to %s: two instruments of this bench are a %s, and it does not say which: make a new one",
					c.Name, r.Instrument)
			default:
				a.unfit(r, " to %s: this bench has no such channel", c.Name)
			}
		}
		for _, x := range r.Rails {
			if !slices.ContainsFunc(s.Rails,
				func(y measure.Rail) bool { return y.Name == x.Name && y.Wiring == measure.WiringShunt }) {
				a.unfit(r, " to %s: this bench has no such shunt rail", x.Name)
			}
		}
	}
}

// names reports whether a record's channel is one of the setup's.
func (a *applying) names(s *measure.Setup, r *Record, name string) bool {
	for i := range s.Channels {
		if x := a.own.find(s, r, i); x != nil && x.Name == name {
			return true
		}
	}
	return false
}

func (i Instrument) String() string {
	if i.Serial == "" {
		return i.Kind + " without a serial number"
	}
	return i.Kind + " " + i.Serial
}

// Owners maps each channel to its instrument of a setup is of. On a bench of several
// instruments, whose channels are called instrument/channel, a record is about one of
// them and names its channel without the instrument, so that it serves the same
// device wherever it stands. Where two of them have the same kind and serial number
// a record has to name instrument/channel.
type Owners struct {
	ids   []measure.Identity
	of    []int    // by channel
	names []string // by channel: as the instrument itself calls it
	twin  []bool   // by instrument
}

// OwnersOf returns the owners of a setup's channels: id is the identity of all the
// instruments, in the order of the channels.
func OwnersOf(s *measure.Setup, id measure.Identity) Owners {
	o := Owners{ids: id.Parts(), of: make([]int, len(s.Channels)), names: make([]string, len(s.Channels))}
	var seen []string
	for i, c := range s.Channels {
		name, rest, _ := strings.Cut(c.Name, "/")
		k := slices.Index(seen, name)
		if k < 0 {
			k, seen = len(seen), append(seen, name)
		}
		o.of[i], o.names[i] = k, rest
	}
	if len(o.ids) == 1 || len(seen) != len(o.ids) { // channels of one instrument
		o.ids, o.of = []measure.Identity{id}, make([]int, len(s.Channels))
		for i, c := range s.Channels {
			o.names[i] = c.Name
		}
	}
	o.twin = make([]bool, len(o.ids))
	for i, a := range o.ids {
		for k, b := range o.ids {
			o.twin[i] = o.twin[i] || i != k && a.Kind == b.Kind && a.Serial == b.Serial
		}
	}
	return o
}

// Device is the instrument that a channel is of.
func (o Owners) Device(channel int) Instrument {
	id := o.ids[o.of[channel]]
	return Instrument{id.Kind, id.Serial}
}

// Name returns a record's name for a channel of a setup.
func (o Owners) Name(s *measure.Setup, channel int) string {
	if o.twin[o.of[channel]] {
		return s.Channels[channel].Name
	}
	return o.names[channel]
}

// find returns the record's entry of a channel; nil for none.
func (o Owners) find(s *measure.Setup, r *Record, channel int) *Channel {
	of := o.of[channel]
	if !r.Of(o.ids[of]) {
		return nil
	}
	if x := r.find(s.Channels[channel].Name); x != nil || o.twin[of] {
		return x
	}
	return r.find(o.names[channel])
}

// unclear reports whether a record names a channel that several instruments have
// which nothing distinguishes.
func (o Owners) unclear(r *Record, name string) bool {
	for i, n := range o.names {
		if n == name && o.twin[o.of[i]] && r.Of(o.ids[o.of[i]]) {
			return true
		}
	}
	return false
}

// String names all of them.
func (o Owners) String() string {
	all := lists.Map(o.ids, func(id measure.Identity) string { return Instrument{id.Kind, id.Serial}.String() })
	return strings.Join(all, " and a ")
}

// Split makes a record of each instrument out of one about channels and rails of a
// whole bench, which names them as its setup does. The instruments' own records
// are not sealed.
func (o Owners) Split(s *measure.Setup, r Record) (out []Record) {
	at := map[Instrument]int{}
	of := func(d Instrument) *Record {
		i, ok := at[d]
		if !ok {
			i, at[d] = len(out), len(out)
			part := r
			part.ID, part.Instrument, part.Channels, part.Rails = "", d, nil, nil
			out = append(out, part)
		}
		return &out[i]
	}
	for _, c := range r.Channels {
		if i := slices.IndexFunc(s.Channels, func(x measure.Channel) bool { return x.Name == c.Name }); i >= 0 {
			c.Name = o.Name(s, i)
			part := of(o.Device(i))
			part.Channels = append(part.Channels, c)
		}
	}
	for _, x := range r.Rails {
		if i := slices.IndexFunc(s.Rails, func(y measure.Rail) bool { return y.Name == x.Name }); i >= 0 {
			part := of(o.Device(s.Rails[i].X))
			part.Rails = append(part.Rails, x)
		}
	}
	if len(out) == 0 { // about the bench
		of(Instrument{o.ids[0].Kind, o.ids[0].Serial})
	}
	return out
}
