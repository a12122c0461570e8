// Package daemon carries a measurement between a program and the host daemon
// (wattmark host). Both ends are here, and the unix socket on which they meet.
//
//	program                        daemon
//	───────                        ──────
//	Measurement.Measure ──open──▶  Server: measurement.Measure with monitor,
//	                                 database and sensor of its own, and a
//	                                 Device that forwards to the program
//	the real Device  ◀─commands──    warm up, play a marker
//	the program's work ◀─command─    work
//	                  ──parts───▶
//	                  ◀─outcome──
//
// Measurement.Measure has the signature and the effect of measurement.Measure. Exported
// types are the product's own; generated protocol types stay inside.
//
// The daemon listens at the first of these places that fits, and FindSocket looks in
// all of them, in this order:
//
//	$XDG_RUNTIME_DIR/wattmark/host.sock    where the variable is set
//	/run/wattmark/host.sock                where the daemon may write that folder
//	$TMPDIR/wattmark-UID/host.sock         /tmp where TMPDIR is not set
//
// WATTMARK_HOST=unix:PATH names another socket; WATTMARK_HOST=none disables the daemon.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// callTime is how long a daemon has to answer a short call.
const callTime = 15 * time.Second

// Client talks to the daemon at one socket. It is safe for concurrent use.
type Client struct {
	path string
	conn *grpc.ClientConn
	rpc  pb.HostServiceClient
}

