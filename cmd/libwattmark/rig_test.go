package main_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/wattmark/wattmark/cmd/internal/cudatest"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/store"
)

// built is a folder with the library, the stand-ins for NVIDIA's libraries and
// the C program that drives it.
var built = sync.OnceValues(build)

// errNoCompiler: there is nothing to build with.
var errNoCompiler = errors.New("no gcc here: the C library is not built, and nothing of it is tried")

var folders []string // of built, to be removed

func TestMain(m *testing.M) {
	code := m.Run()
	for _, f := range folders {
		_ = os.RemoveAll(f)
	}
	os.Exit(code)
}

func build() (dir string, err error) {
	if _, err := exec.LookPath("gcc"); err != nil {
		return "", errNoCompiler
	}
	if dir, err = os.MkdirTemp("", "libwattmark-"); err != nil {
		return "", err
	}
	folders = append(folders, dir)
	host := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "wattmark"), "../wattmark")
	host.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := host.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build wattmark: %w\n%s", err, out)
	}
	for _, c := range [][]string{
		{"make", "-s", "-C", "../..", "lib", "LIB=" + dir},
		{"gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1", "-o", filepath.Join(dir, "libcuda.so.1"), "testdata/fakecuda.c", "-lpthread"},
		{"gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", filepath.Join(dir, "libnvidia-ml.so.1"), "testdata/fakenvml.c"},
		append(compile(dir, "drive"), "testdata/drive.c", "-L"+dir, "-lwattmark", "-l:libcuda.so.1", "-lpthread"),
	} {
		cmd := exec.Command(c[0], c[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("%s: %w\n%s", strings.Join(c, " "), err, out)
		}
	}
	return dir, nil
}

func compile(dir, name string) []string {
	return []string{"gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I.", "-Itestdata", "-o", filepath.Join(dir, name)}
}

// library returns the folder of the library, or skips the test.
func library(t *testing.T) string {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector cannot see into other processes, and makes the meter in this one miss its time")
	}
	dir, err := built()
	if errors.Is(err, errNoCompiler) {
		skipTool(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// rig is a bench: an emulated board that the stand-in GPU loads, a meter on it,
// the real monitor on a TCP port, and a database that programs write to.
type rig struct {
	t           *testing.T
	dir         string
	live        *board.Live
	address, db string
	board       string // socket
	host        string // as WATTMARK_HOST
	more        []string
}

// inBothModes runs a test with the agent in the program, and through a daemon.
func inBothModes(t *testing.T, f func(*testing.T, *rig)) {
	t.Helper()
	library(t)
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		f(t, newRig(t))
	})
	t.Run("daemon", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.startHost()
		f(t, r)
	})
}

func newRig(t *testing.T, o ...grpc.ServerOption) *rig {
	t.Helper()
	r := &rig{t: t, dir: library(t), host: "none"}
	tmp := t.TempDir()
	r.db, r.board = filepath.Join(tmp, "power.db"), filepath.Join(tmp, "board")
	model, err := board.New(board.Config{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	epoch := time.Now()
	r.live = board.NewLive(model, epoch)
	source, err := meter.NewSampler(model, meter.Config{Seed: 5, Rate: 20e3})
	if err != nil {
		t.Fatal(err)
	}
	cudatest.Serve(t, r.board, r.live)
	r.serveMonitor(meter.NewInstrument("emulated", source, pace.Pace{Epoch: epoch, Backlog: time.Minute}), source.Setup(), o...)
	return r
}

func (r *rig) serveMonitor(i instrument.Instrument, setup measure.Setup, o ...grpc.ServerOption) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	m, err := monitor.New(monitor.Config{
		Bench: monitor.Bench{Name: "soft", Instrument: i, Setup: func(instrument.Inputs) (measure.Setup, error) { return setup, nil }},
		Dir:   r.t.TempDir(), Listeners: []net.Listener{l}, Version: "test", ServerOptions: o,
		Tune: capture.Config{ChunkScans: 512, FlushEvery: 20 * time.Millisecond, Reopen: -1},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("monitor: %v", err)
		}
	})
}

// monitorClient talks to the monitor.
func (r *rig) monitorClient() *monitorclient.Client {
	r.t.Helper()
	c, err := monitorclient.Dial(r.address, monitorclient.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// mustBeFree fails when somebody still holds the bench.
func (r *rig) mustBeFree() {
	r.t.Helper()
	b, err := r.monitorClient().GetBench(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if b.Holder != "" {
		r.t.Errorf("the bench is held by %s", b.Holder)
	}
}

// open opens the database that the programs wrote, and has SQLite check it.
func (r *rig) open() *store.DB {
	r.t.Helper()
	db, err := store.Open(r.t.Context(), r.db)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = db.Close() })
	var whole string
	if err := db.SQL().QueryRowContext(r.t.Context(), "PRAGMA integrity_check").Scan(&whole); err != nil || whole != "ok" {
		r.t.Errorf("the database: %s, %v", whole, err)
	}
	return db
}

func (r *rig) task(db *store.DB, id store.TaskID) store.Task {
	r.t.Helper()
	x, err := db.Task(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

// skipTool skips a test whose tool is not here, unless tools are required.
func skipTool(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}
