package quality

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
)

// clean is a measurement that nothing is to be said about.
func clean() Input {
	return Input{
		Setup: &measure.Setup{
			Timebase: measure.Timebase{TickHz: 1e6, UTickHz: 5e-5, TicksPerScan: 100},
			Channels: []measure.Channel{
				{Name: "CH1", Unit: measure.UnitAmpere, Gain: 20.0 / 32768, UGain: 0.005, MinCount: -32768, MaxCount: 32767},
				{Name: "CH3", Unit: measure.UnitVolt, Gain: 10.0 / 65535, UGain: 0.001, MinCount: 0, MaxCount: 65535},
				{Name: "spare", Unit: measure.UnitVolt, Gain: 1},
			},
			Rails: []measure.Rail{{Name: "aux", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1}},
		},
		Result: &measure.Result{
			From: 1, To: 2, FirstScan: 10_000, Samples: 10_000,
			Total:  measure.Estimate{Energy: 250, U: 3},
			Budget: []measure.Contribution{{Source: "gain CH1", U: 1.4}, {Source: "window edges", U: 0.2}},
		},
		Marker: marker.Spec{Code: marker.M15, TagBits: 8},
		Markers: []marker.Found{
			{Kind: marker.Start, T: 0.5, End: 0.9, TagOK: true}, {Kind: marker.Stop, T: 2.2, Begin: 2.1, End: 2.6, TagOK: true},
		},
		Clock: &clock.Fit{B: 1 + 3e-5, Used: 40},
	}
}

func TestNothingToSay(t *testing.T) {
	if v := Judge(clean()); v.Level != Good || len(v.Reasons) != 0 || v.Level.String() != "good" {
		t.Errorf("a clean measurement is %v", v)
	}
}

// calibrated gives a channel a record of January, which is valid for a year, and measures at a time.
func calibrated(t *testing.T, nominal float64, at time.Time) func(*Input) {
	return func(in *Input) {
		c := in.Setup.Channels[0]
		scale := calib.ScaleOf(c)
		was := scale
		was.UGain = nominal
		r := calib.Record{
			Done: calib.Gain, At: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), By: "ada", Instrument: calib.Instrument{Kind: "pmd"},
			ValidUntil: time.Date(2027, 1, 5, 0, 0, 0, 0, time.UTC),
			Channels:   []calib.Channel{{Name: c.Name, Unit: c.Unit, Scale: &scale, Nominal: &was}},
		}
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		record, err := r.Travel()
		if err != nil {
			t.Fatal(err)
		}
		in.Setup.Records, in.At = []measure.CalibrationRecord{record}, at
	}
}

func TestACalibrationInForceIsNotMentioned(t *testing.T) {
	in := clean()
	calibrated(t, 0.01, time.Date(2027, 1, 4, 0, 0, 0, 0, time.UTC))(&in)
	if v := Judge(in); v.Level != Good || len(v.Reasons) > 0 {
		t.Errorf("%+v", v)
	}
}

