package wt300

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	scpiface "github.com/wattmark/wattmark/monitor/emulator/scpi"
	wt300face "github.com/wattmark/wattmark/monitor/emulator/wt300"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/scpi"
)

type rig struct {
	board *board.Board
	face  *wt300face.Face
	at    string
	pull  func()
	dev   *Device
}

// rails are on the elements in this order.
var rails = []string{"aux_12v_1", "aux_12v_2", "pcie_12v"}

// options are the elements of a model.
func options(model string) Options {
	o := Defaults()
	o.Elements, o.Timeout = nil, 300*time.Millisecond
	for k, n := range elements[model] {
		o.Elements = append(o.Elements, Element{n, rails[k]})
	}
	return o
}

// build makes a meter on a board that is busy for 100 s.
func build(t *testing.T, cfg wt300face.Config) *rig {
	t.Helper()
	r := &rig{}
	var err error
	if r.board, err = board.New(board.Config{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	loads := []load.State{load.Compute, load.Sleep, load.Memory, load.ActiveIdle, load.Half}
	for i := range 300 {
		if _, err := r.board.SetLoad(time.Duration(i)*337*time.Millisecond, loads[i%len(loads)]); err != nil {
			t.Fatal(err)
		}
	}
	if cfg.Model == "" {
		cfg.Model = "WT310"
	}
	epoch := time.Now()
	cfg.Rails, cfg.Now = rails[:len(elements[cfg.Model])], func() time.Duration { return time.Since(epoch) }
	if r.face, err = wt300face.New(r.board, cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// emulate puts a meter on a TCP port of this machine.
func emulate(t *testing.T, cfg wt300face.Config, o Options) *rig {
	t.Helper()
	r := build(t, cfg)
	r.plug(t, "127.0.0.1:0")
	var err error
	o.Timeout = 20 * time.Second // a busy machine is no fault
	if r.dev, err = New("tcp:"+r.at, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.dev.Close() })
	return r
}

func (r *rig) plug(t *testing.T, at string) {
	t.Helper()
	r.at, r.pull = montest.Serve(t, at, func(ctx context.Context,
		l net.Listener,
	) error {
		return r.face.Serve(ctx, l, nil)
	})
}

// virtual runs a test in virtual time, the driver and the meter on pipes.
func virtual(t *testing.T, cfg wt300face.Config, o Options, test func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, cfg)
		var err error
		if r.dev, err = New("tcp:host:1", o); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r.dev.dial(func() net.Conn {
			mine, theirs := net.Pipe()
			go func() { _ = r.face.Run(ctx, theirs) }()
			return mine
		})
		r.open(t)
		test(t, r)
		_ = r.dev.Close()
		cancel()
	})
}

