package assemble

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// rig feeds an assembler as a device with 50 µs scans and a 1024 µs stamp would,
// read in batches of 2 ms that arrive with some delay.
type rig struct {
	t     *testing.T
	asm   *Assembler
	out   *montest.Collector
	epoch time.Time
	rng   *rand.Rand
	delay func() time.Duration
}

func newRig(t *testing.T) *rig {
	tb := measure.Timebase{TickHz: 1e6, TicksPerScan: 50, Stamped: true}
	r := &rig{
		t: t, out: &montest.Collector{Timebase: tb, Channels: 1}, epoch: time.Unix(1000, 0),
		rng: rand.New(rand.NewPCG(1, 2)),
	}
	r.asm = New(Config{
		Modulus: 1024, MinStep: 45, MaxStep: 55, Grid: 50, FlushTicks: 10_000,
		Lost: func(d int64) (uint64, bool) { return uint64(max(0, (d+25)/50-1)), true },
	}, instrument.Inputs{Timebase: tb, Channels: make([]measure.Channel, 1)}, instrument.SinkOf(r.out))
	r.delay = func() time.Duration { return time.Duration(r.rng.IntN(200)) * time.Microsecond }
	return r
}

// scan is the device's scan number n, 7 µs after a turn.
func (r *rig) scan(n int64) {
	r.t.Helper()
	if err := r.asm.Scan((n*50+7)%1024, []measure.Count{measure.Count(n % 1000)}); err != nil {
		r.t.Fatal(err)
	}
}

// read delivers scans [from, to) in one read that ends at the device's time of
// the last.
func (r *rig) read(from, to int64, late time.Duration) {
	r.t.Helper()
	r.asm.Arrived(r.epoch.Add(time.Duration(to)*50*time.Microsecond+late+r.delay()), false)
	for n := from; n < to; n++ {
		r.scan(n)
	}
	if err := r.asm.ReadDone(); err != nil {
		r.t.Fatal(err)
	}
}

// run reads [from, to) in batches.
func (r *rig) run(from, to int64) {
	r.t.Helper()
	for n := from; n < to; n += 40 {
		r.read(n, min(n+40, to), 0)
	}
}

func (r *rig) finish() {
	r.t.Helper()
	if err := r.asm.Flush(); err != nil {
		r.t.Fatal(err)
	}
}

// truth checks that every scan that came out has the index and time of the
// device's.
func (r *rig) truth() {
	r.t.Helper()
	ticks, counts := r.out.Ticks(), r.out.Counts(0)
	for i, s := range r.out.Scans() {
		if ticks[i] != int64(s)*50 || counts[i] != measure.Count(s%1000) {
			r.t.Fatalf("scan %d: tick %d, count %d", s, ticks[i], counts[i])
		}
	}
}

func TestUnbrokenStream(t *testing.T) {
	r := newRig(t)
	r.run(0, 20_000)
	r.finish()
	r.truth()
	if n := len(r.out.Scans()); n != 20_000 {
		t.Errorf("%d scans", n)
	}
	if e := r.out.Events(0); len(e) != 0 {
		t.Errorf("events: %+v", e)
	}
}

func TestGapsOfEverySize(t *testing.T) {
	for _, lost := range []int64{1, 2, 7, 19, 20, 21, 40, 41, 100, 1000, 5120, 20_480, 100_000} {
		r := newRig(t)
		r.run(0, 10_000)
		r.run(10_000+lost, 20_000+lost)
		r.finish()
		r.truth()
		gaps := r.out.Events(measure.EventGap)
		if len(gaps) != 1 || gaps[0].FirstScan != 10_000 || gaps[0].Scans != uint64(lost) {
			t.Errorf("%d lost: gaps %+v", lost, gaps)
			continue
		}
		// Below a turn of the stamp its size is certain, above it is the host's estimate.
		if gaps[0].Exact != (lost < 20) {
			t.Errorf("%d lost: exact %v", lost, gaps[0].Exact)
		}
	}
}

// A driver that is late, and then gets everything at once, has lost nothing.
func TestLateReaderIsNoGap(t *testing.T) {
	r := newRig(t)
	r.run(0, 10_000)
	for n := int64(10_000); n < 18_000; n += 113 { // 400 ms of backlog, read in full buffers
		r.asm.Arrived(r.epoch.Add(18_000*50*time.Microsecond), true)
		for k := n; k < min(n+113, 18_000); k++ {
			r.scan(k)
		}
		if err := r.asm.ReadDone(); err != nil {
			t.Fatal(err)
		}
	}
	r.run(18_000, 30_000)
	r.finish()
	r.truth()
	if len(r.out.Scans()) != 30_000 || len(r.out.Events(0)) != 0 {
		t.Errorf("%d scans, events %+v", len(r.out.Scans()), r.out.Events(0))
	}
}

// A driver that did not run for a while, and whose machine stays busy, sees lags
// that come down slowly and never agree with each other: nothing was lost.
func TestBusyMachineIsNoGap(t *testing.T) {
	for _, stopped := range []int64{100, 1000, 1600, 4000, 10_000} { // scans
		r := newRig(t)
		r.run(0, 10_000)
		at, late := time.Time{}, func() time.Duration { return time.Duration(1+r.rng.IntN(40)) * time.Millisecond }
		for n := int64(10_000); n < 40_000; n += 40 {
			due := r.epoch.Add(time.Duration(max(n+40, 10_000+stopped)) * 50 * time.Microsecond).Add(late())
			if due.Before(at) {
				due = at
			}
			at = due
			r.asm.Arrived(at, false)
			for k := n; k < n+40; k++ {
				r.scan(k)
			}
			if err := r.asm.ReadDone(); err != nil {
				t.Fatal(err)
			}
		}
		r.finish()
		r.truth()
		if len(r.out.Scans()) != 40_000 || len(r.out.Events(0)) != 0 {
			t.Errorf("stopped for %d scans: %d scans, events %+v", stopped, len(r.out.Scans()), r.out.Events(0))
		}
	}
}