func TestMetersThatDoNotLookAway(t *testing.T) {
	for name, r := range map[string]measure.Response{
		"a lag longer than the time between values":               {Tau: 0.058, Update: 0.015},
		"one of a bench that samples more slowly than the others": {Update: 209e-6},
	} {
		in := clean()
		in.Setup.Response = r
		if v := Judge(in); v.Level != Good {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// Every rule: what makes it speak, how grave it is, what it says.
func TestRules(t *testing.T) {
	event := func(kind measure.EventKind, first, scans uint64, channel int) func(*Input) {
		return func(in *Input) {
			in.Events = append(in.Events, measure.Event{Kind: kind, FirstScan: first, Scans: scans, Channel: channel, Exact: true})
		}
	}
	clipped := func(c Clipping) func(*Input) { return func(in *Input) { in.Clipped = append(in.Clipped, c) } }
	for name, c := range map[string]struct {
		change func(*Input)
		cause  Cause
		level  Level
		text   string
	}{
		"no window":                  {func(in *Input) { in.Result = nil }, NoResult, Void, "wattmark trim"},
		"energy is not a number":     {func(in *Input) { in.Result.Total.Energy = measure.Joule(math.NaN()) }, TooUncertain, Void, "not a number"},
		"no energy, no U":            {func(in *Input) { in.Result.Total.Energy, in.Result.Total.U = 0, 0 }, TooUncertain, Void, "not a number"},
		"few samples":                {func(in *Input) { in.Result.Samples = 4 }, FewSamples, Doubtful, "only 4 readings"},
		"clipped now and then":       {clipped(Clipping{Channel: 1, Inside: 1}), Clipped, Usable, "channel CH3 clipped once (0.01 % of readings) at +10 V: choose a larger range"},
		"clipped":                    {clipped(Clipping{Channel: 1, Inside: 312}), Clipped, Doubtful, "channel CH3 clipped 312 times (3.12 % of readings) at +10 V: choose a larger range"},
		"clipped throughout":         {clipped(Clipping{Inside: 9000}), Clipped, Void, "channel CH1 clipped 9000 times (90 % of readings) at ±20 A"},
		"clipped at rest":            {clipped(Clipping{Channel: 1, Outside: 5000}), Clipped, Usable, "5000 times at +10 V outside of the window"},
		"clipped in a marker":        {clipped(Clipping{Channel: 1, Markers: 1}), Clipped, Usable, " % of readings) at +10 V in the markers"},
		"clipped markers":            {clipped(Clipping{Channel: 1, Markers: 5000}), Clipped, Doubtful, " % of readings) at +10 V in the markers"},
		"clipped nobody knows where": {clipped(Clipping{Channel: 1, Unplaced: 600}), Clipped, Void, "600 times (6 % of readings) at +10 V (where"},
		"not counted":                {event(measure.EventOverRange, 500, 12, 1), Clipped, Doubtful, "12 times (0.12 % of readings) at +10 V (where"},
		"not counted, of a window":   {event(measure.EventOverRange, 12_000, 600, 1), Clipped, Void, "600 times (6 % of readings) at +10 V (where"},
		"not counted, behind":        {event(measure.EventOverRange, 20_000, 600, 1), Clipped, Usable, "600 times at +10 V outside"},
		"lost few":                   {func(in *Input) { in.Result.Gaps, in.Result.Lost = 1, 20 }, LostScans, Usable, "20 scans lost in 1 gap, 0.2 % of the window"},
		"lost many":                  {func(in *Input) { in.Result.Gaps, in.Result.Lost = 3, 500 }, LostScans, Doubtful, "500 scans lost in 3 gaps, 4.8 %"},
		"lost most":                  {func(in *Input) { in.Result.Gaps, in.Result.Lost = 3, 50_000 }, LostScans, Void, "83 %"},
		"overflow, loss not known":   {event(measure.EventOverflow, 15_000, 0, -1), Overflow, Doubtful, "overflowed once"},
		"resynchronised":             {event(measure.EventResync, 15_000, 0, -1), Resynced, Usable, "bytes were skipped, or lines could not be read, once: look at the cable"},
		"reopened":                   {event(measure.EventReopen, 15_000, 0, -1), Reopened, Doubtful, "within the window"},
		"clock set": {func(in *Input) {
			in.Events = append(in.Events, measure.Event{Kind: measure.EventClock, Channel: -1, Detail: "the host's clock was set by +1 s"})
		}, ClockSet, Doubtful, "was set by +1 s"},
		"reopened before":      {event(measure.EventReopen, 100, 0, -1), Reopened, Usable, "outside of the window"},
		"a rail is missing":    {func(in *Input) { in.Setup.Missing = []string{"pcie_3v3"} }, MissingRail, Usable, "rail pcie_3v3 is not measured"},
		"fallback marker":      {func(in *Input) { in.Markers[1].Fallback = true }, Fallback, Doubtful, "the stop marker was found by its plain"},
		"tag not read":         {func(in *Input) { in.Markers[0].TagOK = false }, WrongTag, Doubtful, "a start marker was found, but not with this task's tag"},
		"no stop marker":       {func(in *Input) { in.Markers = in.Markers[:1] }, NoMarker, Doubtful, "no stop marker"},
		"no clock":             {func(in *Input) { in.Clock = nil }, NoClock, Doubtful, "between the markers"},
		"the GPU's own sensor": {func(in *Input) { in.OwnSensor = true }, OwnSensor, Usable, "wattmark run --instrument"},
		"half of a card, 1 s by the host": {func(in *Input) {
			in.Sensor, in.Result.To = 1.7*in.Result.Total.Energy, in.Result.From+1-100e-6
		}, BelowSensor, Usable, "is the meter on this card"},
		"swapped rails": {func(in *Input) {
			in.Events = append(in.Events, measure.Event{Kind: measure.EventSupply, Channel: -1, Detail: "pcie_12v reads 3.3 V"})
		}, WrongSupply, Doubtful, "reads 3.3 V"},
		"half of a card":          {func(in *Input) { in.Sensor = 1.7 * in.Result.Total.Energy }, BelowSensor, Usable, "is the meter on this card"},
		"few edges":               {func(in *Input) { in.Clock.Used = 3 }, LooseClock, Usable, "3 edges only"},
		"edges that disagree":     {func(in *Input) { in.Clock.Rejected = 60 }, LooseClock, Doubtful, "60 of 100"},
		"clock rate of 400 ppm":   {func(in *Input) { in.Clock.B, in.Setup.Timebase.UTickHz = 1-400e-6, 50e-6 }, WrongRate, Doubtful, "0.04 % off"},
		"wrong clock rate":        {func(in *Input) { in.Clock.B = 1.002 }, WrongRate, Doubtful, "0.2 % off"},
		"uncertain window":        {func(in *Input) { in.Result.Budget[1].U = 5 }, LooseEdges, Usable, "4 % of the energy"},
		"a window of edges":       {func(in *Input) { in.Result.Budget[1].U = 20 }, LooseEdges, Doubtful, "16 % of the energy"},
		"nobody calibrated it":    {func(in *Input) { in.Setup.Channels[1].UGain = 0 }, Uncalibrated, Doubtful, "channel CH3 has no stated uncertainty"},
		"uncertain":               {func(in *Input) { in.Result.Total.U = 100 }, TooUncertain, Doubtful, "40 % of the energy"},
		"nothing but uncertainty": {func(in *Input) { in.Result.Total.U = 300 }, TooUncertain, Void, "120 %"},
		"a meter that looks away": {func(in *Input) { in.Setup.Response = measure.Response{Window: 0.025, Update: 0.1} }, LooksAway, Doubtful, "25 ms of every 100 ms"},
		"a lag that ends early":   {func(in *Input) { in.Setup.Response = measure.Response{Tau: 0.0132, Update: 0.1} }, LooksAway, Doubtful, "sees 26.4 ms of every 100 ms"},
		"single moments":          {func(in *Input) { in.Setup.Response = measure.Response{Update: 0.1} }, LooksAway, Doubtful, "sees single moments, 100 ms apart"},
		"expired": {
			calibrated(t, 0.01, time.Date(2027, 1, 6, 0, 0, 0, 0, time.UTC)), Expired, Usable,
			"(gain of 2026-01-05) expired on 2027-01-05: ± U takes the nominal uncertainty of its channels; calibrate again with wattmark calibrate gain",
		},
		"aliasing": {func(in *Input) {
			in.Result.Budget = append(in.Result.Budget, measure.Contribution{Source: measure.Aliasing, U: 1})
		}, Aliased, Usable, "pauses between launches more or less often than the time does: the energy may be off by 0.8 %"},
		"beats": {func(in *Input) {
			in.Result.Budget = append(in.Result.Budget, measure.Contribution{Source: measure.Beats, U: 1})
		}, Aliased, Usable, "if it is one, the energy may be off by 0.8 %"},
		"much aliasing": {func(in *Input) {
			in.Result.Budget = append(in.Result.Budget, measure.Contribution{Source: measure.Aliasing, U: 15})
		}, Aliased, Doubtful, "off by 12 %"},
		"expired, and no nominal u": {calibrated(t, 0, time.Date(2027, 1, 6, 0, 0, 0, 0, time.UTC)), Expired, Doubtful, "± U is too small"},
	} {
		t.Run(name, func(t *testing.T) {
			in := clean()
			c.change(&in)
			v := Judge(in)
			if v.Level != c.level || len(v.Reasons) != 1 || v.Reasons[0].Cause != c.cause {
				t.Fatalf("%+v: want %v for %q and nothing else", v, c.level, c.cause)
			}
			if !strings.Contains(v.Reasons[0].Text, c.text) {
				t.Errorf("%q: want %q in it", v.Reasons[0].Text, c.text)
			}
		})
	}
}

// What is not wanted is not missed, and what lies outside is not counted.
func TestRulesThatDoNotApply(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"no marker wanted": func(in *Input) { in.Marker, in.Markers, in.Clock = marker.Spec{}, nil, nil },
		"the plain pattern was played": func(in *Input) {
			in.Marker = marker.Spec{Code: marker.UpDown}
			for i := range in.Markers {
				in.Markers[i].Fallback = true
			}
		},
		"events elsewhere": func(in *Input) {
			in.Events = []measure.Event{
				{Kind: measure.EventResync, FirstScan: 20_001},
				{Kind: measure.EventOverflow, FirstScan: 3},
				{Kind: measure.EventNote, FirstScan: 15_000},
				{Kind: measure.EventOverRange, FirstScan: 15_000, Scans: 3, Channel: -1},
			}
		},
		"an overflow before the first scan": func(in *Input) {
			in.Events = []measure.Event{{Kind: measure.EventOverflow, FirstScan: 9_999, Scans: 1}}
		},
		"a meter that sees all": func(in *Input) { in.Setup.Response = measure.Response{Window: 0.1, Update: 0.1} },
	} {
		in := clean()
		change(&in)
		if v := Judge(in); v.Level != Good {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// The gravest reason decides and comes first.
func TestTheGravestDecides(t *testing.T) {
	in := clean()
	in.Setup.Missing = []string{"pcie_3v3"}
	in.Clock = nil
	in.Result.Gaps, in.Result.Lost = 1, 90_000
	v := Judge(in)
	if v.Level != Void || len(v.Reasons) != 3 || v.Reasons[0].Cause != LostScans || v.Reasons[2].Cause != MissingRail {
		t.Errorf("%+v", v)
	}
	if l := Level(9).String(); l != "level(9)" {
		t.Errorf("an unknown level is %q", l)
	}
}

// Each end of a range that can be told is told.
func TestRangeEnd(t *testing.T) {
	for _, c := range []struct {
		ch   measure.Channel
		want string
	}{
		{measure.Channel{Unit: measure.UnitVolt, Gain: 1e-3, MinCount: 0, MaxCount: 10_000}, "+10 V"},
		{measure.Channel{Unit: measure.UnitVolt, Gain: -1e-3, MinCount: 0, MaxCount: 10_000}, "-10 V"},
		{measure.Channel{Unit: measure.UnitAmpere, Gain: 0.01, Offset: -20, MinCount: 0, MaxCount: 4000}, "±20 A"},
		{measure.Channel{Unit: measure.UnitAmpere, Gain: 0.01, Offset: -10, MinCount: 0, MaxCount: 4000}, "-10 A or +30 A"},
		{measure.Channel{Unit: measure.UnitWatt, Gain: 0.1, MinCount: -1, MaxCount: 6000}, "+600 W"},
	} {
		if got := rangeEnd(c.ch); got != c.want {
			t.Errorf("%+v: %q, want %q", c.ch, got, c.want)
		}
	}
}

// TestLoneReadings: lone readings make a result doubtful from a quarter of U on.
func TestLoneReadings(t *testing.T) {
	for share, want := range map[float64]Level{0.2: Usable, 0.3: Doubtful} {
		r := measure.Result{Samples: 1000, Total: measure.Estimate{Energy: 100, U: 2}}
		u := measure.Joule(share * 2 / math.Sqrt(3))
		r.Budget = []measure.Contribution{{Source: measure.LoneReadings + "gpu.i", U: u}}
		v := Judge(Input{Setup: &measure.Setup{}, Result: &r})
		if v.Level != want || v.Reasons[0].Cause != LoneReadings || v.Reasons[0].Subject != "gpu.i" ||
			!strings.Contains(v.Reasons[0].Text, fmt.Sprintf(", %.3g %% of U:", 100*share)) {
			t.Errorf("share %v: %+v, want %v", share, v, want)
		}
	}
}

// A verdict of an energy of zero has no share, which JSON could not hold.
func TestNoEnergyIsVoid(t *testing.T) {
	in := clean()
	in.Result.Total = measure.Estimate{U: 3}
	in.Result.Budget = append(in.Result.Budget, measure.Contribution{Source: measure.Aliasing, U: 15})
	v := Judge(in)
	if _, err := json.Marshal(v); err != nil {
		t.Error(err)
	}
	if v.Level != Void || len(v.Reasons) != 1 || v.Reasons[0].Cause != TooUncertain {
		t.Errorf("%+v", v)
	}
}

// The page's table has every cause.
func TestCausesAreOnThePage(t *testing.T) {
	source, err1 := os.ReadFile("quality.go")
	page, err2 := os.ReadFile("../../docs/calibration.md")
	causes := regexp.MustCompile(`Cause = "(.+)"`).FindAllStringSubmatch(string(source), -1)
	if err1 != nil || err2 != nil || len(causes) < 20 {
		t.Fatal(err1, err2, len(causes))
	}
	for _, c := range causes {
		if !strings.Contains(string(page), "`"+c[1]+"`") {
			t.Errorf("the table of the verdict in docs/calibration.md lacks `%s`", c[1])
		}
	}
}
