package measurement_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/hostagent/sim"
	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor"
	"wattmark/monitor/capture"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/meter"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/instrument"
	"wattmark/store"
)

// bench is a whole measuring place in this process: an emulated board, a meter
// that reads it, the real monitor behind a TCP port, a simulated GPU, and a
// task database in a file.
type bench struct {
	live    *board.Live
	address string
	client  *monitorclient.Client
	device  *sim.Device
	sensor  *sim.Sensor
	db      *store.DB
	unplug  atomic.Pointer[context.CancelCauseFunc]
}

type plant struct{ *board.Live }

func (p plant) SetLoad(at time.Time, l sim.Load) (time.Time, error) {
	return p.Live.SetLoad(at, board.Load(l))
}

func (p plant) SetSteps(at time.Time, steps []sim.Step) (time.Time, error) {
	out := make([]board.Step, len(steps))
	for i, s := range steps {
		out[i] = board.Step{Load: board.Load(s.Load), Level: s.Level, For: s.For}
	}
	return p.Live.SetSteps(at, out)
}

// cable is an instrument whose cable can be pulled.
type cable struct {
	instrument.Instrument
	b *bench
}

func (c cable) Stream(ctx context.Context, sink instrument.Sink) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.b.unplug.Store(&cancel)
	if err := c.Instrument.Stream(ctx, sink); err != nil {
		return err
	}
	if context.Cause(ctx) == instrument.ErrDisconnected {
		return instrument.ErrDisconnected
	}
	return nil
}

func (b *bench) pull() { (*b.unplug.Load())(instrument.ErrDisconnected) }

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchWith(t, meter.Config{Seed: 3, Rate: 20e3})
}

// newBenchWith is a bench with a meter of its own kind.
func newBenchWith(t *testing.T, c meter.Config) *bench {
	t.Helper()
	db := openDatabase(t)
	b := newBenchOf(t, db, 3, false, c)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// newBenchOn is a bench whose tasks go into a database that the caller closes;
// no two seeds have one GPU. A bench that says it names its GPU.
func newBenchOn(t *testing.T, db *store.DB, seed uint64, says bool) *bench {
	t.Helper()
	return newBenchOf(t, db, seed, says, meter.Config{Seed: seed, Rate: 20e3})
}

func newBenchOf(t *testing.T, db *store.DB, seed uint64, says bool, c meter.Config) *bench {
	t.Helper()
	model, err := board.New(board.Config{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	epoch := time.Now()
	b := &bench{live: board.NewLive(model, epoch), db: db}
	source, err := meter.NewSampler(model, c)
	if err != nil {
		t.Fatal(err)
	}
	if b.device, err = sim.Open(sim.Config{Plant: plant{b.live}, Seed: seed}); err != nil {
		t.Fatal(err)
	}
	gpu := ""
	if says {
		gpu = b.device.Info().UUID
	}
	b.serve(t, cable{meter.NewInstrument("emulated", source, pace.Real(epoch)), b}, source.Setup(), gpu)
	if b.client, err = monitorclient.Dial(b.address, monitorclient.Options{Pause: time.Millisecond, Patience: 3 * time.Second}); err != nil {
		t.Fatal(err)
	}
	b.sensor = sim.NewSensor(plant{b.live}, nil, sim.Response{})
	t.Cleanup(func() {
		if err := b.client.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// emptyDatabase is a database file without a task: its schema is made once, since
// that takes seconds under the race detector.
var emptyDatabase = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "wattmark-test-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "power.db")
	db, err := store.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func openDatabase(t *testing.T) *store.DB {
	t.Helper()
	empty, err := emptyDatabase()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "power.db")
	if err := os.WriteFile(path, empty, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func (b *bench) serve(t *testing.T, i instrument.Instrument, setup measure.Setup, gpu string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := monitor.New(monitor.Config{
		Bench: monitor.Bench{Name: "soft", GPU: gpu, Instrument: i, Setup: func(instrument.Inputs) (measure.Setup, error) { return setup, nil }},
		Dir:   t.TempDir(), Listeners: []net.Listener{l}, Version: "test",
		// Small chunks, so that a short task has many; a pulled cable stays pulled.
		Tune: capture.Config{ChunkScans: 512, FlushEvery: 20 * time.Millisecond, Reopen: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("monitor: %v", err)
		}
	})
}

// config is a measurement with a short marker.
func (b *bench) config() measurement.Config {
	return measurement.Config{
		DB: b.db, Monitor: b.client, Device: b.device, Sensor: b.sensor, Name: "gemm", User: "lab", Holder: "lab@host",
		Marker: &marker.Spec{Code: marker.M31, Chip: 1e-3, Guard: 6, TagBits: 4, Tag: 11}, Lead: 20 * time.Millisecond,
	}
}

// memory is work of some length.
func (b *bench) memory(d time.Duration) measurement.Work {
	return func(ctx context.Context) ([]hostagent.Kernel, error) {
		return b.device.RunBenchmark(ctx, hostagent.BenchMemory, d)
	}
}

// truth is what the board drew while the kernels ran.
func (b *bench) truth(t *testing.T, id store.TaskID) measure.Joule {
	t.Helper()
	k, err := b.db.Kernels(t.Context(), id)
	if err != nil || len(k) == 0 {
		t.Fatalf("%d kernels: %v", len(k), err)
	}
	e, err := b.live.Energy(k[0].Start, k[len(k)-1].End)
	if err != nil {
		t.Fatal(err)
	}
	return e.Total
}

func (b *bench) task(t *testing.T, id store.TaskID) store.Task {
	t.Helper()
	task, err := b.db.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// mustBeFree fails when a capture still holds the bench.
func (b *bench) mustBeFree(t *testing.T) {
	t.Helper()
	got, err := b.client.GetBench(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Holder != "" {
		t.Errorf("the bench is held by %s", got.Holder)
	}
}

// captures returns how many captures the monitor keeps.
func (b *bench) captures(t *testing.T) int {
	t.Helper()
	c, err := b.client.Captures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, x := range c {
		if x.State != monitorclient.Released {
			n++
		}
	}
	return n
}
