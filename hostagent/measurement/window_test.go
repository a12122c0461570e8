package measurement

import (
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/internal/machineid"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

var day = time.Date(2026, 3, 1, 12, 0, 0, 250_000_000, time.UTC)

func after(s float64) time.Time { return day.Add(time.Duration(math.Round(s * 1e9))) }

func TestSensorEnergy(t *testing.T) {
	read := func(pairs ...float64) []store.Reading {
		out := []store.Reading{{Method: sensor.AveragePower, At: day, Value: 1e6}} // another method
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, store.Reading{Method: sensor.InstantPower, At: after(pairs[i]), Value: pairs[i+1]})
		}
		return out
	}
	for _, tc := range []struct {
		name     string
		readings []store.Reading
		from, to float64
		want     float64
		fail     string
	}{
		{"constant", read(0, 100, 1, 100, 2, 100), 0.5, 1.5, 100, ""},
		{"ramp, ends interpolated", read(0, 0, 1, 100, 2, 200), 0.5, 1.5, 100, ""},
		{"between two readings", read(0, 0, 1, 100), 0.25, 0.75, 25, ""},
		{"ends on readings", read(0, 100, 1, 300, 2, 100), 0, 2, 400, ""},
		{"uneven intervals", read(0, 10, 0.1, 10, 2, 30), 0, 2, 1 + 1.9*20, ""},
		{"out of order", read(2, 200, 0, 0, 1, 100), 0.5, 1.5, 100, ""},
		{"no reading outside of it counts", read(-9, 1e9, 0, 100, 1, 100, 2, 100, 9, 1e9), 0.5, 1.5, 100, ""},
		{"held at the ends", read(0, 100, 1, 100), -0.2, 1.2, 140, ""},
		{"begins too late", read(0, 100, 1, 100), -0.3, 1, 0, "none"},
		{"ends too early", read(0, 100, 1, 100), 0, 1.5, 0, "none"},
		{"one reading", read(0, 100), 0, 1, 0, "none"},
		{"an empty window", read(0, 100, 1, 100), 1, 1, 0, "none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := sensedOf(t, tc.readings, tc.from, tc.to)
			if tc.fail != "" {
				if got != (sensed{}) {
					t.Errorf("got %+v", got)
				}
				return
			}
			if got.energy == nil || math.Abs(float64(*got.energy)-tc.want) > 1e-9 {
				t.Errorf("got %+v; want %v J", got, tc.want)
			}
		})
	}
	usage := []store.Reading{
		{Method: sensor.UsagePower, At: after(0), Value: 50},
		{Method: sensor.UsagePower, At: after(1), Value: 50},
	}
	if e := sensedOf(t, usage, 0, 1); e.energy == nil || *e.energy != 50 ||
		e.method != sensor.UsagePower {
		t.Errorf("without instant power: got %+v", e)
	}
	if e := sensedOf(t, nil, 0, 1); e != (sensed{}) {
		t.Errorf("without readings: got %+v", e)
	}
}

// sensed is the energy by the GPU's own sensor, and the method of its readings.
type sensed struct {
	energy *measure.Joule
	method string
}

