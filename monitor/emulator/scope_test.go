//go:build linux

package emulator_test

import (
	"context"
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
	"wattmark/monitor/emulator/rigolface"
	"wattmark/monitor/instrument/registry"
	"wattmark/monitor/spool"
)

// scopeBench is the documented bench file at an address, with a short window.
func scopeBench(t *testing.T, address string) *bench.Bench {
	t.Helper()
	b, err := bench.Parse("scope.yaml", []byte(`
name: scope
instruments:
  - kind: rigol-ds1000z
    address: `+address+`
    options:
      window: 1200ms
      depth: 30000
      inputs:
        ch1: {scale: 0.05, offset: -0.1, ampere_per_volt: 100}
        ch2: {scale: 0.5, offset: -12}
        ch3: {scale: 0.05, offset: -0.1, ampere_per_volt: 100}
        ch4: {scale: 0.5, offset: -12}
rails:
  - {name: aux_12v_1, clamp: {current: ch1, voltage: ch2}}
  - {name: aux_12v_2, clamp: {current: ch3, voltage: ch4}}
missing: [pcie_12v, pcie_3v3]
`))
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
	if err := e.decode(h, load); err != nil {
		return err
	}
	return e.sum.Add(&e.blk)
}

func (e *energies) decode(h spool.ChunkHead, load func(*[]byte) ([]byte, error)) error {
	var buf []byte
	payload, err := load(&buf)
	if err != nil {
		return err
	}
	c := &chunk.Chunk{No: h.No, FirstScan: h.FirstScan, FirstTick: h.FirstTick, Scans: int(h.Scans), CRC: h.CRC}
	if err := chunk.ParsePayload(c, payload); err != nil {
		return err
	}
	return chunk.Decode(c, e.setup.Timebase, len(e.setup.Channels), &e.blk)
}

// A task between markers, measured with a scope whose memory is read after the
// stop, over the whole way: bench file, driver, TCP, capture, spool.
func TestATaskOnAScope(t *testing.T) {
	b, err := board.New(board.Config{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	live := board.NewLive(b, time.Now())
	face, err := rigolface.New(b, rigolface.Config{Seed: 5, Now: func() time.Duration { return live.Since(time.Now()) }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	store, err := spool.Open(t.TempDir(), spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := scopeBench(t, "tcp:"+l.Addr().String())
	ins, err := file.NewInstrument(registry.Env{})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := owning.New(owning.Config{Bench: "scope", Instrument: ins, Setup: file.Setup, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- face.Serve(ctx, l, nil) }()
	go func() { ended <- owner.Run(ctx) }()
	defer func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		_ = store.Close()
	}()

	spec := marker.FastProfile(25e3, 7)
	c, err := owner.Start(t.Context(), owning.Request{Holder: "ada@lab", Marker: spec})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostClock{rng: rand.New(rand.NewPCG(1, 1))}
	_, begin, err := lay(b, h, spec, marker.Start, live.Since(time.Now())+50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.SetLoad(begin+20*time.Millisecond, board.Compute); err != nil {
		t.Fatal(err)
	}
	_, end, err := lay(b, h, spec, marker.Stop, begin+250*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(live.Time(end)))
	sum, err := c.Stop(t.Context())
	if err != nil || sum.State != owning.Complete || sum.Window == nil || sum.Lost != 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	// The instant at which the capture says that it began is the scope's own.
	if off := live.Since(c.Started()) - face.Begin(); off < -20*time.Millisecond || off > 20*time.Millisecond {
		t.Errorf("the capture's begin is off by %v", off)
	}
	setup := c.Header().Setup
	w := *sum.Window
	truth, err := b.Energy(face.Begin()+w.From.Duration(), face.Begin()+w.To.Duration())
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
	r, err := e.sum.Result(measure.Edges{})
	if err != nil {
		t.Fatal(err)
	}
	want := truth.Rails[2] + truth.Rails[3]
	rel := float64(r.Total.Energy/want) - 1
	t.Logf("%+.3f %% of %v between markers %v apart; ± %v stated; %d scans", 100*rel, want, w.To-w.From, r.Total.U, sum.Scans)
	if math.Abs(rel) > 5e-3 {
		t.Errorf("%v measured, %v drawn", r.Total.Energy, want)
	}
}
