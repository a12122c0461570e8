//go:build linux

package emulator_test

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/marker"
	"wattmark/monitor/bench"
	owning "wattmark/monitor/capture"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/keysightface"
	"wattmark/monitor/emulator/rigolface"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/siglentface"
	"wattmark/monitor/emulator/tekface"
	"wattmark/monitor/instrument/registry"
	"wattmark/monitor/spool"
)

// scopeFace is an emulated scope.
type scopeFace interface {
	Serve(ctx context.Context, l net.Listener, wrap func(net.Conn) io.ReadWriteCloser) error
	Begin() time.Duration
}

// scopeCase is a family: how it is set for some 25 to 50 kS/s.
type scopeCase struct {
	kind, options string
	rails         int
	rate          measure.Hertz
	face          func(*board.Board, scopeface.Config) (scopeFace, error)
}

func rigolCase(kind, depth string, rate measure.Hertz, f *rigolface.Family) scopeCase {
	return scopeCase{kind, "depth: " + depth, 2, rate, func(b *board.Board, cfg scopeface.Config) (scopeFace, error) {
		return rigolface.New(b, f, cfg)
	}}
}

// scopeBench is the documented bench file at an address, with a short window.
func scopeBench(t *testing.T, address string, c scopeCase) *bench.Bench {
	t.Helper()
	file := `
name: scope
instruments:
  - kind: ` + c.kind + `
    address: ` + address + `
    options:
      window: 1200ms
      ` + c.options + `
      inputs:
        ch1: {scale: 0.05, offset: -0.1, ampere_per_volt: 100}
        ch2: {scale: 0.5, offset: -12}`
	rails := "\n  - {name: aux_12v_1, clamp: {current: ch1, voltage: ch2}}"
	if c.rails == 2 {
		file += `
        ch3: {scale: 0.05, offset: -0.1, ampere_per_volt: 100}
        ch4: {scale: 0.5, offset: -12}`
		rails += "\n  - {name: aux_12v_2, clamp: {current: ch3, voltage: ch4}}"
	}
	b, err := bench.Parse("scope.yaml", []byte(file+"\nrails:"+rails+"\nmissing: [pcie_12v, pcie_3v3]\n"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// energies adds up what a capture holds between its markers.
type energies struct {
	setup *measure.Setup
	sum   *measure.Integrator
	blk   measure.Block
}

func (e *energies) Header(owning.ReadHeader) error { return nil }
func (e *energies) Event(measure.Event) error      { return nil }
func (e *energies) Trailer(owning.Trailer) error   { return nil }
func (e *energies) Chunk(h spool.ChunkHead, load func(*[]byte) ([]byte, error)) error {
	var buf []byte
	payload, err := load(&buf)
	if err != nil {
		return err
	}
	c := &chunk.Chunk{No: h.No, FirstScan: h.FirstScan, FirstTick: h.FirstTick, Scans: int(h.Scans), CRC: h.CRC}
	if err := chunk.ParsePayload(c, payload); err != nil {
		return err
	}
	if err := chunk.Decode(c, e.setup.Timebase, len(e.setup.Channels), &e.blk); err != nil {
		return err
	}
	return e.sum.Add(&e.blk)
}

// A task between markers, measured with a scope whose memory is read after the
// stop, over the whole way: bench file, driver, TCP, capture, spool.
func TestATaskOnAScope(t *testing.T) {
	for name, c := range map[string]scopeCase{
		"DS1000Z": rigolCase("rigol-ds1000z", "30000", 25e3, rigolface.DS1000Z),
		"MSO5000": rigolCase("rigol-mso5000", "100000", 50e3, rigolface.MSO5000),
		"DHO":     rigolCase("rigol-dho", "100000", 50e3, rigolface.DHO),
		"EDUX1002G": {"keysight-infiniivision", "timeout: 5s", 1, 25e3, func(b *board.Board, cfg scopeface.Config) (scopeFace, error) {
			return keysightface.New(b, keysightface.EDUX1002G, keysightface.Config{Config: cfg})
		}},
		"SDS2000X Plus": {"siglent-e11", "depth: 100000", 2, 40e3, func(b *board.Board, cfg scopeface.Config) (scopeFace, error) {
			return siglentface.New(b, siglentface.SDS2000XPlus, cfg)
		}},
		"MDO3000": {"tektronix", "depth: 100000", 2, 50e3, func(b *board.Board, cfg scopeface.Config) (scopeFace, error) {
			return tekface.New(b, tekface.MDO3000, cfg)
		}},
		"MSO4": {"tektronix", "depth: 100000", 2, 62.5e3, func(b *board.Board, cfg scopeface.Config) (scopeFace, error) {
			return tekface.New(b, tekface.MSO4, cfg)
		}},
	} {
		t.Run(name, func(t *testing.T) { taskOnAScope(t, c, false) })
		if c.rails == 1 {
			t.Run(name+" with errors", func(t *testing.T) { taskOnAScope(t, c, true) })
		}
	}
}

// owned is a scope on a board, and the one who owns its driver.
type owned struct {
	board *board.Board
	live  *board.Live
	face  scopeFace
	owner *owning.Owner
}

// own serves a scope and lets a driver be owned until the test ends.
func own(t *testing.T, family scopeCase, imperfect bool) *owned {
	t.Helper()
	b, err := board.New(board.Config{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	o := &owned{board: b, live: board.NewLive(b, time.Now())}
	cfg := scopeface.Config{Seed: 5, Draw: imperfect, Now: func() time.Duration { return o.live.Since(time.Now()) }}
	if o.face, err = family.face(b, cfg); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	store, err := spool.Open(t.TempDir(), spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := scopeBench(t, "tcp:"+l.Addr().String(), family)
	ins, err := file.NewInstrument(registry.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if o.owner, err = owning.New(owning.Config{Bench: "scope", Instrument: ins, Setup: file.Setup, Store: store}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- o.face.Serve(ctx, l, nil) }()
	go func() { ended <- o.owner.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		_ = store.Close()
	})
	return o
}

func taskOnAScope(t *testing.T, family scopeCase, imperfect bool) {
	o := own(t, family, imperfect)
	spec := marker.FastProfile(family.rate, 7)
	c, err := o.owner.Start(t.Context(), owning.Request{Holder: "ada@lab", Marker: spec})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostClock{rng: rand.New(rand.NewPCG(1, 1))}
	_, begin, err := lay(o.board, h, spec, marker.Start, o.live.Since(time.Now())+50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.board.SetLoad(begin+20*time.Millisecond, board.Compute); err != nil {
		t.Fatal(err)
	}
	_, end, err := lay(o.board, h, spec, marker.Stop, begin+250*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(o.live.Time(end)))
	sum, err := c.Stop(t.Context())
	if err != nil || sum.State != owning.Complete || sum.Window == nil || sum.Lost != 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	// The instant at which the capture says that it began is the scope's own.
	if off := o.live.Since(c.Started()) - o.face.Begin(); off < -20*time.Millisecond || off > 20*time.Millisecond {
		t.Errorf("the capture's begin is off by %v", off)
	}
	r, want := o.energy(t, c, *sum.Window, family.rails)
	rel := float64(r.Total.Energy/want) - 1
	t.Logf("%+.3f %% of %v between markers; ± %v stated; %d scans", 100*rel, want, r.Total.U, sum.Scans)
	if math.Abs(float64(r.Total.Energy-want)) > float64(r.Total.U) || !imperfect && math.Abs(rel) > 5e-3 {
		t.Errorf("%v ± %v measured, %v drawn", r.Total.Energy, r.Total.U, want)
	}
}

// energy is what a capture holds between its markers, and what the board drew.
func (o *owned) energy(t *testing.T, c *owning.Capture, w owning.Window, rails int) (r measure.Result, want measure.Joule) {
	t.Helper()
	setup := c.Header().Setup
	truth, err := o.board.Energy(o.face.Begin()+w.From.Duration(), o.face.Begin()+w.To.Duration())
	if err != nil {
		t.Fatal(err)
	}
	e := energies{setup: &setup}
	if e.sum, err = measure.NewIntegrator(&setup, w.From, w.To); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(t.Context(), owning.ReadOptions{}, &e); err != nil {
		t.Fatal(err)
	}
	if r, err = e.sum.Result(measure.Edges{}); err != nil {
		t.Fatal(err)
	}
	for _, j := range truth.Rails[len(truth.Rails)-2:][:rails] {
		want += j
	}
	return r, want
}