func (r *rig) open(t *testing.T) {
	t.Helper()
	if err := r.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// taker stops a stream after n scans; half way it calls then.
type taker struct {
	*montest.Collector
	n, seen int
	then    func()
	stop    func()
}

func (k *taker) Block(b *measure.Block) error {
	if err := k.Collector.Block(b); err != nil {
		return err
	}
	k.seen += b.Scans()
	if k.then != nil && k.seen >= k.n/2 {
		k.then()
		k.then = nil
	}
	if k.seen >= k.n {
		k.stop()
	}
	return nil
}

// stream takes n scans, and returns which update each read showed.
func (r *rig) stream(t *testing.T, n int, then func()) (*montest.Collector, []wt300face.Read, error) {
	t.Helper()
	in := r.dev.Inputs()
	out := &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	before := len(r.face.Reads())
	err := r.dev.Stream(ctx, instrument.SinkOf(&taker{Collector: out, n: n, then: then, stop: cancel}))
	return out, r.face.Reads()[before:], err
}

// check compares the scans that came with the updates that the meter read out, by
// their numbers and times; a negative jitter is that of a busy machine, where only
// the order is certain.
func (r *rig) check(t *testing.T, out *montest.Collector, reads []wt300face.Read, jitter time.Duration) {
	t.Helper()
	scans, ticks, in := out.Scans(), out.Ticks(), r.dev.Inputs()
	if len(reads) == 0 || len(scans) == 0 {
		t.Fatal("nothing came")
	}
	first := reads[0]
	of := map[uint64]wt300face.Read{}
	for _, read := range reads {
		of[uint64(read.Update-first.Update)] = read
	}
	for i, scan := range scans {
		read, ok := of[scan]
		if jitter < 0 {
			read, ok = reads[i], true
		}
		if !ok {
			t.Fatalf("scan %d: the meter never told of that update", scan)
		}
		if off := time.Duration(ticks[i]) - (read.End - first.End); jitter >= 0 && off.Abs() > jitter {
			t.Errorf("scan %d lies %v off", scan, off)
		}
		mean := r.board.MeanPower(read.End-r.dev.opts.Rate, read.End)
		for k := range r.dev.opts.Elements {
			want := r.board.Rail([]int{2, 3, 1}[k], mean)
			for q, v := range []float64{float64(want.V), float64(want.I), float64(want.P)} {
				c := in.Channels[perElement*k+q]
				if got := c.Value(out.Counts(perElement*k + q)[i]); math.Abs(got-v) > 1e-6*v+c.Gain {
					t.Fatalf("scan %d of %s: %v, the board had %v", scan, c.Name, got, v)
				}
			}
		}
	}
}

func TestReadsEveryUpdate(t *testing.T) {
	for _, model := range []string{"WT310", "WT332", "WT333", "WT310E"} {
		virtual(t, wt300face.Config{Model: model}, options(model), func(t *testing.T, r *rig) {
			if id := r.dev.Identity(); id.Model != model || id.Serial != "C2AB00001V" {
				t.Errorf("%+v", id)
			}
			for range 2 { // a second stream begins anew
				out, reads, err := r.stream(t, 200, nil)
				if err != nil {
					t.Fatal(err)
				}
				if e := out.Events(0); len(e) != 0 || len(out.Scans()) != len(reads) {
					t.Errorf("%+v", e)
				}
				r.check(t, out, reads, 2*time.Millisecond)
			}
		})
	}
}

// What a meter and a line can do to the readings, with the exact number of those
// that went by.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		then func(*rig)
		lost uint64
	}{
		"late, within an update": {func(r *rig) { r.face.Late(60 * time.Millisecond) }, 0},
		"a sink that is slow":    {func(*rig) { <-time.After(350 * time.Millisecond) }, 2},
		"a little slow":          {func(*rig) { <-time.After(150 * time.Millisecond) }, 0},
		"a reply that is in time, but late": {func(r *rig) {
			r.face.Inject(scpiface.Fault{Kind: scpiface.Late, Match: "VAL?", For: 230 * time.Millisecond})
		}, 1},
		"a late reply": {func(r *rig) {
			r.face.Inject(scpiface.Fault{Kind: scpiface.Late, Match: "VAL?", For: 430 * time.Millisecond})
		}, 0},
		"no reply": {func(r *rig) { r.face.Inject(scpiface.Fault{Kind: scpiface.Mute, Match: "VAL?"}) }, 0},
		"a truncated reply": {func(r *rig) {
			r.face.Inject(scpiface.Fault{Kind: scpiface.Truncate, Match: "VAL?", Bytes: 5})
		}, 0},
		"junk behind": {func(r *rig) {
			r.face.Inject(scpiface.Fault{Kind: scpiface.Junk, Match: "VAL?", Text: "\n\x00abc"})
		}, 0},
		"a line too much": {func(r *rig) {
			r.face.Inject(scpiface.Fault{Kind: scpiface.Unsolicited, Match: "VAL?", Text: "REMOTE\n"})
		}, 0},
	} {
		virtual(t, wt300face.Config{}, options("WT310"), func(t *testing.T, r *rig) {
			out, reads, err := r.stream(t, 40, func() { c.then(r) })
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			// What the meter never told of, or told and nobody heard, is missing.
			scans := out.Scans()
			missing := uint64(reads[len(reads)-1].Update-reads[0].Update) + 1 - uint64(len(scans))
			if out.Lost() != missing || c.lost > 0 && missing != c.lost {
				t.Errorf("%s: %d said to be lost, %d are missing, want %d", name, out.Lost(), missing, c.lost)
			}
			t.Logf("%s: %d missing", name, missing)
			for _, e := range out.Events(measure.EventGap) {
				if e.Exact {
					t.Errorf("%s: %+v", name, e)
				}
			}
			r.check(t, out, reads, 26*time.Millisecond)
		})
	}
}

