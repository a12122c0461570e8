package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/machine"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Config is the daemon's side of its programs' measurements.
type Config struct {
	DB       measurement.Store
	Database string // where DB is, an absolute path
	Monitor  measurement.Monitor
	Owner    string // this process, as in measurement.Config
	// Admit refuses GPUs that cannot be measured; nil for none.
	Admit func(gpu.Info) error
	// Sensor opens the own sensor of a program's GPU; an error leaves it out. Nil
	// for none at all.
	Sensor  func(gpu.Info) (gpu.PowerSensor, func() error, error)
	Version string
	Log     *slog.Logger
}

// Server measures for the programs of its machine, one call of Measure a program. It is safe
// for concurrent use; measurements of one bench queue at the monitor.
//
//	Measure ─ sign (whose task) ─ config (what) ─ admit (which GPU) ─ measure
//	   └─ call.listen: answers, cancellation, and the end of the program
type Server struct {
	pb.UnimplementedHostServiceServer
	cfg     Config
	started time.Time

	mu      sync.Mutex
	closed  bool // no call enters any more
	calls   map[*call]struct{}
	running sync.WaitGroup
}

// NewServer makes a server.
func NewServer(cfg Config) *Server {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Admit == nil {
		cfg.Admit = func(gpu.Info) error { return nil }
	}
	return &Server{cfg: cfg, started: time.Now(), calls: map[*call]struct{}{}}
}

// Register adds HostService to a gRPC server, which must serve a unix socket alone: access to
// the socket is the right to measure, and both ends must read one clock.
func (s *Server) Register(r grpc.ServiceRegistrar) { pb.RegisterHostServiceServer(r, s) }

// Describe returns the daemon's version, database and monitor.
func (s *Server) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	return &pb.DescribeResponse{
		Version: s.cfg.Version, Pid: int64(os.Getpid()), Database: wire.Text(s.cfg.Database),
		Monitor: wire.Text(s.cfg.Monitor.Address()), Started: wire.Time(s.started),
	}, nil
}

// Owns reports whether a task is being measured right now.
func (s *Server) Owns(id store.TaskID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.calls {
		if c.task == id {
			return true
		}
	}
	return false
}

// Close cancels the running measurements and refuses new ones. It blocks until every program
// has its outcome, or ctx ends.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for c := range s.calls {
		c.cancel(fmt.Errorf("%w: wattmark host is being stopped", ErrLost))
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); s.running.Wait() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("measurements that do not end: %w", context.Cause(ctx))
	}
}

// enter registers a call, so that Close can cancel and await it, until leave.
func (s *Server) enter(c *call) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, status.Error(codes.Unavailable, "wattmark host is being stopped")
	}
	s.calls[c] = struct{}{}
	s.running.Add(1)
	return func() {
		s.mu.Lock()
		delete(s.calls, c)
		s.mu.Unlock()
		s.running.Done()
	}, nil
}

