package nidaqmx

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/niface"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/instrument/insttest"
)

type rig struct {
	board  *board.Board
	face   *niface.Face
	opts   Options
	dev    *Device
	at     string
	unplug func() // ends the server
}

// rails are on the face's inputs in this order.
var rails = []string{"aux_12v_1", "pcie_3v3", "pcie_12v", "aux_12v_2"}

// emulate puts an emulated server on a TCP port of this machine.
func emulate(t *testing.T, cfg niface.Config, paces ...pace.Pace) *rig {
	t.Helper()
	r := &rig{opts: Defaults()}
	var err error
	if r.board, err = board.New(board.Config{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	loads := []board.Load{board.Compute, board.Sleep, board.Memory, board.ActiveIdle, board.Half}
	for i := range 100 {
		if _, err := r.board.SetLoad(time.Duration(i)*137*time.Millisecond, loads[i%len(loads)]); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Rails = rails
	if r.face, err = niface.New(r.board, append(paces, pace.Pace{})[0], cfg); err != nil {
		t.Fatal(err)
	}
	r.opts.Inputs = nil
	for k, name := range rails {
		r.opts.Inputs = append(r.opts.Inputs,
			Input{AI: 2 * k, Name: name + ".voltage", PerVolt: niface.Divider, Terminal: "differential"},
			Input{AI: 2*k + 1, Name: name + ".current", Unit: "A", PerVolt: niface.PerVolt, Range: 5})
	}
	r.opts.Rate, r.opts.Buffer = 5000, 2*time.Second
	r.plug(t, "127.0.0.1:0")
	r.make(t)
	return r
}

// make makes the driver anew, with the rig's options.
func (r *rig) make(t *testing.T) {
	t.Helper()
	var err error
	if r.dev, err = New("tcp:"+r.at, r.opts); err != nil {
		t.Fatal(err)
	}
	dev := r.dev
	t.Cleanup(func() { _ = dev.Close() })
}

func (r *rig) open(t *testing.T) {
	t.Helper()
	if err := r.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// plug starts the server.
func (r *rig) plug(t *testing.T, at string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	r.at = l.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.face.Serve(ctx, l) }()
	r.unplug = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ends with %v", err)
		}
	})
	t.Cleanup(r.unplug)
}

// until stops a stream after n scans; halfway it calls then.
type until struct {
	*insttest.Collector
	n    int
	then func()
	stop func()
	seen int
}

func (u *until) Block(b *measure.Block) error {
	if err := u.Collector.Block(b); err != nil {
		return err
	}
	u.seen += b.Scans()
	if u.then != nil && u.seen >= min(u.n/2, 10_000) {
		u.then()
		u.then = nil
	}
	if u.seen >= u.n {
		u.stop()
	}
	return nil
}

func (r *rig) stream(t *testing.T, n int, then func()) (*insttest.Collector, error) {
	t.Helper()
	in := r.dev.Inputs()
	out := &insttest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := r.dev.Stream(ctx, &until{Collector: out, n: n, then: then, stop: cancel})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatalf("%d of %d scans in 20 s", len(out.Scans()), n)
	}
	return out, err
}

func railOf(b *board.Board, name string) int {
	for k, r := range b.Rails() {
		if r.Name == name {
			return k
		}
	}
	return -1
}

// numbered is a converter that gives the number of the sample, so that any that
// is lost or misplaced is seen.
func numbered(ai int, sample uint64) int16 { return int16(sample + 1000*uint64(ai)) }

// counted checks that every scan is the one that its index says.
func (r *rig) counted(t *testing.T, out *insttest.Collector) {
	t.Helper()
	for c := range r.opts.Inputs {
		counts := out.Counts(c)
		for i, scan := range out.Scans() {
			if want := measure.Count(numbered(r.opts.Inputs[c].AI, scan)); counts[i] != want {
				t.Fatalf("input %d, scan %d: %d, want %d", c, scan, counts[i], want)
			}
		}
	}
}
