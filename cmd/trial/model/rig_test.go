package model

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
	"github.com/wattmark/wattmark/store"
)

const (
	scansOf   = 256 // in a chunk
	syncEvery = time.Minute
	lease     = time.Hour
	ages      = 10000 * time.Hour
)

// puppet is a meter that runs the test's functions.
type puppet struct {
	do chan func(instrument.Sink) (end bool, err error)
}

func (p *puppet) Open(ctx context.Context) error { return ctx.Err() }
func (p *puppet) Close() error                   { return nil }
func (p *puppet) Identity() instrument.Identity {
	return instrument.Identity{Kind: "puppet", Model: "P", Serial: "1"}
}

func (p *puppet) Inputs() instrument.Inputs {
	return instrument.Inputs{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 100},
		Channels: []measure.Channel{{Name: "w", Unit: measure.UnitWatt, Gain: 1, MinCount: -32768, MaxCount: 32767}},
	}
}

func (p *puppet) Stream(ctx context.Context, s instrument.Sink) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-p.do:
			if end, err := f(s); end || err != nil {
				return err
			}
		}
	}
}

func puppetRails(in instrument.Inputs) (measure.Setup, error) {
	return measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Rails: []measure.Rail{
		{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1},
	}}, nil
}

// platter is the monitor's disk, which knows how much of each log was synced.
type platter struct {
	mu      sync.Mutex
	durable map[string]int64
}

type plate struct {
	*os.File
	p *platter
}

func (p *platter) open(name string) (spool.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	return &plate{f, p}, err
}

func (f *plate) Datasync() error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.p.durable[f.Name()] = info.Size()
	return nil
}

// image copies a spool as a kill leaves it, or a power cut: without unsynced writes.
func (p *platter) image(from, to string, power bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if at, log := p.durable[path]; log || filepath.Base(path) == "log" {
			if power {
				b = b[:min(int64(len(b)), at)]
			}
			p.durable[target] = int64(len(b))
		}
		return os.WriteFile(target, b, 0o644)
	})
}

// rig is the real thing that the model is of: one monitor with its spool, one
// capture, and the host's database. The host itself is the model's.
type rig struct {
	t     *testing.T
	ctx   context.Context
	db    *store.DB
	disk  platter
	base  string // the spools are folders below it, one for each life of the monitor
	dirs  int
	meter *puppet
	owner *capture.Owner
	kill  func()

	id      string // of the capture
	task    store.TaskID
	headed  bool
	cancel  context.CancelFunc // of the start that is under way
	trailer *session.Trailer   // the last that was read
}

func newRig(t *testing.T, db *store.DB) *rig {
	r := &rig{t: t, ctx: t.Context(), db: db, base: folder(t), disk: platter{durable: map[string]int64{}}}
	r.start()
	return r
}

// start runs a monitor on the spool as it is.
func (r *rig) start() {
	r.t.Helper()
	s, err := spool.Open(r.path(r.dirs), spool.Options{SyncEvery: syncEvery, Buffer: 1 << 16, OpenFile: r.disk.open})
	if err != nil {
		r.t.Fatal(err)
	}
	r.meter = &puppet{do: make(chan func(instrument.Sink) (bool, error))}
	r.owner, err = capture.New(capture.Config{
		Bench: capture.Bench{Name: "model", Instrument: r.meter, Setup: puppetRails}, Store: s, ChunkScans: scansOf,
		FlushEvery: ages, OpenTimeout: ages, ArmTimeout: ages, StopTail: ages, StopGrace: ages, Reopen: -1,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan error, 1)
	owner := r.owner
	go func() { done <- owner.Run(ctx) }()
	r.kill = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			r.t.Error(err)
		}
	})
	synctest.Wait()
}

func (r *rig) path(n int) string { return filepath.Join(r.base, strconv.Itoa(n)) }

// crash ends the monitor: its later writes reach a copy that is dropped.
func (r *rig) crash(power bool) {
	r.dirs++
	if err := r.disk.image(r.path(r.dirs-1), r.path(r.dirs), power); err != nil {
		r.t.Fatal(err)
	}
	r.kill()
	r.owner = nil
}

// tell runs a function on the meter, and waits until all goroutines are idle.
func (r *rig) tell(f func(instrument.Sink) (bool, error)) {
	r.meter.do <- f
	synctest.Wait()
}

// block is scans from an instant of the stream on.
func block(first uint64, n int) *measure.Block {
	return &measure.Block{
		FirstScan: first, FirstTick: int64(first) * 100,
		Counts: [][]measure.Count{make([]measure.Count, n)},
	}
}

var spec = marker.FastProfile(10e3, 1)

// folder is one in memory, where there is such a thing: some ten thousand syncs are
// made here.
func folder(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "wattmark-model")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
