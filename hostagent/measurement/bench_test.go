package measurement_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/store"
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
	line    *bufconn.Listener // in virtual time, in place of TCP
	card    board.Config
	tune    *capture.Config // nil for small chunks, so that a short task has many
	nvml    bool            // the meter is the GPU's own sensor, on a card of the tenth of a second and windows of a quarter of that
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

// newBench is a bench on the system's clock, for tests with other processes.
func newBench(t *testing.T) *bench {
	t.Helper()
	db := openDatabase(t)
	b := newBenchOf(t, db, 3, false, meter.Config{Seed: 3, Rate: 20e3})
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// inVirtualTime runs a test on a bench whose clock is a synctest bubble's: its waits take no
// time, and no other process can delay an edge. Host and monitor speak over memory there.
func inVirtualTime(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	inVirtualTimeWith(t, meter.Config{Seed: 3, Rate: 20e3}, f)
}

// inVirtualTimeWith is inVirtualTime with a meter of its own kind.
func inVirtualTimeWith(t *testing.T, c meter.Config, f func(t *testing.T, b *bench)) {
	t.Helper()
	inVirtualTimeOn(t, &bench{}, c, f)
}

// inVirtualTimeOn is inVirtualTimeWith on a bench of its own card.
func inVirtualTimeOn(t *testing.T, b *bench, c meter.Config, f func(t *testing.T, b *bench)) {
	t.Helper()
	if _, err := emptyDatabase(); err != nil { // made outside of the bubble
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b.db, b.line = openDatabase(t), bufconn.Listen(1<<20)
		t.Cleanup(func() {
			if err := b.db.Close(); err != nil {
				t.Error(err)
			}
		})
		b.build(t, 3, false, c)
		f(t, b)
	})
}

// newBenchOn is a bench whose tasks go into a database that the caller closes;
// no two seeds have one GPU. A bench that says it names its GPU.
func newBenchOn(t *testing.T, db *store.DB, seed uint64, says bool) *bench {
	t.Helper()
	return newBenchOf(t, db, seed, says, meter.Config{Seed: seed, Rate: 20e3})
}

func newBenchOf(t *testing.T, db *store.DB, seed uint64, says bool, c meter.Config) *bench {
	t.Helper()
	b := &bench{db: db}
	b.build(t, seed, says, c)
	return b
}

// build makes the parts of a bench and serves it.
func (b *bench) build(t *testing.T, seed uint64, says bool, c meter.Config) {
	t.Helper()
	b.card.Seed = seed
	model, err := board.New(b.card)
	if err != nil {
		t.Fatal(err)
	}
	epoch := time.Now()
	b.live = board.NewLive(model, epoch)
	source, err := meter.NewSampler(model, c)
	if err != nil {
		t.Fatal(err)
	}
	if b.device, err = sim.Open(sim.Config{Plant: b.live, Seed: seed}); err != nil {
		t.Fatal(err)
	}
	gpu := ""
	if says {
		gpu = b.device.Info().UUID
	}
	b.sensor = sim.NewSensor(b.live, nil, sim.Response{})
	var device instrument.Instrument = meter.NewInstrument("emulated", source, pace.Real(epoch))
	setup := source.Setup()
	if b.nvml {
		device, setup = b.ownSensor(t)
	}
	b.serve(t, cable{device, b}, setup, gpu)
	o := monitorclient.Options{Pause: time.Millisecond, Patience: 3 * time.Second}
	if b.line != nil {
		dial := func(ctx context.Context, _ string) (net.Conn, error) { return b.line.DialContext(ctx) }
		o.Dial = []grpc.DialOption{grpc.WithContextDialer(dial)}
	}
	if b.client, err = monitorclient.Dial(b.address, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.client.Close(); err != nil {
			t.Error(err)
		}
	})
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
	l, address := net.Listener(b.line), "127.0.0.1:1"
	if b.line == nil {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		address = l.Addr().String()
	}
	b.address = address
	// A pulled cable stays pulled.
	tune := capture.Config{ChunkScans: 512, FlushEvery: 20 * time.Millisecond, Reopen: -1}
	if b.tune != nil {
		tune = *b.tune
	}
	m, err := monitor.New(monitor.Config{
		Bench: monitor.Bench{
			Name: "soft", GPU: gpu, Instrument: i,
			Setup: func(instrument.Inputs) (measure.Setup, error) { return setup, nil },
		},
		Dir: t.TempDir(), Listeners: []net.Listener{l}, Version: "test",
		Tune: tune,
	})
	if err != nil {
		t.Fatal(err)
	}
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
	cfg := measurement.Config{
		DB: b.db, Monitor: b.client, Device: b.device, Sensor: b.sensor, Name: "gemm", User: "lab", Holder: "lab@host",
		Marker: &marker.Spec{Code: marker.M31, Chip: 1e-3, Guard: 6, TagBits: 4, Tag: 11}, Lead: 20 * time.Millisecond,
	}
	if b.line != nil {
		cfg.Methods.Nap = func(ctx context.Context, d time.Duration) { _ = sensor.Pause(ctx, d) }
	}
	return cfg
}

// memory is work of some length.
func (b *bench) memory(d time.Duration) measurement.Work {
	return func(ctx context.Context) ([]gpu.Kernel, error) {
		return b.device.RunBenchmark(ctx, gpu.BenchMemory, d)
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
		if x.State != session.Released {
			n++
		}
	}
	return n
}