// sensedOf stores readings, in any order, and integrates them over a window.
func sensedOf(t *testing.T, readings []store.Reading, from, to float64) sensed {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "power.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	id, err := db.BeginTask(t.Context(), store.NewTask{Name: "x", User: "ada", Launched: day})
	if err == nil {
		err = db.PutReadings(t.Context(), id, readings)
	}
	if err != nil {
		t.Fatal(err)
	}
	var got sensed
	work := []store.Kernel{{Start: after(from), End: after(to)}}
	got.energy, got.method, err = overSensor(t.Context(), db, id, nil, work, Window{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

var spec = marker.Spec{Code: marker.M31, Chip: 1e-3, Guard: 4, TagBits: 4, Tag: 5}

func found(kind marker.Kind, t measure.Seconds) marker.Found {
	f := marker.Found{Kind: kind, T: t, U: 1e-6, Begin: t - 4e-3, End: t + 43e-3, TagOK: true}
	for c := range 5 {
		f.Edges = append(f.Edges, marker.Edge{Chip: c, T: t + measure.Seconds(c)*1e-3, U: 2e-6})
	}
	return f
}

func TestBoundIsByTheTasksOwnMarkers(t *testing.T) {
	foreign := func(f marker.Found) marker.Found { f.TagOK = false; return f }
	plain := func(f marker.Found) marker.Found { f.TagOK, f.Fallback = false, true; return f }
	s1, s2, e1, e2 := found(marker.Start, 1), found(marker.Start, 2), found(marker.Stop, 3), found(marker.Stop, 4)
	for _, tc := range []struct {
		name        string
		found       []marker.Found
		start, stop measure.Seconds // 0: none
		timed       int
	}{
		{"both", []marker.Found{s1, e1}, 1, 3, 2},
		{"first start, last stop", []marker.Found{s1, s2, e1, e2}, 1, 4, 2},
		{"another task's are passed over", []marker.Found{foreign(s1), s2, e1, foreign(e2)}, 2, 3, 2},
		{"a stop before the start is another's", []marker.Found{found(marker.Stop, 0.5), s1}, 1, 0, 1},
		{"the plain pattern as a last resort", []marker.Found{plain(s1), s2, plain(e1)}, 2, 3, 1},
		{"nothing but the plain pattern", []marker.Found{plain(s1), plain(e1)}, 1, 3, 0},
		{"stop alone", []marker.Found{e1}, 0, 3, 1},
		{"nothing", nil, 0, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := bound(tc.found)
			at := func(f *marker.Found) measure.Seconds {
				if f == nil {
					return 0
				}
				return f.T
			}
			if at(b.start) != tc.start || at(b.stop) != tc.stop || len(b.timed(spec, nil)) != tc.timed {
				t.Errorf("got %v to %v, %d with edges", at(b.start), at(b.stop), len(b.timed(spec, nil)))
			}
		})
	}
	up := marker.Spec{Code: marker.UpDown, Chip: 1e-3, Guard: 4}
	if b := bound([]marker.Found{plain(s1), plain(e1)}); len(b.timed(up, nil)) != 2 {
		t.Error("where the plain pattern was played, its edges count")
	}
}

// playedAs is what a host plays whose clock reads host when the meter reads meter.
func playedAs(host func(meter float64) time.Time, kind marker.Kind, meter float64) []store.Played {
	var out []store.Played
	for c := -4; c < 39; c++ {
		out = append(out, store.Played{Kind: kind, Chip: c, At: host(meter + float64(c)*1e-3)})
	}
	return out
}

func TestClocksAreRelatedByEveryEdge(t *testing.T) {
	// The meter runs 80 ppm fast, and counts from 0.
	host := func(m float64) time.Time { return after(100 + m/(1+80e-6)) }
	played := append(playedAs(host, marker.Start, 1), playedAs(host, marker.Stop, 11)...)
	setup := &measure.Setup{}
	fit, err := relate(setup, played, []marker.Found{found(marker.Start, 1), found(marker.Stop, 11)})
	if err != nil {
		t.Fatal(err)
	}
	if fit.Used != 10 || math.Abs(fit.B-1-80e-6) > 1e-7 {
		t.Errorf("used %d edges, rate %v", fit.Used, fit.B)
	}
	got, u := fit.Meter(HostSeconds(*fit, host(5)))
	if math.Abs(float64(got)-5) > 1e-6 || u < measure.UPowerDelay || u > 2*measure.UPowerDelay {
		t.Errorf("5 s on the meter: got %v ± %v", got, u)
	}
	if back := HostTime(*fit, HostSeconds(*fit, host(5))); back.Sub(host(5)).Abs() > time.Nanosecond {
		t.Errorf("there and back: off by %v", back.Sub(host(5)))
	}
	// A reading that is a mean is of the middle of its time; of a sensor with values in between, half of it is in doubt.
	setup.Rails, setup.Channels = []measure.Rail{{X: 0, Y: -1}}, make([]measure.Channel, 1)
	setup.Response.Window = 25e-3
	for update, want := range map[measure.Seconds]measure.Seconds{0: u, 0.1: 12.5e-3} {
		setup.Response.Update = update
		slow, err := relate(setup, played, []marker.Found{found(marker.Start, 1), found(marker.Stop, 11)})
		if err != nil {
			t.Fatal(err)
		}
		if _, got := slow.Meter(HostSeconds(*slow, host(5))); got < want || got > 1.04*want {
			t.Errorf("with a window of 25 ms each %v: ± %v", update, got)
		}
	}
	if _, err := relate(setup, nil, []marker.Found{found(marker.Start, 1)}); err == nil {
		t.Error("related without a marker that was played")
	}
}

// A clock beyond its stated uncertainty is followed all the same, and told.
func TestAMeterWhoseClockIsOff(t *testing.T) {
	for name, c := range map[string]struct {
		u, off float64 // relative
		told   string
	}{
		"within what is stated": {u: 5e-4, off: 529e-6},
		"an ordinary quartz":    {u: 0, off: 80e-6},
		"too fast":              {u: 1e-4, off: 900e-6, told: "+900 ppm"},
		"far too slow":          {u: 5e-4, off: -3e-3, told: "-3000 ppm"},
	} {
		t.Run(name, func(t *testing.T) {
			setup := &measure.Setup{Timebase: measure.Timebase{TickHz: 1e6, UTickHz: c.u, TicksPerScan: 50}}
			host := func(m float64) time.Time { return after(100 + m/(1+c.off)) }
			played := append(playedAs(host, marker.Start, 1), playedAs(host, marker.Stop, 11)...)
			fit, err := relate(setup, played, []marker.Found{found(marker.Start, 1), found(marker.Stop, 11)})
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(fit.B-1-c.off) > 1e-6 || fit.Rejected > 0 {
				t.Errorf("rate %v with %d edges rejected, want %v", fit.B-1, fit.Rejected, c.off)
			}
			if got := offRate(setup.Timebase, fit); (got == "") != (c.told == "") || !strings.Contains(got, c.told) {
				t.Errorf("told %q, want %q", got, c.told)
			}
		})
	}
	if got := offRate(measure.Timebase{}, nil); got != "" {
		t.Errorf("without a fit: %q", got)
	}
	unsure := &clock.Fit{B: 1.002, VarB: 1e-6}
	if got := offRate(measure.Timebase{UTickHz: 1e-4}, unsure); got != "" {
		t.Errorf("a fit that cannot tell: %q", got)
	}
}

// With both clocks off by their standard uncertainties, errors of the meter's rate agree with rateU.
func TestRateOfTwoClocks(t *testing.T) {
	for name, c := range map[string]struct {
		stated, meter, fit float64 // standard uncertainty, standard deviation, standard uncertainty of the fit's rate
	}{
		"alike":          {50e-6, 50e-6, 0},
		"a better meter": {5e-6, 5e-6, 0},
		"a worse meter":  {5e-4, 5e-4, 0},
		"a short window": {50e-6, 50e-6, 1e-3},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 7))
			const n = 20_000
			var squares, held float64
			for range n {
				meter := c.meter * rng.NormFloat64()
				fit := clock.Fit{B: 1 + meter - clock.HostRate*rng.NormFloat64() + c.fit*rng.NormFloat64(), VarB: c.fit * c.fit}
				z := meter / rateU(c.stated, &fit, playedAs(after, marker.Start, 1), nil)
				squares += z * z / n
				if math.Abs(z) <= 2 {
					held += 1. / n
				}
			}
			if rms := math.Sqrt(squares); rms < 0.9 || rms > 1.05 || held < 0.95 {
				t.Errorf("errors of %.3f u, rms, %.1f %% within 2 u", rms, 100*held)
			}
		})
	}
	if u := rateU(1e-4, nil, nil, nil); u != 0 {
		t.Errorf("without a fit %v", u)
	}
}