func TestNoDataAndOverRange(t *testing.T) {
	virtual(t, wt300face.Config{}, options("WT310"), func(t *testing.T, r *rig) {
		out, _, err := r.stream(t, 40, func() { r.face.NoData(3) })
		if err != nil {
			t.Fatal(err)
		}
		gaps := out.Events(measure.EventGap)
		if len(gaps) != 3 || out.Lost() != 3 || !gaps[0].Exact || !strings.Contains(gaps[0].Detail, "no data") {
			t.Errorf("%+v", gaps)
		}
		if out, _, err = r.stream(t, 40, func() { r.face.Overload(4) }); err != nil {
			t.Fatal(err)
		}
		for c, ch := range r.dev.Inputs().Channels {
			over := 0
			for _, n := range out.Counts(c) {
				if ch.OverRange(n) {
					over++
				}
			}
			if over != 4 {
				t.Errorf("%d readings of %s are over range, want 4", over, ch.Name)
			}
		}
	})
	// A range that is too small for the load.
	o := options("WT310")
	o.AmpereRange = 5
	virtual(t, wt300face.Config{}, o, func(t *testing.T, r *rig) {
		out, reads, err := r.stream(t, 60, nil)
		if err != nil {
			t.Fatal(err)
		}
		in := r.dev.Inputs()
		over := 0
		for i, n := range out.Counts(2) {
			mean := r.board.MeanPower(reads[i].End-100*time.Millisecond, reads[i].End)
			if want := r.board.Rail(2, mean).I > 7; want != in.Channels[2].OverRange(n) {
				t.Fatalf("scan %d: over range is %v", i, !want)
			} else if want {
				over++
			}
		}
		if over == 0 || over == 60 {
			t.Errorf("%d of 60 over range", over)
		}
	})
}

// The energy of 60 s of loads lies within the stated uncertainty, with a meter that
// is off by what its maker states.
func TestEnergyWithinItsUncertainty(t *testing.T) {
	inside := 0
	const seeds = 20
	for seed := range uint64(seeds) {
		virtual(t, wt300face.Config{Model: "WT333", Seed: seed, Draw: true}, options("WT333"),
			func(t *testing.T, r *rig) {
				out, reads, err := r.stream(t, 610, nil)
				if err != nil {
					t.Fatal(err)
				}
				in := r.dev.Inputs()
				setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Response: in.Response}
				setup.Rails, setup.Missing = NaturalRails(in)
				if len(setup.Rails) != 3 {
					t.Fatal(setup.Rails)
				}
				got := montest.Energy(t, &setup, out, 0.5, 60.5)
				// A tick is the middle of the update that ended there.
				zero := reads[0].End - r.dev.opts.Rate/2
				truth, err := r.board.Energy(zero+500*time.Millisecond, zero+60_500*time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				want := truth.Rails[1] + truth.Rails[2] + truth.Rails[3]
				miss := math.Abs(float64(got.Energy - want))
				t.Logf("%v ± %v, injected %v", got.Energy, got.U, want)
				if miss <= float64(got.U) {
					inside++
				}
				if miss > 2*float64(got.U) || got.U > 0.03*got.Energy {
					t.Errorf("%v ± %v, injected %v", got.Energy, got.U, want)
				}
			})
	}
	if inside < seeds-3 {
		t.Errorf("%d of %d lie within U", inside, seeds)
	}
}

// A meter that answers no more is lost, and nothing is made up.
func TestAMuteMeter(t *testing.T) {
	virtual(t, wt300face.Config{}, options("WT310"), func(t *testing.T, r *rig) {
		out, _, err := r.stream(t, 40, func() {
			r.face.Inject(scpiface.Fault{
				Kind: scpiface.Mute, Match: "VAL?",
				Times: 100,
			})
		})
		if !errors.Is(err, instrument.ErrSilent) || !errors.Is(err, instrument.ErrDisconnected) ||
			len(out.Scans()) != 20 || out.Lost() != 0 {
			t.Errorf("%d scans, %d lost, %v", len(out.Scans()), out.Lost(), err)
		}
	})
}