// Measure makes a program's measurement, and returns when the program has its outcome. What
// the program asks wrongly is an outcome with a Failure; only a broken stream, or a daemon
// that is being stopped, is an error of the call. The measurement does not end with the
// stream's context: a program that vanishes still gets a task with a state and a reason.
func (s *Server) Measure(stream grpc.BidiStreamingServer[pb.MeasureRequest, pb.MeasureResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	open := first.GetOpen()
	if open == nil {
		return status.Error(codes.InvalidArgument, "the first message must open a measurement")
	}
	s.sign(stream.Context(), open)
	cfg, err := s.config(open)
	if err != nil {
		return stream.Send(&pb.MeasureResponse{Event: &pb.MeasureResponse_Outcome{
			Outcome: &pb.MeasureOutcome{Failure: failure(err)},
		}})
	}
	// Not the stream's context: its end is the program's, which the task outlives.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(stream.Context()))
	defer cancel(nil)
	c := &call{
		stream: stream, cancel: cancel, answers: make(chan *pb.Done, 1),
		who: fmt.Sprintf("%s, process %d", wire.Text(open.GetProgram()), open.GetPid()),
	}
	leave, err := s.enter(c)
	if err != nil {
		return err
	}
	defer leave()
	go c.listen()
	task, err := s.measure(ctx, c, cfg)
	auth.Note(stream.Context(), "task_id", fmt.Sprint(int64(task.ID)))
	auth.Note(stream.Context(), "user", cfg.User)
	o := &pb.MeasureOutcome{Failure: failure(err)}
	if task.ID != 0 {
		o.Task = outcome(&task)
	}
	if err := c.send(&pb.MeasureResponse{Event: &pb.MeasureResponse_Outcome{Outcome: o}}); err != nil {
		return status.Errorf(codes.Unavailable, "the outcome could not be told: %v", err)
	}
	return nil
}

// sign sets the measurement's user to the caller's account where that is known; only an
// account with the right to speak for others keeps the name in the request.
func (s *Server) sign(ctx context.Context, p *pb.OpenMeasurement) {
	user := auth.User(ctx, p.User)
	if user == p.User {
		return
	}
	s.cfg.Log.Info("a program says another user's name: the task is its account's", "said", wire.Text(p.User), "user",
		user, "process", p.Pid)
	// The holder keeps its host, which the queue of the bench shows to other users.
	_, host, some := strings.Cut(p.Holder, "@")
	p.User, p.Holder = user, user
	if some {
		p.Holder += "@" + host
	}
}

// config converts a program's request. Texts and times are bounded, for the socket may serve
// other users; errors wrap wire.ErrMessage.
func (s *Server) config(p *pb.OpenMeasurement) (measurement.Config, error) {
	cfg := measurement.Config{
		DB: s.cfg.DB, Monitor: s.cfg.Monitor, Owner: s.cfg.Owner, Process: int(p.Pid),
		Name: p.Name, User: p.User, Holder: p.Holder,
	}
	var errs [3]error
	cfg.WarmUp, errs[0] = parseDuration("warm_up", p.WarmUp)
	cfg.Wait, errs[1] = parseDuration("wait", p.Wait)
	cfg.Lease, errs[2] = parseDuration("lease", p.Lease)
	info, err := parseGPU(p.Gpu)
	if err = errors.Join(errs[0], errs[1], errs[2], err); err != nil {
		return cfg, err
	}
	if len(p.Name) > wire.MaxText || len(p.User) > wire.MaxText || len(p.Holder) > wire.MaxText {
		return cfg, fmt.Errorf("%w: a name of more than %d bytes", wire.ErrMessage, wire.MaxText)
	}
	if cfg.Provenance, err = s.provenance(p.Provenance); err != nil {
		return cfg, err
	}
	cfg.Device = &device{info: info, opens: p.Opens}
	cfg.NoMethods = p.NoSensor
	if !p.NoSensor && (!info.Simulated || os.Getenv(machine.EnvRoot) != "") {
		cfg.Machine, _ = machine.Find("") // doctor reports those that cannot be read
	}
	// A GPU that is opened late is known, and admitted, only then (see open).
	if p.Opens && info.UUID == "" {
		return cfg, nil
	}
	return cfg, s.cfg.Admit(info)
}

// measure runs measurement.Measure with the program in the GPU's place, and returns the task as
// it is stored; with an error too, where there is one.
func (s *Server) measure(ctx context.Context, c *call, cfg measurement.Config) (task store.Brief, err error) {
	dev := cfg.Device.(*device)
	dev.call = c
	log := s.cfg.Log.With("name", cfg.Name, "user", cfg.User, "program", c.who)
	var closeSensor func() error
	cfg.Open = func(ctx context.Context) (own gpu.PowerSensor, err error) {
		own, closeSensor, err = s.open(ctx, dev, cfg.NoMethods, log)
		return own, err
	}
	cfg.Progress = func(p measurement.Progress) {
		// Progress comes ten times a second; a step of it is sent once.
		s.mu.Lock()
		news := c.task != p.Task || c.phase != p.Phase
		c.task, c.phase = p.Task, p.Phase
		s.mu.Unlock()
		if news { // a program that has gone is noticed by listen
			_ = c.send(&pb.MeasureResponse{Event: &pb.MeasureResponse_Progress{
				Progress: &pb.MeasureProgress{
					TaskId: int64(p.Task), Phase: pb.MeasurePhase(slices.Index(phases, p.Phase) + 1),
				},
			}})
		}
	}
	cfg.Warn = func(text string) { log.WarnContext(ctx, text) }
	log.InfoContext(ctx, "a program measures")
	id, err := measurement.Measure(ctx, cfg, dev.work)
	if closeSensor != nil {
		_ = closeSensor() // it was read from only
	}
	// The outcome is that in the database, which the measurement itself stored.
	if id != 0 {
		whole, readErr := s.cfg.DB.Task(context.WithoutCancel(ctx), id)
		if readErr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", ErrDatabase, readErr))
		}
		task = whole.Brief()
	}
	if err != nil {
		log.WarnContext(ctx, "a measurement failed", "task", int64(id), "error", err)
	} else {
		log.InfoContext(ctx, "a measurement has ended", "task", int64(id), "complete", task.State == store.Complete,
			"reason", task.Reason)
	}
	return task, err
}

