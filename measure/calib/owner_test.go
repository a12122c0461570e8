package calib

import (
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// pair is a bench of two instruments with channels and shunts of the same names.
func pair() measure.Setup {
	one := riser()
	s := measure.Setup{Timebase: one.Timebase}
	for k, name := range []string{"left", "right"} {
		for _, c := range one.Channels {
			c.Name = name + "/" + c.Name
			s.Channels = append(s.Channels, c)
		}
		for _, r := range one.Rails {
			r.Name, r.X, r.Y = name+" "+r.Name, r.X+k*len(one.Channels), r.Y+k*len(one.Channels)
			s.Rails = append(s.Rails, r)
		}
	}
	return s
}

var pairID = measure.JoinIdentities([]measure.Identity{{Kind: "labjack", Serial: "3"}, device})

// A record of a device serves it wherever it stands, and no other.
func TestEachInstrumentTakesItsOwnRecords(t *testing.T) {
	c, s := riser().Channels[0], pair()
	zero := sealed(t, 0, Record{Done: Zero, Channels: []Channel{scaled(c, c.Gain, 0.5, "")}})
	gain := sealed(t, 1, Record{Done: Gain, Channels: []Channel{scaled(c, 1.01*c.Gain, 0.5, zero.ID)}})
	shunt := sealed(t, 2, Record{Done: Shunt, Rails: []Rail{{Name: "right slot", Ohm: 0.0051, URel: 1e-3, NominalOhm: 0.005, NominalURel: 0.01}}})
	wrong := sealed(t, 3, Record{Done: Shunt, Rails: []Rail{{Name: "left slot", Ohm: 0.0052, URel: 1e-3, NominalOhm: 0.005, NominalURel: 0.01}}})
	h := NewHistory([]Record{zero, gain, shunt, wrong})
	out, notes := apply(t, h, s, pairID, monday)
	if out.Channels[0] != s.Channels[0] || out.Channels[4].Gain != 1.01*c.Gain || out.Channels[4].Name != "right/"+c.Name {
		t.Errorf("%+v and %+v", out.Channels[0], out.Channels[4])
	}
	if out.Rails[1].Shunt != 0.005 || out.Rails[3].Shunt != 0.0051 {
		t.Errorf("%+v", out.Rails)
	}
	if got := ids(out); !slices.Equal(got, []string{zero.ID, gain.ID, shunt.ID}) || notes != "" {
		t.Errorf("%v, %s", got, notes)
	}
	back, err := Nominal(out)
	if err != nil || back.Channels[4] != s.Channels[4] || back.Rails[3] != s.Rails[3] {
		t.Errorf("%+v, %v", back, err)
	}
	stranger := measure.JoinIdentities([]measure.Identity{{Kind: "labjack", Serial: "3"}, {Kind: "pmd", Serial: "8"}})
	if out, notes := apply(t, h[:1], s, stranger, monday); len(out.Records) != 0 || !strings.Contains(notes, "it is of a pmd 7, this is a labjack 3 and a pmd 8") {
		t.Errorf("%v, %s", ids(out), notes)
	}
	// Alone, with the names that it has then.
	if out, notes := apply(t, h[:2], riser(), device, monday); out.Channels[0].Gain != 1.01*c.Gain || notes != "" {
		t.Errorf("%+v, %s", out.Channels[0], notes)
	}
}

// Two devices that tell nothing of themselves are told apart by the bench's names.
func TestTwins(t *testing.T) {
	s, twins := pair(), measure.JoinIdentities([]measure.Identity{device, device})
	c := riser().Channels[0]
	bare := sealed(t, 0, Record{Done: Zero, Channels: []Channel{scaled(c, c.Gain, 0.5, "")}})
	out, notes := apply(t, History{bare}, s, twins, monday)
	if len(out.Records) != 0 || !strings.Contains(notes, "two instruments of this bench are a pmd 7") {
		t.Errorf("%v, %s", ids(out), notes)
	}
	c.Name = "right/" + c.Name
	full := sealed(t, 0, Record{Done: Zero, Channels: []Channel{scaled(c, c.Gain, 0.5, "")}})
	out, notes = apply(t, History{full}, s, twins, monday)
	if out.Channels[0] != s.Channels[0] || out.Channels[4].Offset != 0.5 || notes != "" {
		t.Errorf("%+v and %+v, %s", out.Channels[0], out.Channels[4], notes)
	}
}

// A record of a whole bench becomes one of each instrument that it is about.
func TestSplit(t *testing.T) {
	s := pair()
	r := Record{Done: Zero, By: "ada", At: monday}
	for _, i := range []int{0, 4, 5} {
		r.Channels = append(r.Channels, scaled(s.Channels[i], s.Channels[i].Gain, 0.5, ""))
	}
	for _, c := range []struct {
		id    measure.Identity
		want  []Instrument
		names []string
	}{
		{pairID, []Instrument{{"labjack", "3"}, {"pmd", "7"}}, []string{"a.current", "a.current", "a.voltage"}},
		{measure.JoinIdentities([]measure.Identity{device, device}), []Instrument{{"pmd", "7"}}, []string{"left/a.current", "right/a.current", "right/a.voltage"}},
	} {
		var of []Instrument
		var names []string
		for _, part := range OwnersOf(&s, c.id).Split(&s, r) {
			of = append(of, part.Instrument)
			for _, x := range part.Channels {
				names = append(names, x.Name)
			}
			if err := part.Seal(); err != nil {
				t.Fatal(err)
			}
			if err := part.Validate(); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(of, c.want) || !slices.Equal(names, c.names) {
			t.Errorf("%v of %v", names, of)
		}
	}
	note := Record{Done: Note, By: "ada", At: monday, Remark: "moved to the window"}
	if parts := OwnersOf(&s, pairID).Split(&s, note); len(parts) != 1 || parts[0].Instrument.Kind != "labjack" {
		t.Errorf("%+v", parts)
	}
}