// The same over a real socket, with its cable pulled and put back.
func TestUnplugAndReplug(t *testing.T) {
	t.Parallel()
	r := emulate(t, wt300face.Config{}, options("WT310"))
	at := r.at
	for range 3 {
		r.open(t)
		pull := r.pull
		out, reads, err := r.stream(t, 20, func() { go pull() })
		if !errors.Is(err, instrument.ErrDisconnected) {
			t.Fatalf("%v, want ErrDisconnected", err)
		}
		r.check(t, out, reads, -1)
		_ = r.dev.Close()
		r.pull()
		if err := r.dev.Open(t.Context()); !errors.Is(err, instrument.ErrDisconnected) {
			t.Fatalf("Open of a meter that is gone: %v", err)
		}
		r.plug(t, at)
	}
}

func TestCycles(t *testing.T) {
	r := emulate(t, wt300face.Config{}, options("WT310"))
	r.dev.quick()
	montest.Cycles(t, r.dev, 1000)
}

func TestRefusals(t *testing.T) {
	r := emulate(t, wt300face.Config{}, options("WT310"))
	for _, id := range []string{"YOKOGAWA,WT1800,1,1", "RIGOL TECHNOLOGIES,WT310,1,1", "HIOKI,PW3335,1,1"} {
		r.face.SetIdentity(id)
		if err := r.dev.Open(t.Context()); !errors.Is(err, instrument.ErrIdentity) {
			t.Errorf("%s: %v", id, err)
		}
	}
	r.face.SetIdentity("YOKOGAWA,WT310,C2,F1.04")
	r.face.Inject(scpiface.Fault{Kind: scpiface.QueueError, Match: ":INP:CURR:RANG 20", Err: scpiface.ErrRange})
	if err := r.dev.Open(t.Context()); !errors.Is(err, scpi.ErrInstrument) ||
		!strings.Contains(err.Error(), "change ampere_range") {
		t.Errorf("got %v", err)
	}
	r.open(t)
	if err := r.dev.Open(t.Context()); err == nil {
		t.Error("opened twice")
	}
	o := options("WT332")
	o.Elements[1].Element = 2
	r = emulate(t, wt300face.Config{Model: "WT332"}, o)
	if err := r.dev.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "a WT332 has [1 3]") {
		t.Errorf("got %v", err)
	}
	o = options("WT333")
	o.AmpereRange = 0.1
	r = emulate(t, wt300face.Config{Model: "WT333"}, o)
	if err := r.dev.Open(t.Context()); !errors.Is(err, scpi.ErrInstrument) ||
		!strings.Contains(err.Error(), "change ampere_range") {
		t.Errorf("got %v", err)
	}
}

// lay puts a marker on the board and returns its end and its chips' edges.
func lay(t *testing.T, b *board.Board, spec marker.Spec, kind marker.Kind,
	begin time.Duration,
) (edges map[int]measure.Seconds, end time.Duration) {
	t.Helper()
	edges = map[int]measure.Seconds{}
	chips := spec.Chips(kind)
	for i := 0; i <= len(chips); i++ {
		l := load.ActiveIdle
		if i < len(chips) {
			l = load.Sleep
			if chips[i] {
				l = load.Full
			}
		}
		end = begin + measure.Seconds(float64(i)*float64(spec.Chip)).Duration()
		if _, err := b.SetLoad(end, l); err != nil {
			t.Fatal(err)
		}
		edges[i-spec.CodeStart()] = measure.SecondsOf(end)
	}
	return edges, end
}

// play lays two markers and 7 s of work between them on an idle board.
func play(t *testing.T, b *board.Board, spec marker.Spec,
	begin time.Duration,
) (edges map[marker.Kind]map[int]measure.Seconds, from, to, end time.Duration) {
	t.Helper()
	b.Cancel(0)
	edges = map[marker.Kind]map[int]measure.Seconds{}
	edges[marker.Start], from = lay(t, b, spec, marker.Start, begin)
	from += 310 * time.Millisecond
	to = from + 7*time.Second
	for at, l := range map[time.Duration]load.State{from: load.Compute, to: load.ActiveIdle} {
		if _, err := b.SetLoad(at, l); err != nil {
			t.Fatal(err)
		}
	}
	edges[marker.Stop], end = lay(t, b, spec, marker.Stop, to+310*time.Millisecond)
	return edges, from, to, end
}

