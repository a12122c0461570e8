package calib

import (
	"slices"
	"strings"

	"wattmark/measure"
)

// Owners tells which instrument each channel of a setup is of. On a bench of several
// instruments, whose channels are called instrument/channel, a record is about one of
// them and names its channel without the instrument, so that it serves the same
// device wherever it stands. Where two of them tell the same kind and serial number
// a record has to say instrument/channel.
type Owners struct {
	ids   []measure.Identity
	of    []int    // by channel
	names []string // by channel: as the instrument itself calls it
	twin  []bool   // by instrument
}

// OwnersOf tells whose the channels of a setup are: id is the identity of all the
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

// Name is what a record calls a channel of a setup.
func (o Owners) Name(s *measure.Setup, channel int) string {
	if o.twin[o.of[channel]] {
		return s.Channels[channel].Name
	}
	return o.names[channel]
}

// record reports whether a record speaks of any of the instruments.
func (o Owners) record(r *Record) bool { return slices.ContainsFunc(o.ids, r.Of) }

// find returns what a record says of a channel, nil for nothing.
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

// unclear reports whether a record names a channel that several instruments which
// are told apart by nothing have.
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
	var all []string
	for _, id := range o.ids {
		all = append(all, Instrument{id.Kind, id.Serial}.String())
	}
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