// open has the program open its GPU, which is known and may be refused then, and opens that
// GPU's own sensor here: the daemon's NVML, for the program may have none. A sensor that cannot
// be opened is left out, with a line in the log. done closes the sensor; nil for nothing.
func (s *Server) open(
	ctx context.Context, dev *device, noSensor bool, log *slog.Logger,
) (own gpu.PowerSensor, done func() error, err error) {
	if dev.opens {
		answer, err := dev.call.ask(ctx, &pb.Command{What: &pb.Command_OpenGpu{OpenGpu: &pb.OpenGpu{}}})
		if err == nil {
			dev.info, err = parseGPU(answer.GetGpu())
		}
		if err == nil {
			err = s.cfg.Admit(dev.info)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if s.cfg.Sensor == nil || noSensor {
		return nil, nil, nil
	}
	if own, done, err = s.cfg.Sensor(dev.info); err != nil {
		log.InfoContext(ctx, "measuring without the GPU's own sensor", "error", err)
		return nil, nil, nil
	}
	return own, done, nil
}

// errVanished: the stream ended before the measurement.
var errVanished = fmt.Errorf("%w vanished", ErrProgram)

// call is one program's measurement on the daemon's side. ask and listen are its two
// goroutines: ask sends commands, listen passes on their answers.
type call struct {
	stream  grpc.BidiStreamingServer[pb.MeasureRequest, pb.MeasureResponse]
	cancel  context.CancelCauseFunc
	answers chan *pb.Done
	who     string // the program and its process, for the log
	ids     uint64 // of commands

	sending sync.Mutex

	task  store.TaskID // by Server.mu
	phase measurement.Phase
}

// send sends one message; the stream allows one sender at a time.
func (c *call) send(m *pb.MeasureResponse) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.Send(m)
}

// listen receives the program's messages until the stream ends. That also cancels the
// measurement: after the outcome it has no effect.
func (c *call) listen() {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			c.cancel(fmt.Errorf("%w (%s)", errVanished, c.who))
			return
		}
		switch e := m.Event.(type) {
		case *pb.MeasureRequest_Done:
			select {
			case c.answers <- e.Done:
			default:
				c.cancel(fmt.Errorf("%w: an answer to no command", wire.ErrMessage))
			}
		case *pb.MeasureRequest_Cancel:
			c.cancel(fmt.Errorf("%w: %s", errCancelled, wire.Text(e.Cancel.GetReason())))
		default:
			c.cancel(fmt.Errorf("%w: a measurement is open already", wire.ErrMessage))
		}
	}
}

// ask sends the program a command and blocks until its answer or ctx's end. Commands are
// numbered from 1: an answer to another number is an error. A failure of the program wraps
// ErrProgram, its end errVanished.
func (c *call) ask(ctx context.Context, command *pb.Command) (*pb.Done, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c.ids++
	command.Id = c.ids
	m := &pb.MeasureResponse{Event: &pb.MeasureResponse_Command{Command: command}}
	if err := c.send(m); err != nil {
		return nil, fmt.Errorf("%w (%s)", errVanished, c.who)
	}
	select {
	case done := <-c.answers:
		if done.GetId() != c.ids {
			return nil, fmt.Errorf("%w: an answer to command %d, %d was given", wire.ErrMessage, done.GetId(), c.ids)
		}
		if f := done.GetFailure(); f != nil {
			return nil, fmt.Errorf("%w: %s", ErrProgram, wire.Text(f.GetText()))
		}
		return done, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// device is the program's GPU as a measurement on the daemon's side sees it.
type device struct {
	info  gpu.Info
	opens bool // the program opens its GPU at a command
	call  *call
}

// Info identifies the program's GPU; it is empty until a GPU that opens late is open.
func (d *device) Info() gpu.Info { return d.info }

// WarmUp has the program load its GPU, and returns when it has.
func (d *device) WarmUp(ctx context.Context, t time.Duration) error {
	warm := &pb.WarmUp{Duration: duration(t)}
	_, err := d.call.ask(ctx, &pb.Command{What: &pb.Command_WarmUp{WarmUp: warm}})
	return err
}

// PlayMarker has the program play a marker, and returns its edges on the common clock.
func (d *device) PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (gpu.Played, error) {
	play := &pb.PlayMarker{Marker: wire.MarkerSpec(spec), Kind: pb.MarkerKind(kind)}
	done, err := d.call.ask(ctx, &pb.Command{What: &pb.Command_PlayMarker{PlayMarker: play}})
	if err != nil {
		return gpu.Played{}, err
	}
	return parsePlayed(kind, done.GetPlayed())
}

// work lets the program work.
func (d *device) work(ctx context.Context) ([]gpu.Kernel, error) {
	done, err := d.call.ask(ctx, &pb.Command{What: &pb.Command_Work{Work: &pb.Work{}}})
	if err != nil {
		return nil, err
	}
	return parseParts(done.GetParts())
}

// RunBenchmark is never asked of a program: its work is its own.
func (d *device) RunBenchmark(context.Context, gpu.Benchmark, time.Duration) ([]gpu.Kernel, error) {
	return nil, errors.ErrUnsupported
}

// Close leaves the program its GPU.
func (d *device) Close() error { return nil }