// fitted finds the markers and fits the clocks.
func fitted(t *testing.T, setup *measure.Setup, spec marker.Spec, blk *measure.Block,
	played map[marker.Kind]map[int]measure.Seconds,
) clock.Fit {
	t.Helper()
	d, err := marker.NewDetector(spec, setup)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Push(blk); err != nil {
		t.Fatal(err)
	}
	if err := d.Finish(); err != nil {
		t.Fatal(err)
	}
	found := d.Found()
	if len(found) != 2 || !found[0].TagOK || found[0].Tag != spec.Tag || !found[1].TagOK {
		t.Fatalf("found %+v", found)
	}
	var obs []clock.Obs
	for _, f := range found {
		for _, e := range f.Edges {
			if at, ok := played[f.Kind][e.Chip]; ok {
				obs = append(obs, clock.Obs{Host: at, Meter: e.T, U: e.U})
			}
		}
	}
	fit, err := clock.FitClock(obs, clock.Prior{})
	if err != nil {
		t.Fatal(err)
	}
	return fit
}

// Both markers of the sensor profile are found in ten readings a second, where
// they were played, and the energy of the work between them is right: a reading's
// tick is the middle of its average.
func TestMarkersAndTheWorkBetween(t *testing.T) {
	for seed := range uint64(6) {
		virtual(t, wt300face.Config{Seed: seed}, options("WT310"),
			func(t *testing.T, r *rig) { r.between(t, uint32(seed)) })
	}
}

func (r *rig) between(t *testing.T, tag uint32) {
	t.Helper()
	in := r.dev.Inputs()
	setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Response: in.Response}
	setup.Rails, _ = NaturalRails(in)
	spec := marker.ProfileFor(setup, tag)
	if want := marker.SensorProfile(measure.SecondsOf(r.dev.opts.Rate), tag); spec.Chip != want.Chip ||
		spec.TagBits != want.TagBits {
		t.Fatalf("%+v is not the sensor profile %+v", spec, want)
	}
	played, from, to, end := play(t, r.board, spec, 3*time.Second+time.Duration(tag)*17*time.Millisecond)
	out, reads, err := r.stream(t, int((end+3*time.Second)/r.dev.opts.Rate), nil)
	if err != nil {
		t.Fatal(err)
	}
	blk := measure.Block{Ticks: out.Ticks()}
	for c := range in.Channels {
		blk.Counts = append(blk.Counts, out.Counts(c))
	}
	fit := fitted(t, &setup, spec, &blk, played)
	m0, _ := fit.Meter(measure.SecondsOf(from))
	m1, _ := fit.Meter(measure.SecondsOf(to))
	g, err := measure.NewIntegrator(&setup, m0, m1)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Add(&blk); err != nil {
		t.Fatal(err)
	}
	res, err := g.Result(fit.Edges(measure.SecondsOf(from), measure.SecondsOf(to)))
	if err != nil {
		t.Fatal(err)
	}
	truth, err := r.board.Energy(from, to)
	if err != nil {
		t.Fatal(err)
	}
	zero := reads[0].End - r.dev.opts.Rate/2 // the tick of a reading is its middle
	off, want := (m0 - measure.SecondsOf(from-zero)).Duration(), truth.Rails[2]
	t.Logf("the work's begin is placed %v off; %v ± %v, injected %v", off, res.Total.Energy, res.Total.U, want)
	if off.Abs() > 5*time.Millisecond {
		t.Errorf("the work's begin is placed %v off", off)
	}
	if miss := math.Abs(float64(res.Total.Energy - want)); miss > float64(res.Total.U) || miss > 0.01*float64(want) {
		t.Errorf("%v ± %v, injected %v", res.Total.Energy, res.Total.U, want)
	}
}
