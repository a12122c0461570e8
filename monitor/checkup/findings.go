package checkup

import (
	"fmt"
	"math"
	"strings"

	"wattmark/measure"
)

// Level is how bad a finding is.
type Level uint8

// The levels.
const (
	Fine    Level = iota // as it should be
	Note                 // worth knowing
	Warning              // figures may be worse than they look
	Fault                // figures will be wrong
)

func (l Level) String() string {
	return [...]string{"fine", "note", "warning", "fault"}[l]
}

// Finding is one thing that was looked at.
type Finding struct {
	Level Level
	// Subject is a rail, a channel, or empty for the bench.
	Subject string
	// Text says what was seen, Remedy what to do about it.
	Text, Remedy string
}

// Findings judges a survey. The levels' limits are meant for a card that is
// powered and idle: currents above zero, supplies within the PCIe tolerances.
func Findings(r *Result) []Finding {
	if r.Scans == 0 {
		return []Finding{{Fault, "", "the instrument delivered nothing", "is it wired to what it measures, and does its stream run?"}}
	}
	var out []Finding
	out = append(out, r.rate())
	out = append(out, r.losses()...)
	for i := range r.Channels {
		out = append(out, r.channel(i)...)
	}
	out = append(out, r.supplies()...)
	for i := range r.Rails {
		out = append(out, r.current(i)...)
	}
	if m := r.Setup.Missing; len(m) > 0 {
		out = append(out, Finding{Note, "", "not measured: " + strings.Join(m, ", "), "the card draws more than this bench can see; reports repeat it"})
	}
	return out
}

// Worst is the highest level among findings.
func Worst(f []Finding) (l Level) {
	for _, x := range f {
		l = max(l, x.Level)
	}
	return l
}

// rate compares the rate that is reached with the one that the setup states.
func (r *Result) rate() Finding {
	nominal, tb := r.Setup.Timebase.SampleRate(), r.Setup.Timebase
	if r.Rate == 0 {
		text := "too short to compare the sample rate with this machine's clock"
		if r.Deferred {
			text = "the sample rate is the instrument's own: it delivers from memory"
		}
		return Finding{Note, "", text, ""}
	}
	off := float64(r.Rate/nominal) - 1
	u := math.Hypot(float64(r.URate/nominal), tb.UTickHz)
	text := fmt.Sprintf("%v reached, %v stated (%+.0f ± %.0f ppm)", scansText(r.Rate), scansText(nominal), 1e6*off, 2e6*u)
	switch {
	case math.Abs(off) <= max(3*u, 1e-4):
		return Finding{Fine, "", text, ""}
	case math.Abs(off) < 0.01:
		return Finding{Warning, "", text, "its clock runs further off than the bench states: the markers correct it, but state it in the bench file"}
	}
	return Finding{Fault, "", text, "samples come at another rate than the bench states: check the instrument's settings"}
}

func scansText(h measure.Hertz) string { return strings.TrimSuffix(h.String(), "Hz") + "S/s" }

// losses reports what did not arrive.
func (r *Result) losses() []Finding {
	if len(r.Losses) == 0 {
		return []Finding{{Fine, "", "no sample lost, no resynchronisation", ""}}
	}
	var out []Finding
	for _, l := range r.Losses {
		about := "about "
		if l.Exact {
			about = ""
		}
		f := Finding{Level: Warning, Text: fmt.Sprintf("%d × %v: %s", l.Events, l.Kind, l.Detail)}
		switch l.Kind {
		case measure.EventGap:
			f.Text = fmt.Sprintf("%d gaps, %s%d scans lost of %d: %s", l.Events, about, l.Scans, r.Scans+l.Scans, l.Detail)
			f.Remedy = "use a shorter or better cable, a port of its own, a lower sample rate, or a machine with less to do"
		case measure.EventOverflow:
			f.Remedy = "the instrument's buffer ran over: lower the sample rate"
		case measure.EventResync:
			f.Remedy = "bytes arrived damaged: check cable, line speed and ground"
		case measure.EventReopen:
			f.Remedy = "the link broke: check plug, hub and power saving of the port"
		default:
			f.Level = Note
		}
		out = append(out, f)
	}
	return out
}

// noisy is by how much the noise may exceed what the bench states.
const noisy = 2

// restless is by how much a channel's scatter over the whole time may exceed
// that from scan to scan before it counts as a signal that moved.
const restless = 5

// channel looks at one converter.
func (r *Result) channel(i int) (out []Finding) {
	c, s := r.Setup.Channels[i], &r.Channels[i]
	for _, e := range []struct {
		n     uint64
		count measure.Count
	}{{s.Low, c.MinCount}, {s.High, c.MaxCount}} {
		if e.n == 0 {
			continue
		}
		out = append(out, Finding{Fault, c.Name,
			fmt.Sprintf("clipped %d times at %+.4g %s", e.n, c.Value(e.count), c.Unit),
			"choose a larger range, or a smaller shunt or clamp ratio"})
	}
	if s.N >= 1000 && s.Least == s.Most {
		out = append(out, Finding{Note, c.Name, fmt.Sprintf("reads %.4g %s all the time, without any noise", s.Mean, c.Unit),
			"not connected? or its steps are larger than what changes"})
	}
	if len(s.Noise) > 0 && s.Deviation > restless*s.Noise[0].Dev {
		out = append(out, Finding{Note, c.Name,
			fmt.Sprintf("was not at rest: it moved between %.4g and %.4g %s", s.Least, s.Most, c.Unit),
			"was the card at work? its noise floor says nothing then"})
	}
	if len(s.Noise) > 0 && c.Noise > 0 && s.Noise[0].Dev > noisy*c.Noise {
		out = append(out, Finding{Warning, c.Name,
			fmt.Sprintf("scatters by %.3g %s from scan to scan, %.3g stated", s.Noise[0].Dev, c.Unit, c.Noise),
			"a loose ground, a long loop, a supply beside the clamp? or the card was at work: check it idle"})
	}
	return out
}
