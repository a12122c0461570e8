package daemon

import (
	"context"
	"errors"
	"math"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/internal/coverage"

	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/store"
)

// failing is a GPU whose markers, or warm-up, fail where asked to.
type failing struct {
	gpu.Device
	at  string
	err error
}

func (f *failing) WarmUp(ctx context.Context, d time.Duration) error {
	if f.at == "warm-up" {
		return f.err
	}
	return f.Device.WarmUp(ctx, d)
}

func (f *failing) PlayMarker(ctx context.Context, s marker.Spec, k marker.Kind) (gpu.Played, error) {
	if (f.at == "start") == (k == marker.Start) && (f.at == "stop") == (k == marker.Stop) {
		return gpu.Played{}, f.err
	}
	return f.Device.PlayMarker(ctx, s, k)
}

// sliced is a GPU that the daemon does not take.
type sliced struct{ gpu.Device }

func (sliced) Info() gpu.Info { return gpu.Info{UUID: "MIG"} }

// rig is a daemon with a bench behind it, and a client of its.
type rig struct {
	live    *board.Live
	device  *sim.Device
	monitor *monitorclient.Client
	db      *store.DB
	server  *Server
	client  *Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	model, err := board.New(board.Config{Seed: 9})
	must(err)
	epoch := time.Now()
	r := &rig{live: board.NewLive(model, epoch)}
	source, err := meter.NewSampler(model, meter.Config{Seed: 9, Rate: 20e3})
	must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	setup := func(instrument.Inputs) (measure.Setup, error) { return source.Setup(), nil }
	m, err := monitor.New(monitor.Config{
		Bench: monitor.Bench{
			Name: "soft", Instrument: meter.NewInstrument("emulated", source, pace.Real(epoch)),
			Setup: setup,
		},
		Dir: t.TempDir(), Listeners: []net.Listener{l}, Version: "test",
	})
	must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 2)
	go func() { done <- m.Run(ctx) }()
	r.device, err = sim.Open(sim.Config{Plant: r.live})
	must(err)
	r.monitor, err = monitorclient.Dial(l.Addr().String(), monitorclient.Options{})
	must(err)
	r.db, err = store.Open(t.Context(), filepath.Join(t.TempDir(), "power.db"))
	must(err)
	socket, err := Listen(filepath.Join(t.TempDir(), "s"), 0o600)
	must(err)
	r.server = NewServer(Config{
		DB: r.db, Database: r.db.Path(), Monitor: r.monitor, Version: "test",
		Admit: func(i gpu.Info) error {
			if i.UUID == "MIG" {
				return gpu.ErrMIG
			}
			return nil
		},
		Sensor: func(gpu.Info) (gpu.PowerSensor, func() error, error) {
			return nil, nil, errors.New("no NVML here")
		},
	})
	server := grpc.NewServer(wire.ServerOptions()...)
	r.server.Register(server)
	go func() { done <- server.Serve(socket) }()
	r.client, err = Dial(socket.Path())
	must(err)
	t.Cleanup(func() {
		server.Stop()
		err := errors.Join(r.client.Close(), r.monitor.Close(), r.server.Close(context.WithoutCancel(t.Context())),
			r.db.Close())
		cancel()
		if err = errors.Join(err, <-done, <-done); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) config() measurement.Config {
	return measurement.Config{
		Device: r.device, Name: "first", User: "lab", Holder: "lab@here",
		WarmUp: 5 * time.Millisecond, Lease: time.Minute,
	}
}

func (r *rig) work(ctx context.Context) ([]gpu.Kernel, error) {
	return r.device.RunBenchmark(ctx, "memory", 50*time.Millisecond)
}

func (r *rig) mustBeFree(t *testing.T) {
	t.Helper()
	b, err := r.monitor.GetBench(t.Context())
	if err != nil || b.Holder != "" {
		t.Errorf("the bench is held by %q, %v", b.Holder, err)
	}
}

// incomplete is a task that has ended so, with a reason that has a text.
func (r *rig) incomplete(t *testing.T, id store.TaskID, why string) {
	t.Helper()
	x, err := r.db.Task(t.Context(), id)
	if err != nil || x.State != store.Incomplete || !strings.Contains(x.Reason, why) {
		t.Errorf("task %d is %v: %s, %v; want %q", id, x.State, x.Reason, err, why)
	}
	r.mustBeFree(t)
}

// One rig for all: under the race detector it takes seconds to make.
func TestThroughTheDaemon(t *testing.T) {
	coverage.Long(t)
	r := newRig(t)
	t.Run("a measurement", func(t *testing.T) { wholeMeasurement(t, r) })
	t.Run("failures", func(t *testing.T) { failures(t, r) })
	t.Run("given up", func(t *testing.T) { givenUp(t, r) })
	t.Run("refused", func(t *testing.T) { refused(t, r) })
	t.Run("out of line", func(t *testing.T) { outOfLine(t, r) })
	t.Run("stopped", func(t *testing.T) { stopped(t, r) })
}

func wholeMeasurement(t *testing.T, r *rig) {
	d, err := r.client.Describe(t.Context())
	if err != nil || d.Version != "test" || d.Database != r.db.Path() || d.Monitor != r.monitor.Address() ||
		d.PID == 0 || d.Started.IsZero() {
		t.Errorf("%+v, %v", d, err)
	}
	cfg := r.config()
	cfg.Provenance = &store.Provenance{
		Host: "here", OS: "os", Directory: "/src", GitCommit: "abc", GitDirty: true,
		Command: []string{"./gemm", "\x1b[2J"},
	}
	seen := map[measurement.Phase]bool{}
	cfg.Progress = func(p measurement.Progress) { seen[p.Phase] = true }
	m := r.client.Measurement(false)
	owned := false
	id, err := m.Measure(t.Context(), cfg, func(ctx context.Context) ([]gpu.Kernel, error) {
		owned = r.server.Owns(1)
		return r.work(ctx)
	})
	if err != nil || !owned || r.server.Owns(id) {
		t.Fatalf("%v; owned in the work: %v, afterwards: %v", err, owned, r.server.Owns(id))
	}
	got := m.Task()
	want, err := r.db.Task(t.Context(), id)
	if err != nil || got.ID != id || got.State != store.Complete || want.State != store.Complete ||
		want.GPU != r.device.Info().Name {
		t.Fatalf("%v: %s; in the database %v: %s, %v", got.State, got.Reason, want.State, want.Reason, err)
	}
	wantFrom := store.Provenance{
		Host: "here", OS: "os", Version: "test", MonitorVersion: want.Provenance.MonitorVersion, Directory: "/src",
		GitCommit: "abc", GitDirty: true,
		Command: []string{"./gemm", measure.Printable("\x1b[2J")},
	}
	if !reflect.DeepEqual(*want.Provenance, wantFrom) {
		t.Errorf("from %+v, want %+v", *want.Provenance, wantFrom)
	}
	x, y := got.Result, want.Result
	if x.Total != y.Total || x.Mean != y.Mean || x.Peak != y.Peak || x.Samples != y.Samples || x.To != y.To-y.From {
		t.Errorf("told %+v, stored %+v", x, y)
	}
	k, err := r.db.Kernels(t.Context(), id)
	if err != nil || len(k) != 1 {
		t.Fatalf("%+v, %v", k, err)
	}
	e, err := r.live.Energy(k[0].Start, k[0].End)
	if err != nil || math.Abs(float64(x.Total.Energy/e.Total)-1) > 0.005 {
		t.Errorf("%v, truth %v, %v", x.Total, e.Total, err)
	}
	for _, p := range []measurement.Phase{
		measurement.PhaseWarmUp, measurement.PhaseMarker, measurement.PhaseWork,
		measurement.PhaseTransfer,
	} {
		if !seen[p] {
			t.Errorf("%s was not told", p)
		}
	}
}

// What fails in the program is in the task's reason, and comes back as itself.
func failures(t *testing.T, r *rig) {
	own := errors.New("an illegal address\non the GPU")
	for at, reason := range map[string]string{
		"warm-up": "warm up: the program: an illegal address on the GPU",
		"start":   "the start marker could not be played: the program: an illegal",
		"stop":    "the stop marker could not be played: the program: an illegal",
		"work":    "the work failed: the program: an illegal",
	} {
		t.Run(at, func(t *testing.T) {
			cfg := r.config()
			cfg.Device = &failing{r.device, at, own}
			m := r.client.Measurement(true)
			id, err := m.Measure(t.Context(), cfg, func(ctx context.Context) ([]gpu.Kernel, error) {
				if at == "work" {
					return nil, own
				}
				return r.work(ctx)
			})
			if !errors.Is(err, own) || !strings.Contains(err.Error(), "an illegal address") {
				t.Errorf("got %v", err)
			}
			if x, err := r.db.Task(t.Context(), id); err != nil || !strings.Contains(x.Reason, reason) {
				t.Errorf("task %d: %s, %v", id, x.Reason, err)
			}
			r.mustBeFree(t)
		})
	}
}

// Who gives up is heard amid everything, and gets its own reason back.
func givenUp(t *testing.T, r *rig) {
	own := errors.New("no more interest")
	for name, cut := range map[string]func(measurement.Progress) bool{
		"in the marker": func(p measurement.Progress) bool { return p.Phase == measurement.PhaseMarker && p.Task != 0 },
		"in the work":   func(p measurement.Progress) bool { return p.Phase == measurement.PhaseWork },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cfg := r.config()
			cfg.Progress = func(p measurement.Progress) {
				if cut(p) {
					cancel(own)
				}
			}
			id, err := r.client.Measurement(true).Measure(ctx, cfg, func(ctx context.Context) ([]gpu.Kernel, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
			if !errors.Is(err, own) {
				t.Errorf("got %v", err)
			}
			r.incomplete(t, id, "the program gave the measurement up: no more interest")
		})
	}
}

// A program opens its GPU once the daemon has the bench; where it cannot, the bench is
// free, and there is no task.
func TestProgramOpensWithTheBench(t *testing.T) {
	r := newRig(t)
	cfg := r.config()
	opened := 0
	cfg.Open = func(ctx context.Context) (gpu.PowerSensor, error) {
		if b, err := r.monitor.GetBench(ctx); err != nil || b.Holder == "" {
			t.Errorf("opened while the bench is held by %q, %v", b.Holder, err)
		}
		opened++
		return nil, nil
	}
	if id, err := r.client.Measurement(true).Measure(t.Context(), cfg, r.work); err != nil || id == 0 || opened != 1 {
		t.Errorf("task %d, opened %d times: %v", id, opened, err)
	}
	broken := errors.New("out of memory")
	cfg.Open = func(context.Context) (gpu.PowerSensor, error) { return nil, broken }
	if id, err := r.client.Measurement(true).Measure(t.Context(), cfg, r.work); !errors.Is(err, broken) || id != 0 {
		t.Errorf("task %d: %v", id, err)
	}
	r.mustBeFree(t)
}

func refused(t *testing.T, r *rig) {
	try := func(cfg measurement.Config, want error) {
		t.Helper()
		id, err := r.client.Measurement(true).Measure(t.Context(), cfg, r.work)
		if !errors.Is(err, want) || id != 0 {
			t.Errorf("task %d: got %v, want %v", id, err, want)
		}
	}
	cfg := r.config()
	cfg.Name = "a\x1b"
	try(cfg, measure.ErrText)
	cfg = r.config()
	cfg.Name = strings.Repeat("x", wire.MaxText+1)
	try(cfg, ErrRefused)
	cfg = r.config()
	cfg.WarmUp = -time.Second
	try(cfg, ErrRefused)
	cfg = r.config()
	cfg.Device = sliced{r.device}
	try(cfg, ErrProgram)
	s, err := r.monitor.Start(t.Context(),
		session.Request{
			Holder: "ann@there", TaskName: "x",
			Marker: marker.Spec{Code: marker.M31, Chip: 1e-3, Guard: 6},
		})
	if err != nil {
		t.Fatal(err)
	}
	try(r.config(), monitorclient.ErrBusy)
	cfg = r.config()
	cfg.Open = func(context.Context) (gpu.PowerSensor, error) {
		t.Error("a program that was refused has opened its GPU")
		return nil, nil
	}
	try(cfg, monitorclient.ErrBusy)
	if _, err := r.monitor.Stop(t.Context(), s.CaptureID); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(filepath.Join(t.TempDir(), "nobody"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Describe(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Measurement(true).Measure(t.Context(), r.config(), r.work); !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

type stream = grpc.BidiStreamingClient[pb.MeasureRequest, pb.MeasureResponse]

func say(d *pb.Done) *pb.MeasureRequest {
	return &pb.MeasureRequest{Event: &pb.MeasureRequest_Done{Done: d}}
}

func opened(o *pb.OpenMeasurement) *pb.MeasureRequest {
	return &pb.MeasureRequest{Event: &pb.MeasureRequest_Open{Open: o}}
}

// ends reads a stream up to its outcome. Each command is answered by answer, nil
// for silence.
func ends(
	t *testing.T, s stream, answer func(*pb.Command) *pb.MeasureRequest,
) *pb.MeasureOutcome {
	t.Helper()
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if o := m.GetOutcome(); o != nil {
			return o
		}
		if c := m.GetCommand(); c != nil && answer != nil {
			if a := answer(c); a != nil {
				if err := s.Send(a); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A program that does not keep to the protocol harms its own task alone.
func outOfLine(t *testing.T, r *rig) {
	dial := func(t *testing.T, first *pb.MeasureRequest) stream {
		t.Helper()
		s, err := r.client.rpc.Measure(t.Context())
		if err == nil {
			err = s.Send(first)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if _, err := dial(t, say(&pb.Done{})).Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an answer before all: %v", err)
	}
	o := ends(t,
		dial(t, opened(&pb.OpenMeasurement{Name: "x", Lease: &durationpb.Duration{Seconds: -1, Nanos: 1}})),
		nil)
	if o.Failure.GetKind() != pb.FailureKind_FAILURE_KIND_ARGUMENT || o.Task != nil {
		t.Errorf("a lease that cannot be: %+v", o)
	}
	open := opened(&pb.OpenMeasurement{
		Name: "x", User: "lab", Holder: "x@y",
		WarmUp: durationpb.New(time.Millisecond), NoSensor: true,
	})
	for name, c := range map[string]struct {
		answer func(*pb.Command) *pb.MeasureRequest
		why    string
	}{
		"opened twice": {func(*pb.Command) *pb.MeasureRequest { return open }, "open already"},
		"nothing said": {func(*pb.Command) *pb.MeasureRequest {
			return &pb.MeasureRequest{}
		}, "open already"},
		"another answer": {func(c *pb.Command) *pb.MeasureRequest {
			return say(&pb.Done{Id: c.Id + 1})
		}, "command 2, 1 was given"},
		"no marker": {func(c *pb.Command) *pb.MeasureRequest {
			return say(&pb.Done{Id: c.Id})
		}, "no marker in the answer"},
		"a marker that ends first": {func(c *pb.Command) *pb.MeasureRequest {
			return say(&pb.Done{Id: c.Id, Played: &pb.PlayedMarker{StartNs: 2, EndNs: 1}})
		}, "ends before it begins"},
	} {
		t.Run(name, func(t *testing.T) {
			o := ends(t, dial(t, open), c.answer)
			if !strings.Contains(o.GetFailure().GetText(), c.why) {
				t.Errorf("got %q, want %q", o.GetFailure().GetText(), c.why)
			}
			r.incomplete(t, store.TaskID(o.GetTask().GetTaskId()), c.why)
		})
	}
}

// A daemon that is stopped tells who is being measured, and takes nobody in.
func stopped(t *testing.T, r *rig) {
	m := r.client.Measurement(true)
	id, err := m.Measure(t.Context(), r.config(), func(ctx context.Context) ([]gpu.Kernel, error) {
		if err := r.server.Close(t.Context()); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "being stopped") ||
		m.Task().State != store.Incomplete {
		t.Errorf("%v: %v", m.Task().State, err)
	}
	r.incomplete(t, id, "wattmark host is being stopped")
	if _, err := r.client.Measurement(true).Measure(t.Context(), r.config(), r.work); !errors.Is(err,
		ErrUnreachable) || !strings.Contains(err.Error(), "being stopped") {
		t.Errorf("another one: %v", err)
	}
}