// A silence of exactly a number of turns leaves stamps that fit.
func TestStallOfWholeTurns(t *testing.T) {
	r := newRig(t)
	r.run(0, 10_000)
	const lost = 512*5 - 1 // 125 turns later the next stamp fits
	r.run(10_000+lost, 20_000)
	r.finish()
	r.truth()
	if r.out.Lost() != lost {
		t.Errorf("gaps %+v, want %d lost", r.out.Events(measure.EventGap), lost)
	}
}

func TestCorruptedStampIsRepaired(t *testing.T) {
	for bit := range 10 {
		r := newRig(t)
		r.run(0, 4000)
		r.asm.Arrived(r.epoch.Add(4040*50*time.Microsecond), false)
		for n := int64(4000); n < 4040; n++ {
			stamp := (n*50 + 7) % 1024
			if n == 4020 {
				stamp ^= 1 << bit
			}
			if err := r.asm.Scan(stamp, []measure.Count{measure.Count(n % 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.asm.ReadDone(); err != nil {
			t.Fatal(err)
		}
		r.run(4040, 8000)
		r.finish()
		if n := len(r.out.Scans()); n != 8000 {
			t.Errorf("bit %d: %d scans", bit, n)
		}
		ticks := r.out.Ticks()
		if last := ticks[len(ticks)-1]; last != 7999*50 {
			t.Errorf("bit %d: last tick %d, want %d: the error stayed", bit, last, 7999*50)
		}
		if g := r.out.Events(measure.EventGap); len(g) != 0 {
			t.Errorf("bit %d: gaps %+v", bit, g)
		}
		if d := ticks[4020] - 4020*50; d < -5 || d > 5 {
			t.Errorf("bit %d: the scan itself is %d µs off", bit, d)
		}
	}
}

func TestRepeatedScanIsDropped(t *testing.T) {
	r := newRig(t)
	r.run(0, 100)
	r.scan(99)
	r.run(100, 1000)
	r.finish()
	r.truth()
	if len(r.out.Scans()) != 1000 || len(r.out.Events(measure.EventNote)) != 1 {
		t.Errorf("%d scans, events %+v", len(r.out.Scans()), r.out.Events(0))
	}
}

func TestSkippedBytesAreToldOnceABlock(t *testing.T) {
	r := newRig(t)
	r.asm.Skipped(9) // before the first scan: the middle of a frame, no fault
	r.run(0, 1000)
	for range 5 {
		r.asm.Skipped(3)
	}
	r.run(1000, 2000)
	r.finish()
	e := r.out.Events(0)
	if len(e) != 1 || e[0].Kind != measure.EventResync || e[0].FirstScan != 1000 {
		t.Errorf("events %+v", e)
	}
}

// A host whose clock is no finer than a turn must not invent losses.
func TestJitteryHostDoesNotInventLosses(t *testing.T) {
	r := newRig(t)
	r.delay = func() time.Duration { return time.Duration(r.rng.IntN(8000)) * time.Microsecond }
	r.run(0, 40_000)
	for k := range int64(20) { // a scan lost now and then
		from := 40_000 + k*4000
		r.run(from+1, from+4000)
	}
	r.finish()
	r.truth()
	if r.out.Lost() != 20 {
		t.Errorf("%d lost, want 20: %+v", r.out.Lost(), r.out.Events(measure.EventGap))
	}
}

func TestSinkErrorEndsTheStream(t *testing.T) {
	r := newRig(t)
	r.out.Channels = 3 // it will refuse every block
	var err error
	for n := int64(0); err == nil && n < 4000; n++ {
		r.asm.Arrived(r.epoch.Add(time.Duration(n)*50*time.Microsecond), false)
		if err = r.asm.Scan((n*50)%1024, []measure.Count{0}); err == nil {
			err = r.asm.ReadDone()
		}
	}
	if err == nil {
		t.Error("the sink's error was swallowed")
	}
}

func TestNoAllocationPerScan(t *testing.T) {
	a := New(Config{
		Modulus: 1024, MinStep: 45, MaxStep: 55, FlushTicks: 10_000,
		Lost: func(int64) (uint64, bool) { return 0, true },
	}, instrument.Inputs{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 50, Stamped: true}, Channels: make([]measure.Channel, 8),
	}, instrument.SinkOf(discard{}))
	counts := make([]measure.Count, 8)
	n, at := int64(0), time.Unix(1000, 0)
	allocs := testing.AllocsPerRun(100, func() {
		at = at.Add(5 * time.Millisecond)
		a.Arrived(at, false)
		for range 100 {
			n++
			_ = a.Scan(n*50%1024, counts)
		}
		_ = a.ReadDone()
	})
	if allocs > 0 {
		t.Errorf("%v allocations in 100 scans", allocs)
	}
}

type discard struct{}

func (discard) Block(*measure.Block) error { return nil }
func (discard) Event(measure.Event) error  { return nil }