// Dial prepares a client of the daemon at a unix socket. It does not connect: the first call
// does, and fails with ErrUnreachable.
func Dial(path string) (*Client, error) {
	conn, err := grpc.NewClient("passthrough:///host", append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}))...)
	if err != nil {
		return nil, fmt.Errorf("wattmark host at %s: %w", path, err)
	}
	return &Client{path: path, conn: conn, rpc: pb.NewHostServiceClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Description is the identity of a daemon, and where it stores and measures.
type Description struct {
	Version  string
	PID      int
	Database string // an absolute path
	Monitor  string // host:port
	Started  time.Time
}

// Describe returns the daemon's description. ErrUnreachable where no daemon answers within
// callTime.
func (c *Client) Describe(ctx context.Context) (Description, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	r, err := c.rpc.Describe(ctx, &pb.DescribeRequest{})
	if err != nil {
		return Description{}, c.fail(err)
	}
	at, err := wire.ParseTime("started", r.Started)
	return Description{Version: r.Version, PID: int(r.Pid), Database: r.Database, Monitor: r.Monitor, Started: at}, err
}

// fail words the failure of a call that never became a measurement, with the remedy.
func (c *Client) fail(err error) error {
	s := status.Convert(err)
	hint := "is wattmark host running there? start it, remove the socket, or set WATTMARK_HOST=none to measure " +
		"without it"
	if s.Code() == codes.Unimplemented {
		hint = "what listens there is no wattmark host of this version"
	}
	return fmt.Errorf("%w: %s: %s; %s", ErrUnreachable, c.path, s.Message(), hint)
}

const (
	// farewell is how long a daemon has to send the outcome of a measurement that the program
	// gave up.
	farewell = 30 * time.Second
	// usualLease is measurement.Measure's where none is asked for.
	usualLease = 30 * time.Second
)

// Measurement is one measurement through the daemon, on the program's side. Measure is called
// once; Task may be called at any time, from any goroutine.
type Measurement struct {
	client   *Client
	noSensor bool

	stream  grpc.BidiStreamingClient[pb.MeasureRequest, pb.MeasureResponse]
	sending sync.Mutex
	opened  bool // the GPU; of the commands, which run one by one

	mu     sync.Mutex
	failed []error // errors of this side, which the daemon has
	phase  measurement.Phase
	task   store.Brief
}

// Measurement prepares a measurement. The GPU's own sensor is read beside the
// meter unless noSensor.
func (c *Client) Measurement(noSensor bool) *Measurement {
	return &Measurement{client: c, noSensor: noSensor}
}

// Task returns the measurement's task, once Measure has returned; its ID is zero where there
// is none. Its result has the totals, over a window that is counted from its begin. A task
// that the daemon did not live to finish is Running.
func (m *Measurement) Task() store.Brief {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.task
}

// Measure is measurement.Measure by the daemon, once. It uses Name, User, Holder, Device,
// Open, WarmUp, Wait, Lease, Provenance and Progress of the configuration; database, monitor
// and sensor are the daemon's. Device and work run on this side, one command at a time.
// ErrUnreachable where no daemon answers, ErrLost when it goes away; else the errors of
// measurement.Measure.
func (m *Measurement) Measure(
	ctx context.Context, cfg measurement.Config, work measurement.Work,
) (store.TaskID, error) {
	err := errors.Join(measure.CheckText("name", cfg.Name), measure.CheckText("user", cfg.User),
		measure.CheckText("holder", cfg.Holder))
	if err != nil {
		return 0, fmt.Errorf("measure: %w", err)
	}
	// The stream outlives ctx: after the cancellation the daemon still sends the outcome.
	call, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	if m.stream, err = m.client.rpc.Measure(call); err != nil {
		return 0, m.client.fail(err)
	}
	// A failure to send shows at the next Recv.
	_ = m.send(&pb.MeasureRequest{Event: &pb.MeasureRequest_Open{Open: &pb.OpenMeasurement{
		Name: cfg.Name, User: cfg.User, Holder: cfg.Holder, Gpu: gpuMessage(cfg.Device.Info()), Opens: cfg.Open != nil,
		WarmUp: duration(cfg.WarmUp), Wait: duration(cfg.Wait), Lease: duration(cfg.Lease), NoSensor: m.noSensor,
		Pid: int64(os.Getpid()), Program: wire.Text(filepath.Base(os.Args[0])), Provenance: provenance(cfg.Provenance),
	}}})
	// A measurement that the program gives up still has farewell for its outcome.
	defer context.AfterFunc(ctx, func() {
		_ = m.send(&pb.MeasureRequest{Event: &pb.MeasureRequest_Cancel{
			Cancel: &pb.Cancel{Reason: wire.Text(context.Cause(ctx).Error())},
		}})
		timer := time.AfterFunc(farewell, hangUp)
		context.AfterFunc(call, func() { timer.Stop() })
	})()
	err = m.follow(ctx, cfg, work)
	return m.Task().ID, err
}

// send sends one message; the stream allows one sender at a time.
func (m *Measurement) send(r *pb.MeasureRequest) error {
	m.sending.Lock()
	defer m.sending.Unlock()
	return m.stream.Send(r)
}

// follow obeys the daemon's commands until the outcome. They run one by one on another
// goroutine, for the daemon may end the measurement while one runs.
func (m *Measurement) follow(ctx context.Context, cfg measurement.Config, work measurement.Work) (err error) {
	// side ends with this call: a command that still runs then is cancelled, and not answered.
	side, cancel := context.WithCancelCause(ctx)
	commands := make(chan *pb.Command, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c := range commands {
			m.obey(side, ctx, c, cfg, work)
		}
	}()
	defer func() {
		cancel(err)
		close(commands)
		<-done // the device is the caller's again
	}()
	for {
		r, err := m.stream.Recv()
		if err != nil {
			return m.lost(ctx, err, cfg.Lease)
		}
		switch e := r.Event.(type) {
		case *pb.MeasureResponse_Command:
			select {
			case commands <- e.Command:
			default:
				return fmt.Errorf("%w: %w: a command while another is being obeyed", ErrLost, wire.ErrMessage)
			}
		case *pb.MeasureResponse_Progress:
			// The daemon's phase and task are noted, and reported.
			now := measurement.Phase("a step of another version")
			if n := e.Progress.GetPhase(); n >= 1 && int(n) <= len(phases) {
				now = phases[n-1]
			}
			m.mu.Lock()
			m.phase = now
			if id := store.TaskID(e.Progress.GetTaskId()); id != 0 {
				m.task = store.Brief{ID: id, State: store.Running}
			}
			id := m.task.ID
			m.mu.Unlock()
			if cfg.Progress != nil {
				cfg.Progress(measurement.Progress{Task: id, Phase: now})
			}
		case *pb.MeasureResponse_Outcome:
			return m.conclude(ctx, e.Outcome)
		}
	}
}

// obey executes a command and answers it, unless the measurement was given up meanwhile.
func (m *Measurement) obey(side, ctx context.Context, c *pb.Command, cfg measurement.Config, work measurement.Work) {
	d := &pb.Done{Id: c.Id}
	err := m.do(side, c, cfg, work, d)
	if ctx.Err() != nil || side.Err() != nil {
		return
	}
	if err != nil {
		m.mu.Lock()
		m.failed = append(m.failed, err)
		m.mu.Unlock()
		d.Failure = failure(err)
		d.Failure.Kind = pb.FailureKind_FAILURE_KIND_PROGRAM
	}
	_ = m.send(&pb.MeasureRequest{Event: &pb.MeasureRequest_Done{Done: d}})
}

// do executes a command on this side's device, and fills the answer.
func (m *Measurement) do(
	ctx context.Context, c *pb.Command, cfg measurement.Config, work measurement.Work, d *pb.Done,
) error {
	if cfg.Open != nil && !m.opened { // a daemon of an older version does not ask for it
		if _, err := cfg.Open(ctx); err != nil {
			return err
		}
		m.opened = true
	}
	switch w := c.What.(type) {
	case *pb.Command_WarmUp:
		t, err := parseDuration("warm-up", w.WarmUp.GetDuration())
		if err != nil {
			return err
		}
		return cfg.Device.WarmUp(ctx, t)
	case *pb.Command_PlayMarker:
		spec, err := wire.ParseMarkerSpec(w.PlayMarker.GetMarker())
		if err == nil {
			err = spec.Validate()
		}
		if err != nil {
			return err
		}
		p, err := cfg.Device.PlayMarker(ctx, spec, marker.Kind(w.PlayMarker.GetKind()))
		if err == nil {
			d.Played = played(p)
		}
		return err
	case *pb.Command_OpenGpu:
		d.Gpu = gpuMessage(cfg.Device.Info())
		return nil
	case *pb.Command_Work:
		k, err := work(ctx)
		d.Parts = lists.Map(k, part)
		return err
	}
	return fmt.Errorf("%w: a command that is not known to this version", wire.ErrMessage)
}

// conclude stores the outcome's task and returns its failure, which wraps the errors of this
// side that caused it: errors.Is finds them as if the measurement had been made here.
func (m *Measurement) conclude(ctx context.Context, o *pb.MeasureOutcome) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.GetTask() != nil {
		t, err := parseOutcome(o.Task)
		if err != nil {
			return fmt.Errorf("the daemon's outcome: %w", err)
		}
		m.task = t
	}
	// The daemon has texts and kinds only; the errors themselves are here.
	here := m.failed
	if cause := context.Cause(ctx); cause != nil {
		here = append(here, cause)
	}
	return parseFailure(o.GetFailure(), here...)
}

// lost words the loss of the daemon: ErrLost, with the fate of the task.
func (m *Measurement) lost(ctx context.Context, err error, lease time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase == "" && ctx.Err() == nil {
		return m.client.fail(err)
	}
	lease = cmp.Or(lease, usualLease)
	text := fmt.Sprintf("%s, during %s: %s", m.client.path, m.phase, status.Convert(err).Message())
	if m.task.ID != 0 {
		text += fmt.Sprintf("; task %d is left unfinished: the bench is free once its lease of %v has run out, and "+
			"wattmark host, started again, fetches what the monitor kept", m.task.ID, lease)
	}
	return errors.Join(fmt.Errorf("%w: %s", ErrLost, text), context.Cause(ctx))
}
