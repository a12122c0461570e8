package scopetest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/insttest"
	"wattmark/monitor/instrument/scope"
)

// Suite is a family with its face.
type Suite struct {
	Family *scope.Family
	New    func(*board.Board, scopeface.Config) (Face, error)
	// Shallow and Deep are depths of one channel that can be set when all are in
	// use, some thousands and some hundred thousands; 0 where the scope chooses.
	Shallow, Deep int
	// Data and State are parts of the messages that ask for points and for the
	// trigger's state.
	Data, State string
	// Another is the *IDN? of another scope of the family.
	Another string
	// Wrong are *IDN?s of other families, with the kind that the error has to name.
	Wrong map[string]string
}

// Run checks everything.
func (s *Suite) Run(t *testing.T) {
	t.Run("energy", s.energy)
	t.Run("stated uncertainty", s.uncertainty)
	t.Run("longer than memory", s.full)
	t.Run("shorter than memory", s.short)
	t.Run("faults", s.faults)
	t.Run("what cannot be mended", s.fatal)
	t.Run("wrong identity", s.identity)
	t.Run("over range", s.overRange)
	t.Run("nothing leaks", s.leaks)
}

// options are clamps of 10 mV/A and probes on the family's usual channels.
func (s *Suite) options(window time.Duration, depth int) scope.Options {
	o := s.Family.Defaults()
	o.Window, o.Depth, o.Timeout = window, depth, 400*time.Millisecond
	return o
}

// window is the time that a full memory spans.
func window(in instrument.Inputs, points int) measure.Seconds {
	return measure.Seconds(float64(points) * in.Timebase.TicksPerScan / float64(in.Timebase.TickHz))
}

