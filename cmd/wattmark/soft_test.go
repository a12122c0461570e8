package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/run"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	ps3face "github.com/wattmark/wattmark/monitor/emulator/powersensor3"
	"github.com/wattmark/wattmark/monitor/instrument/powersensor3"
	"github.com/wattmark/wattmark/monitor/transport"
	"github.com/wattmark/wattmark/store"
)

// demoOf is a task as demo makes it: a kernel of some length, or pulses of one, on the emulated
// board, by an emulated PowerSensor3.
type demoOf struct {
	name, user    string
	length, pulse time.Duration
	kernel        gpu.Benchmark // half where empty
}

var (
	demo      = demoOf{name: "demo", user: "ada", length: 100 * time.Millisecond}
	longDemo  = demoOf{name: "demo", user: "ada", length: 1500 * time.Millisecond}
	pulseDemo = demoOf{name: "demo", user: "ada", length: 300 * time.Millisecond, pulse: 20 * time.Millisecond}
)

var (
	demosMu sync.Mutex
	demos   = map[string][]byte{} // database files by what is in them
)

// demoDB writes a database with tasks of a demo, and returns its path.
func demoDB(t *testing.T, tasks ...demoOf) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "power.db")
	demosMu.Lock()
	defer demosMu.Unlock()
	key := fmt.Sprint(tasks)
	if demos[key] == nil {
		makeDemo(t, path, tasks)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		demos[key] = b
	} else if err := os.WriteFile(path, demos[key], 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// emptyDatabase is a database file without a task: its schema takes a tenth of a second to make.
var emptyDatabase = sync.OnceValues(func() ([]byte, error) {
	path := filepath.Join(buildDir, "empty.db")
	db, err := store.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// emptyDB writes a database without a task.
func emptyDB(t *testing.T, path string) {
	t.Helper()
	b, err := emptyDatabase()
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// makeDemo measures in virtual time: no other process can delay an edge, and no wait takes
// time. The line of the meter and that of the monitor are memory.
func makeDemo(t *testing.T, path string, tasks []demoOf) {
	t.Helper()
	now := time.Now()
	emptyDB(t, path)
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Until(now))
		db, err := store.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		model, err := board.New(board.Config{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		plant := board.NewLive(model, time.Now())
		client := softMonitor(t, plant)
		dev, err := sim.Open(sim.Config{Plant: plant, Clock: sim.Wall{}})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		for _, x := range tasks {
			a := &cli.App{Streams: cli.Streams{Out: io.Discard, Err: io.Discard}, DB: path, Args: []string{"demo", "--db", path}}
			cfg := measurement.Config{
				DB: db, Monitor: client, Device: dev, Sensor: sim.NewSensor(plant, sim.Wall{}, sim.Response{}),
				Name: x.name, User: x.user, Holder: x.user + "@here", WarmUp: 200 * time.Millisecond,
				Open: func(ctx context.Context) (gpu.PowerSensor, error) { return nil, session.OpenDevice(ctx, dev) },
			}
			cfg.Methods.Nap = func(ctx context.Context, d time.Duration) { _ = sensor.Pause(ctx, d) }
			kernel := cmp.Or(x.kernel, gpu.BenchHalf)
			work := session.BenchmarkWork(dev, kernel, x.length)
			if x.pulse > 0 {
				work = session.PulseWork(dev, kernel, x.pulse, x.pulse, x.length)
			}
			id, err := run.Measure(a, t.Context(), cfg, work)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := db.Task(t.Context(), id); err != nil || got.State != store.Complete {
				t.Fatalf("%v: %s, %v", x, got.Reason, err)
			}
		}
	})
}

// softMonitor serves a PowerSensor3 on a board over memory, and returns a client of its monitor.
func softMonitor(t *testing.T, live *board.Live) *monitorclient.Client {
	t.Helper()
	face, err := ps3face.New(live.Board, pace.Real(live.Epoch), ps3face.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	const address = "tcp:emulated:1"
	described, err := bench.Default("powersensor3", address)
	if err != nil {
		t.Fatal(err)
	}
	meter, err := powersensor3.New(address, powersensor3.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	var plug sync.Mutex // one line at a time, as a real board has
	meter.Dial = func(context.Context) (transport.Conn, error) {
		mine, theirs := net.Pipe()
		wg.Go(func() {
			plug.Lock()
			defer plug.Unlock()
			_ = face.Run(ctx, theirs)
		})
		return transport.NewNet(mine), nil
	}
	line := bufconn.Listen(1 << 20)
	m, err := monitor.New(monitor.Config{
		Bench: monitor.Bench{Name: described.Name, Instrument: meter, Setup: described.Setup},
		Dir:   t.TempDir(), Listeners: []net.Listener{line}, Version: cli.Version(),
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return line.DialContext(ctx) })
	client, err := monitorclient.Dial("127.0.0.1:1", monitorclient.Options{Version: cli.Version(), Dial: []grpc.DialOption{dial}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := client.Close()
		cancel()
		if err := errors.Join(err, <-done, meter.Close()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return client
}