// The soonest mark that this machine asked for bounds the clocks' error; those of others say nothing.
func TestHardwareMarks(t *testing.T) {
	for name, c := range map[string]struct {
		late    []float64 // of marks behind their request, in s
		machine string
		want    string
	}{
		"late":      {[]float64{0.2, 4e-4, 0.05}, machineid.Boot(), "the soonest of 3 hardware marks came 0.40 ms ± 0.00 ms after"},
		"too soon":  {[]float64{1e-3, -2e-3}, machineid.Boot(), "one of the two clocks is off"},
		"elsewhere": {[]float64{1e-3}, "another", ""},
		"none":      {nil, "", ""},
	} {
		task := &store.Task{}
		task.Setup.Timebase = measure.Timebase{TickHz: 1e6, TicksPerScan: 50}
		host := func(m float64) time.Time { return after(100 + m) }
		played := append(playedAs(host, marker.Start, 1), playedAs(host, marker.Stop, 11)...)
		fit, err := relate(&task.Setup, played, []marker.Found{found(marker.Start, 1), found(marker.Stop, 11)})
		if err != nil {
			t.Fatal(err)
		}
		fit.VarA, fit.VarB, fit.CovAB = 0, 0, 0
		for i, late := range c.late {
			at := 2 + float64(i)
			m := measure.HardwareMark{Asked: host(at - late), Machine: c.machine}
			task.Events = append(task.Events, m.Event(uint64(at*20e3)), measure.Event{Kind: measure.EventNote, Detail: "else"})
		}
		if got := marked(task, fit); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := marked(&store.Task{}, nil); got != "" {
		t.Errorf("without a fit: %q", got)
	}
}

func TestChooseTheWindow(t *testing.T) {
	host := func(m float64) time.Time { return after(100 + m) }
	played := append(playedAs(host, marker.Start, 1), playedAs(host, marker.Stop, 3)...)
	start, stop := found(marker.Start, 1), found(marker.Stop, 3)
	both := bounds{&start, &stop}
	fit, err := relate(&measure.Setup{}, played, []marker.Found{start, stop})
	if err != nil {
		t.Fatal(err)
	}
	kernels := []store.Kernel{
		{Name: "b", Start: host(2), End: host(2.5)},
		{Name: "a", Start: host(1.5), End: host(2.1)},
	}
	noFit := errors.New("no fit")
	for _, tc := range []struct {
		name     string
		fit      *clock.Fit
		fitErr   error
		kernels  []store.Kernel
		b        bounds
		from, to float64
		note     string // or the error, where there is no window

		estimated bool // the length of a gap between the markers
	}{
		{"the work's own interval", fit, nil, kernels, both, 1.5, 2.5, "", false},
		{"with the stop marker lost", fit, nil, kernels, bounds{&start, nil}, 1.5, 2.5, "", false},
		{"without a fit", nil, noFit, kernels, both, 1.043, 2.996, "no fit", false},
		{"without kernels", fit, nil, nil, both, 1.043, 2.996, "not known when the work ran", false},
		{
			"a fit that cannot be", fit, nil,
			[]store.Kernel{{Start: host(0.5), End: host(2)}},
			both, 1.043, 2.996,
			"outside the markers", false,
		},
		{
			"markers of another run", fit, nil,
			[]store.Kernel{{Start: host(0.5), End: host(4)}},
			both, 0, 0,
			"another run's", false,
		},
		{
			"a meter that was away for longer than estimated", fit, nil,
			[]store.Kernel{{Start: host(0.5), End: host(4)}},
			both, 1.043, 2.996,
			"outside the markers", true,
		},
		{"one marker and no fit", nil, noFit, kernels, bounds{&start, nil}, 0, 0, "no fit", false},
		{"nothing", nil, noFit, kernels, bounds{}, 0, 0, "no marker was found", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := choose(tc.fit, tc.fitErr, tc.kernels, tc.b, tc.estimated)
			if tc.to == 0 {
				if err == nil || !strings.Contains(err.Error(), tc.note) {
					t.Errorf("got %+v, %v", p, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(float64(p.From)-tc.from) > 1e-6 || math.Abs(float64(p.To)-tc.to) > 1e-6 {
				t.Errorf("got %v to %v", p.From, p.To)
			}
			if (p.note == "") != (tc.note == "") || !strings.Contains(p.note, tc.note) {
				t.Errorf("note: %q", p.note)
			}
			if p.edges.UFrom <= 0 || p.edges.UTo <= 0 {
				t.Errorf("edges: %+v", p.edges)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	v := verdict{state: store.Complete}
	v.note("a")
	if v.state != store.Complete {
		t.Error("a note changed the state")
	}
	v.untrimmed("b")
	if v.state != store.Untrimmed {
		t.Errorf("got %v", v.state)
	}
	v.incomplete("c %d", 1)
	v.untrimmed("d")
	if v.state != store.Incomplete || strings.Join(v.reasons, "") != "abc 1d" {
		t.Errorf("got %v %v", v.state, v.reasons)
	}
}

func TestNamesThatATerminalWouldObey(t *testing.T) {
	for name, c := range map[string]Config{
		"name": {Name: "\x1b[2J", User: "ann"}, "user": {Name: "gemm", User: "ann\r"},
		"holder": {Name: "gemm", Holder: "caf\xe9"},
	} {
		c.DB, c.Monitor, c.Device = struct{ Store }{}, struct{ Monitor }{}, struct{ gpu.Device }{}
		if _, err := Measure(t.Context(), c, nil); !errors.Is(err, measure.ErrText) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