func (s *Suite) energy(t *testing.T) {
	b := s.bench(t, scopeface.Config{Seed: 1}, 0)
	k, dev, err := s.take(t, b, s.options(600*time.Millisecond, s.Deep), 500*time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	in, n := dev.Inputs(), len(k.Scans())
	if took := window(in, n); took < 0.49 || took > 0.59 || k.progress != uint64(n) || k.armed != 1 || k.Lost() != 0 {
		t.Errorf("%d scans, %v of 0.5 s, progress %d, armed %d, lost %d", n, took, k.progress, k.armed, k.Lost())
	}
	from, to := measure.Seconds(0.01), measure.Seconds(0.45)
	r, want := energy(t, k, in, from, to), b.truth(t, len(in.Channels), from, to)
	rel := float64(r.Total.Energy/want) - 1
	t.Logf("%+.3f %% of %v, stated ± %v (k = 2); %d scans at %.4g S/s; %+v", 100*rel, want, r.Total.U, n, float64(in.Timebase.SampleRate()), dev.Stats())
	if math.Abs(rel) > 3e-3 {
		t.Errorf("%v measured, %v drawn: %+.3f %%", r.Total.Energy, want, 100*rel)
	}
}

// uncertainty takes scopes whose errors lie within their maker's limits: the
// energy lies within the stated uncertainty.
func (s *Suite) uncertainty(t *testing.T) {
	const scopes = 16
	outside := 0
	for seed := range uint64(scopes) {
		b := s.bench(t, scopeface.Config{Seed: seed, Draw: true}, 0)
		k, dev, err := s.take(t, b, s.options(60*time.Millisecond, s.Shallow), 70*time.Millisecond, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = dev.Close()
		in := dev.Inputs()
		from, to := measure.Seconds(0.002), measure.Seconds(0.058)
		r, want := energy(t, k, in, from, to), b.truth(t, len(in.Channels), from, to)
		if math.Abs(float64(r.Total.Energy-want)) > float64(r.Total.U) {
			outside++
			t.Logf("seed %d: %v ± %v, drawn %v", seed, r.Total.Energy, r.Total.U, want)
		}
	}
	// At 95 %, more than three of sixteen outside happens once in a thousand times.
	if outside > 3 {
		t.Errorf("%d of %d outside of the stated uncertainty", outside, scopes)
	}
}

// full: a capture longer than memory holds its first points and says exactly
// what it misses.
func (s *Suite) full(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	k, dev, err := s.take(t, b, s.options(60*time.Millisecond, s.Shallow), 400*time.Millisecond, nil)
	returned := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	held, rate := len(k.Scans()), float64(dev.Inputs().Timebase.SampleRate())
	if s.Shallow != 0 && held != s.Shallow {
		t.Errorf("%d scans, memory has %d", held, s.Shallow)
	}
	if took := window(dev.Inputs(), held); took < 0.06 || took > 0.121 {
		t.Errorf("memory spans %v, wanted 60 ms", took)
	}
	gaps := k.Events(measure.EventGap)
	if len(gaps) != 1 || gaps[0].FirstScan != uint64(held) || !strings.Contains(gaps[0].Detail, "longer window") {
		t.Fatalf("%+v", gaps)
	}
	// All that was due from the trigger to the stop, which lies between the order
	// and the end of the reading.
	least, most := k.stopped.Sub(k.at).Seconds()*rate, (returned.Sub(k.at).Seconds()+0.01)*rate
	if due := float64(held) + float64(k.Lost()); due < least-1 || due > most {
		t.Errorf("%v scans held and lost, %.0f to %.0f were due", due, least, most)
	}
}

// short: a capture shorter than memory has the points of its time, no others.
func (s *Suite) short(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	k, dev, err := s.take(t, b, s.options(600*time.Millisecond, s.Shallow), 150*time.Millisecond, nil)
	returned := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	in := dev.Inputs()
	n := len(k.Scans())
	if took := window(in, n); took < 0.1 || float64(took) > returned.Sub(k.at).Seconds()+0.01 || k.Lost() != 0 {
		t.Errorf("%d scans, %v; lost %d", n, took, k.Lost())
	}
	// What was never taken would show as a rail without power.
	from, to := measure.Seconds(0.002), window(in, n)-0.001
	r, want := energy(t, k, in, from, to), b.truth(t, len(in.Channels), from, to)
	if rel := float64(r.Total.Energy/want) - 1; math.Abs(rel) > 0.02 {
		t.Errorf("%+.2f %%", 100*rel)
	}
}

// Once takes one recording that fills a shallow memory, which must be whole.
func (s *Suite) Once(t *testing.T) { s.mended(t, nil, 0) }

// mended takes a recording in spite of a fault: not a scan is lost, not one is
// invented.
func (s *Suite) mended(t *testing.T, fault *scpiface.Fault, fragment int) {
	b := s.bench(t, scopeface.Config{}, fragment)
	k, dev, err := s.take(t, b, s.options(60*time.Millisecond, s.Shallow), 130*time.Millisecond, func(*taker) {
		if fault != nil {
			b.Inject(*fault)
		}
	})
	if err != nil || b.Pending() != 0 {
		t.Fatalf("%d faults to come, %v", b.Pending(), err)
	}
	in, n := dev.Inputs(), len(k.Scans())
	if took := window(in, n); s.Shallow != 0 && n != s.Shallow || took < 0.06 {
		t.Errorf("%d scans, %v", n, took)
	}
	r, want := energy(t, k, in, 0.002, 0.058), b.truth(t, len(in.Channels), 0.002, 0.058)
	if rel := float64(r.Total.Energy/want) - 1; math.Abs(rel) > 0.02 {
		t.Errorf("%+.2f %% (%+v)", 100*rel, dev.Stats())
	}
}

// faults of the line are all mended.
func (s *Suite) faults(t *testing.T) {
	data := func(k scpiface.Kind, bytes int) *scpiface.Fault {
		return &scpiface.Fault{Kind: k, Match: s.Data, Skip: 1, Bytes: bytes, Text: "beep\n", For: 500 * time.Millisecond}
	}
	for name, c := range map[string]struct {
		fault    *scpiface.Fault
		fragment int
	}{
		"byte by byte":                   {fragment: 1},
		"truncated block":                {fault: data(scpiface.Truncate, 700)},
		"a header and then nothing":      {fault: data(scpiface.Header, 0)},
		"no reply":                       {fault: data(scpiface.Mute, 0)},
		"late reply":                     {fault: data(scpiface.Late, 0)},
		"unsolicited text":               {fault: data(scpiface.Unsolicited, 0)},
		"junk behind a block":            {fault: data(scpiface.Junk, 0)},
		"cable pulled while it delivers": {fault: data(scpiface.Hangup, 0)},
		"cable pulled while it samples":  {fault: &scpiface.Fault{Kind: scpiface.Hangup, Match: s.State, Skip: 5}},
		"errors in the queue":            {fault: &scpiface.Fault{Kind: scpiface.QueueError, Match: s.State, Skip: 2, Times: 3, Err: scpiface.ErrRange}},
		"two replies lost":               {fault: &scpiface.Fault{Kind: scpiface.Mute, Match: s.Data, Times: 2}},
	} {
		t.Run(name, func(t *testing.T) { s.mended(t, c.fault, c.fragment) })
	}
}

func (s *Suite) fatal(t *testing.T) {
	for name, c := range map[string]struct {
		during func(b *Bench)
		refuse bool
		want   error
		says   string
	}{
		"another scope at the address": {func(b *Bench) {
			b.Inject(scpiface.Fault{Kind: scpiface.Hangup, Match: s.State, Skip: 1})
			b.SetIdentity(s.Another)
		}, false, instrument.ErrIdentity, "answers where"},
		"switched off and on": {reset, false, nil, "switched off"},
		"the sink has enough": {nil, true, errRefused, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := s.bench(t, scopeface.Config{}, 0)
			_, _, err := s.take(t, b, s.options(60*time.Millisecond, s.Shallow), 200*time.Millisecond, func(k *taker) {
				k.refuse = c.refuse
				if c.during != nil {
					k.onArmed = func() { c.during(b) }
				}
			})
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func (s *Suite) identity(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	d := s.device(t, b.Address, s.options(60*time.Millisecond, s.Shallow))
	for idn, kind := range s.Wrong {
		b.SetIdentity(idn)
		err := d.Open(t.Context())
		if !errors.Is(err, instrument.ErrIdentity) || !strings.Contains(fmt.Sprint(err), kind) {
			t.Errorf("%s: %v, want the kind %s named", idn, err, kind)
		}
	}
	b.SetIdentity(s.Another)
	if err := d.Open(t.Context()); err != nil {
		t.Errorf("%s: %v", s.Another, err)
	}
}

func (s *Suite) overRange(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	o := s.options(60*time.Millisecond, s.Shallow)
	o.Inputs["ch2"] = scope.Input{Scale: 0.5} // 12 V lie far above 2 V
	k, dev, err := s.take(t, b, o, 100*time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := dev.Inputs()
	for _, n := range k.Counts(1) {
		if !in.Channels[1].OverRange(n) {
			t.Fatalf("count %d", n)
		}
	}
	for _, n := range k.Counts(0) {
		if in.Channels[0].OverRange(n) {
			t.Fatalf("count %d of a channel within its range", n)
		}
	}
}

func (s *Suite) leaks(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	d, err := scope.New(scope.Config{
		Family: s.Family, Address: b.Address, Options: s.options(60*time.Millisecond, s.Shallow), Quiet: time.Millisecond, Stale: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	cycles := 1000
	if testing.Short() {
		cycles = 100
	}
	insttest.Cycles(t, d, cycles)
}
