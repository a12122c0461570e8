package checkup

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
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

func (l Level) String() string { return [...]string{"fine", "note", "warning", "fault"}[l] }

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is the result of one check.
type Finding struct {
	Level Level `json:"level"`
	// Subject is a rail, a channel, or empty for the bench.
	Subject string `json:"subject,omitempty"`
	// Text is the observation, Remedy the advice; empty for none.
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

// Findings judges a survey. The limits are meant for a card that is powered and idle:
// currents above zero, supplies within the PCIe tolerances.
func Findings(r *Result) []Finding {
	if r.Scans == 0 {
		return []Finding{{
			Fault, "", "the instrument delivered nothing",
			"is it wired to what it measures, and does its stream run?",
		}}
	}
	out := append([]Finding{r.rate()}, r.losses()...)
	for i := range r.Channels {
		out = append(out, r.channel(i)...)
	}
	volts := lists.Map(r.Rails, func(x Rail) measure.Volt { return measure.Volt(x.Voltage.Mean) })
	out = append(out, Supplies(&r.Setup, volts)...)
	for i := range r.Rails {
		out = append(out, r.current(i)...)
	}
	if m := r.Setup.Missing; len(m) > 0 {
		out = append(out, Finding{
			Note, "", "not measured: " + strings.Join(m, ", "),
			"the card draws more than this bench can see; reports repeat it",
		})
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

// rate compares the sample rate by the host's clock with the stated one. A difference is a
// warning beyond 3 standard uncertainties and 100 ppm, and a fault beyond 1 %. It is a warning of
// another kind where samples arrive unevenly: U (k = 2) above 1 %, and above a tenth of the
// difference. The arrivals of a busy machine are late together, so that u is too small there.
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
	f := Finding{Level: Warning, Text: fmt.Sprintf("%v reached, %v stated (%+.0f ± %.0f ppm)",
		scansText(r.Rate), scansText(nominal), 1e6*off, 2e6*u)}
	switch {
	case math.Abs(off) <= max(3*u, 1e-4):
		f.Level = Fine
	case 2*u > max(0.01, math.Abs(off)/10):
		f.Text += ": samples arrive too unevenly to compare"
		f.Remedy = "this machine has too much else to do: repeat the check when it has less, or for longer (--for)"
	case math.Abs(off) < 0.01:
		f.Remedy = "its clock runs further off than the bench states: the markers correct it, but state it in the bench file"
	default:
		f.Level = Fault
		f.Remedy = "samples come at another rate than the bench states: check the instrument's settings"
	}
	return f
}

// scansText formats a rate in S/s with a prefix.
func scansText(h measure.Hertz) string { return strings.TrimSuffix(h.String(), "Hz") + "S/s" }

// losses reports gaps, overflows and the like, with a remedy for each kind.
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
			f.Text = fmt.Sprintf("%s, %s%s lost of %d: %s",
				measure.Plural(l.Events, "gap"), about, measure.Plural(l.Scans, "scan"), r.Scans+l.Scans, l.Detail)
			f.Remedy = "use a shorter or better cable, a port of its own, a lower sample rate, " +
				"or a machine with less to do"
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

// channel checks one converter: clipping, a dead input, a signal that moved (its scatter is five times that from scan
// to scan), noise (twice the stated). A voltage that is not there reads the low end of a converter from 0 V on: that
// is no clipping.
func (r *Result) channel(i int) (out []Finding) {
	c, s := r.Setup.Channels[i], &r.Channels[i]
	add := func(l Level, text, remedy string) { out = append(out, Finding{l, c.Name, text, remedy}) }
	for _, e := range []struct {
		n     uint64
		count measure.Count
	}{{s.Low, c.MinCount}, {s.High, c.MaxCount}} {
		if e.n == 0 || c.Unit == measure.UnitVolt && e.count == c.MinCount && math.Abs(s.Mean) < dead && r.supplied(i) {
			continue
		}
		add(Fault, fmt.Sprintf("clipped %d times at %+.4g %s", e.n, c.Value(e.count), c.Unit),
			"choose a larger range, or a smaller shunt or clamp ratio")
	}
	if s.N >= 1000 && s.Least == s.Most {
		add(Note, fmt.Sprintf("reads %.4g %s all the time, without any noise", s.Mean, c.Unit),
			"not connected? or its steps are larger than what changes")
	}
	if len(s.Noise) > 0 && s.Deviation > 5*s.Noise[0].Dev { // beyond this the signal moved
		add(Note, fmt.Sprintf("was not at rest: it moved between %.4g and %.4g %s", s.Least, s.Most, c.Unit),
			"was the card at work? its noise floor says nothing then")
	}
	if len(s.Noise) > 0 && c.Noise > 0 && s.Noise[0].Dev > 2*c.Noise {
		add(Warning, fmt.Sprintf("scatters by %.3g %s from scan to scan, %.3g stated", s.Noise[0].Dev, c.Unit, c.Noise),
			"a loose ground, a long loop, a supply beside the clamp? or the card was at work: check it idle")
	}
	return out
}

// supply is a rail's nominal voltage.
type supply struct {
	nominal measure.Volt
	// tolerance is relative, of the PCI Express card electromechanical
	// specification: 3.3 V ± 9 %, 12 V ± 8 %.
	tolerance float64
}

var (
	supply3V3 = supply{3.3, 0.09}
	supply12V = supply{12, 0.08}
)

// holds reports whether a voltage lies within the tolerance.
func (s supply) holds(v float64) bool {
	return math.Abs(v-float64(s.nominal)) <= s.tolerance*float64(s.nominal)
}

// supplyOf returns a rail's supply by its role, else by its name; ok is false where it has
// no measured voltage or an unknown supply.
func supplyOf(r measure.Rail) (supply, bool) {
	name := strings.ToLower(r.Name)
	switch {
	case r.Wiring == measure.WiringPower || r.Wiring == measure.WiringAssumed:
		return supply{}, false
	case r.Role == measure.RolePCIe3V3 || strings.Contains(name, "3v3"):
		return supply3V3, true
	case strings.Contains(name, "5v"): // a mainboard's rails, no graphics card's
		return supply{}, false
	case r.Role == measure.RolePCIe12V || r.Role == measure.RolePSU || strings.Contains(name, "12v"):
		return supply12V, true
	}
	return supply{}, false
}

// dead is a voltage below which nothing is connected or switched on.
const dead = 0.5

// supplied reports whether channel i is the voltage of a rail that [Supplies] judges.
func (r *Result) supplied(i int) bool {
	return slices.ContainsFunc(r.Setup.Rails, func(rail measure.Rail) bool {
		_, known := supplyOf(rail)
		return known && (rail.X == i || rail.Y == i)
	})
}

// Supplies judges the mean voltages of a setup's rails, in their order, NaN where one has none:
// swapped rails, reversed probes, cards without power.
func Supplies(s *measure.Setup, volts []measure.Volt) (out []Finding) {
	for i, rail := range s.Rails {
		want, known := supplyOf(rail)
		v := float64(volts[i])
		if !known || math.IsNaN(v) {
			continue
		}
		f := Finding{Fault, rail.Name, fmt.Sprintf("reads %v, a supply of %v", volts[i], want.nominal), ""}
		// Not all cables carry 12 V: SXM boards have 48 or 54 V.
		unsaid := rail.Role == measure.RolePSU && !strings.Contains(strings.ToLower(rail.Name), "12v")
		switch {
		case want.holds(v):
			f.Level = Fine
		case unsaid && v > float64(want.nominal):
			f.Level, f.Text = Fine, fmt.Sprintf("reads %v", volts[i])
		case want.holds(-v):
			f.Remedy = "wrong polarity: swap the two leads of its voltage probe"
		case math.Abs(v) < dead:
			f.Remedy = "no voltage: is the machine on, is the probe connected, is its divider right?"
		default:
			f.Remedy = foreign(s, volts, i, want)
		}
		out = append(out, f)
	}
	return out
}

// SupplyEvents judges the mean voltages over a chunk as Supplies does, and returns an event for each rail that has not the
// voltage of its supply. A rail without voltage has one only where a current flows: else nothing is connected to it.
// Errors wrap chunk.ErrCorrupt, or are the setup's.
func SupplyEvents(s *measure.Setup, c *chunk.Chunk) (out []measure.Event, err error) {
	var b measure.Block
	var cols measure.Columns
	meter, err := measure.NewPowerMeter(s)
	if err = cmp.Or(err, chunk.Decode(c, s.Timebase, len(s.Channels), &b)); err != nil {
		return nil, err
	}
	volts := make([]measure.Volt, len(s.Rails))
	for r, rail := range s.Rails {
		meter.Rail(r, &b, &cols)
		volts[r] = mean(cols.V)
		seen := Rail{Voltage: Spread{Mean: float64(volts[r])}}
		if math.Abs(float64(volts[r])) < dead && math.Abs(float64(mean(cols.I))) < 3*zeroOf(rail, s.Channels, seen) {
			volts[r] = measure.Volt(math.NaN())
		}
	}
	for _, f := range Supplies(s, volts) {
		if f.Level != Fine {
			out = append(out, measure.Event{
				Kind: measure.EventSupply, Exact: true, Channel: -1,
				Detail: fmt.Sprintf("%s %s; %s", f.Subject, f.Text, f.Remedy),
			})
		}
	}
	return out, nil
}

// mean returns the mean of a column, NaN for none.
func mean[T ~float64](column []T) (sum T) {
	for _, v := range column {
		sum += v
	}
	return sum / T(len(column))
}

// foreign explains a voltage outside of its rail's supply: swapped with another rail, of
// another supply, or a wrong divider.
func foreign(s *measure.Setup, volts []measure.Volt, i int, want supply) string {
	v := float64(volts[i])
	for j, other := range s.Rails {
		theirs := volts[j]
		if o, known := supplyOf(other); known && o != want && o.holds(v) && want.holds(float64(theirs)) {
			return fmt.Sprintf("swapped with %s, which reads %v: swap them in the bench file, or at the probes",
				other.Name, theirs)
		}
	}
	for _, o := range []supply{supply3V3, supply12V} {
		if o != want && o.holds(v) {
			return fmt.Sprintf("this is a supply of %v: another rail's probe, or the wrong name", o.nominal)
		}
	}
	return fmt.Sprintf("outside of ± %.0f %%: check divider, probe ratio and the channel's gain", 100*want.tolerance)
}

// current checks the direction of a rail's current, against three standard uncertainties of
// its zero.
func (r *Result) current(i int) []Finding {
	rail, c := r.Setup.Rails[i], r.Rails[i].Current
	if c.N == 0 {
		return nil
	}
	u := zeroOf(rail, r.Setup.Channels, r.Rails[i])
	text := fmt.Sprintf("%v on average, ± %v of the zero (k = 2)", measure.Ampere(c.Mean), measure.Ampere(2*u))
	if c.Mean >= -3*u {
		return []Finding{{Fine, rail.Name, text, ""}}
	}
	remedy := "wrong polarity: turn the clamp round, or make the gain negative"
	if rail.Wiring == measure.WiringShunt {
		remedy = "wrong polarity: source and ground side of the shunt are swapped"
	}
	remedy += "; if nothing flows, set its zero (wattmark calibrate zero)"
	return []Finding{{Fault, rail.Name, text, remedy}}
}

// zeroOf returns the standard uncertainty of a rail's current near zero, in A. The two
// sides of a shunt R read nearly the same voltage v, so their gains matter as well:
//
//	u² = (u(offset x)² + u(offset y)² + v²·(u(gain x)² + u(gain y)²)) / R²
func zeroOf(rail measure.Rail, channels []measure.Channel, seen Rail) float64 {
	x := channels[rail.X]
	if rail.Wiring != measure.WiringShunt {
		return x.UOffset
	}
	y, v := channels[rail.Y], seen.Voltage.Mean
	return math.Hypot(math.Hypot(x.UOffset, y.UOffset), math.Hypot(x.UGain, y.UGain)*v) / float64(rail.Shunt)
}
