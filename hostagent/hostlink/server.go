package hostlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/auth"
	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/store"
)

// Config is what a daemon measures with.
type Config struct {
	DB       measurement.Store
	Database string // where DB is, an absolute path
	Monitor  measurement.Monitor
	Owner    string // this process, as in measurement.Config
	// Admit refuses GPUs that cannot be measured; nil for none.
	Admit func(hostagent.Info) error
	// Sensor opens the own sensor of a program's GPU; an error leaves it out. Nil
	// for none at all.
	Sensor  func(hostagent.Info) (hostagent.PowerSensor, func() error, error)
	Version string
	Log     *slog.Logger
}

// Server measures for the programs of its machine. It is safe for concurrent use;
// the monitor lets one measurement in at a time.
type Server struct {
	wattmarkv1.UnimplementedHostServiceServer
	cfg     Config
	started time.Time

	mu      sync.Mutex
	closed  bool
	calls   map[*call]struct{}
	running sync.WaitGroup
}

// NewServer makes a server.
func NewServer(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, started: time.Now(), calls: map[*call]struct{}{}}
}

// Register adds HostService to a server, which is to serve a unix socket alone:
// who reaches it can measure, and both ends must read one clock.
func (s *Server) Register(r grpc.ServiceRegistrar) { wattmarkv1.RegisterHostServiceServer(r, s) }

// Describe tells where the daemon measures and stores.
func (s *Server) Describe(context.Context, *wattmarkv1.DescribeRequest) (*wattmarkv1.DescribeResponse, error) {
	return &wattmarkv1.DescribeResponse{
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

// Close gives up what is being measured and lets nobody begin any more. It returns
// when all programs have been told what became of their tasks, or ctx ends.
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

// enter takes a call in.
func (s *Server) enter(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return status.Error(codes.Unavailable, "wattmark host is being stopped")
	}
	s.calls[c] = struct{}{}
	s.running.Add(1)
	return nil
}

func (s *Server) leave(c *call) {
	s.mu.Lock()
	delete(s.calls, c)
	s.mu.Unlock()
	s.running.Done()
}

// Measure makes a program's measurement.
func (s *Server) Measure(stream grpc.BidiStreamingServer[wattmarkv1.MeasureRequest, wattmarkv1.MeasureResponse]) error {
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
		return stream.Send(&wattmarkv1.MeasureResponse{Event: &wattmarkv1.MeasureResponse_Outcome{
			Outcome: &wattmarkv1.MeasureOutcome{Failure: failure(err)},
		}})
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(stream.Context()))
	defer cancel(nil)
	c := &call{
		stream: stream, cancel: cancel, answers: make(chan *wattmarkv1.Done, 1),
		who: fmt.Sprintf("%s, process %d", wire.Text(open.GetProgram()), open.GetPid()),
	}
	if err := s.enter(c); err != nil {
		return err
	}
	defer s.leave(c)
	go c.listen()
	task, err := s.measure(ctx, c, cfg)
	auth.Note(stream.Context(), "task_id", fmt.Sprint(int64(task.ID)))
	auth.Note(stream.Context(), "user", cfg.User)
	return c.end(task, err)
}

// sign makes a measurement the caller's, where it is known who calls: only who may
// speak for others says for whom it is.
func (s *Server) sign(ctx context.Context, p *wattmarkv1.OpenMeasurement) {
	user := auth.User(ctx, p.User)
	if user == p.User {
		return
	}
	s.cfg.Log.Info("a program says another user's name: the task is its account's", "said", wire.Text(p.User), "user", user, "process", p.Pid)
	_, host, some := strings.Cut(p.Holder, "@")
	p.User, p.Holder = user, user
	if some {
		p.Holder += "@" + host
	}
}

// config is a measurement as a program asks for it.
func (s *Server) config(p *wattmarkv1.OpenMeasurement) (measurement.Config, error) {
	cfg := measurement.Config{DB: s.cfg.DB, Monitor: s.cfg.Monitor, Owner: s.cfg.Owner, Process: int(p.Pid), Name: p.Name, User: p.User, Holder: p.Holder}
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
	if p.Opens && info.UUID == "" { // known once it is open
		return cfg, nil
	}
	return cfg, s.admit(info)
}

// admit refuses a GPU that cannot be measured.
func (s *Server) admit(gpu hostagent.Info) error {
	if s.cfg.Admit == nil {
		return nil
	}
	return s.cfg.Admit(gpu)
}

// measure does it, with the program in the GPU's place.
func (s *Server) measure(ctx context.Context, c *call, cfg measurement.Config) (task store.Brief, err error) {
	dev := cfg.Device.(*device)
	dev.call = c
	log := s.cfg.Log.With("name", cfg.Name, "user", cfg.User, "program", c.who)
	var closeSensor func() error
	cfg.Open = func(ctx context.Context) (hostagent.PowerSensor, error) {
		if dev.opens {
			if err := dev.open(ctx); err != nil {
				return nil, err
			}
			if err := s.admit(dev.info); err != nil {
				return nil, err
			}
		}
		if s.cfg.Sensor == nil || cfg.NoMethods {
			return nil, nil
		}
		sensor, done, err := s.cfg.Sensor(dev.info)
		if err != nil {
			log.InfoContext(ctx, "measuring without the GPU's own sensor", "error", err)
			return nil, nil
		}
		closeSensor = done
		return sensor, nil
	}
	defer func() {
		if closeSensor != nil {
			_ = closeSensor() // it was read from only
		}
	}()
	cfg.Progress = func(p measurement.Progress) { s.progress(c, p) }
	cfg.Warn = func(text string) { log.WarnContext(ctx, text) }
	log.InfoContext(ctx, "a program measures")
	id, err := measurement.Measure(ctx, cfg, dev.work)
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
		log.InfoContext(ctx, "a measurement has ended", "task", int64(id), "complete", task.State == store.Complete, "reason", task.Reason)
	}
	return task, err
}

// progress tells the program of each step once.
func (s *Server) progress(c *call, p measurement.Progress) {
	s.mu.Lock()
	news := c.task != p.Task || c.phase != p.Phase
	c.task, c.phase = p.Task, p.Phase
	s.mu.Unlock()
	if news {
		// A program that has gone is noticed by listen.
		_ = c.send(&wattmarkv1.MeasureResponse{Event: &wattmarkv1.MeasureResponse_Progress{
			Progress: &wattmarkv1.MeasureProgress{TaskId: int64(p.Task), Phase: phase(p.Phase)},
		}})
	}
}
