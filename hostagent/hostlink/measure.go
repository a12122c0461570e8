package hostlink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/hostagent/measurement"
	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/store"
)

const (
	// farewell is how long a daemon has to say what became of a measurement that
	// the program gave up.
	farewell = 30 * time.Second
	// usualLease is measurement.Measure's where none is asked for.
	usualLease = 30 * time.Second
)

// Measurement is one measurement through the daemon, on the program's side.
type Measurement struct {
	client   *Client
	noSensor bool

	stream  grpc.BidiStreamingClient[wattmarkv1.MeasureRequest, wattmarkv1.MeasureResponse]
	sending sync.Mutex
	opened  bool // the GPU; of the commands, which run one by one

	mu     sync.Mutex
	failed []error // of this side, that the daemon was told
	phase  measurement.Phase
	task   store.Brief
}

// Measurement prepares a measurement. The GPU's own sensor is read beside the
// meter unless noSensor.
func (c *Client) Measurement(noSensor bool) *Measurement {
	return &Measurement{client: c, noSensor: noSensor}
}

// Task is what the measurement came to, once Measure has returned; its ID is zero
// where there is no task. Of a result it has the totals, over a window that is
// counted from its begin. A task that the daemon did not live to finish is Running.
func (m *Measurement) Task() store.Brief {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.task
}

// Measure is measurement.Measure by the daemon, once. Of the configuration count
// Name, User, Holder, Device, Open, WarmUp, Wait, Lease, Provenance and Progress; database, monitor
// and sensor are the daemon's. ErrUnreachable when nobody answers, ErrLost when the
// daemon goes away; else the errors that measurement.Measure would return.
func (m *Measurement) Measure(ctx context.Context, cfg measurement.Config, work measurement.Work) (store.TaskID, error) {
	err := errors.Join(measure.CheckText("name", cfg.Name), measure.CheckText("user", cfg.User), measure.CheckText("holder", cfg.Holder))
	if err != nil {
		return 0, fmt.Errorf("measure: %w", err)
	}
	call, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	if m.stream, err = m.client.rpc.Measure(call); err != nil {
		return 0, m.client.fail(err)
	}
	// That it cannot be sent is told by receiving.
	_ = m.send(&wattmarkv1.MeasureRequest{Event: &wattmarkv1.MeasureRequest_Open{Open: &wattmarkv1.OpenMeasurement{
		Name: cfg.Name, User: cfg.User, Holder: cfg.Holder, Gpu: gpu(cfg.Device.Info()),
		Opens:  cfg.Open != nil,
		WarmUp: duration(cfg.WarmUp), Wait: duration(cfg.Wait), Lease: duration(cfg.Lease), NoSensor: m.noSensor,
		Pid: int64(os.Getpid()), Program: wire.Text(program()), Provenance: provenance(cfg.Provenance),
	}}})
	stop := context.AfterFunc(ctx, func() { m.giveUp(context.Cause(ctx), call, hangUp) })
	defer stop()
	err = m.follow(ctx, cfg, work)
	return m.Task().ID, err
}

func (m *Measurement) send(r *wattmarkv1.MeasureRequest) error {
	m.sending.Lock()
	defer m.sending.Unlock()
	return m.stream.Send(r)
}

// giveUp asks for the end, and does not wait for it for ever.
func (m *Measurement) giveUp(why error, call context.Context, hangUp func()) {
	_ = m.send(&wattmarkv1.MeasureRequest{Event: &wattmarkv1.MeasureRequest_Cancel{
		Cancel: &wattmarkv1.Cancel{Reason: wire.Text(why.Error())},
	}})
	timer := time.AfterFunc(farewell, hangUp)
	context.AfterFunc(call, func() { timer.Stop() })
}

// follow does as the daemon says until the outcome. Commands run one by one, beside
// the listening: while one runs the daemon may end all.
func (m *Measurement) follow(ctx context.Context, cfg measurement.Config, work measurement.Work) (err error) {
	side, cancel := context.WithCancelCause(ctx)
	commands := make(chan *wattmarkv1.Command, 1)
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
		case *wattmarkv1.MeasureResponse_Command:
			select {
			case commands <- e.Command:
			default:
				return fmt.Errorf("%w: %w: a command while another is being obeyed", ErrLost, wire.ErrMessage)
			}
		case *wattmarkv1.MeasureResponse_Progress:
			m.advance(cfg, e.Progress)
		case *wattmarkv1.MeasureResponse_Outcome:
			return m.conclude(ctx, e.Outcome)
		}
	}
}

// obey does what a command says and answers it. Who has given up has said so, and
// answers no more.
func (m *Measurement) obey(side, ctx context.Context, c *wattmarkv1.Command, cfg measurement.Config, work measurement.Work) {
	d := &wattmarkv1.Done{Id: c.Id}
	err := m.do(side, c, cfg, work, d)
	if ctx.Err() != nil || side.Err() != nil {
		return
	}
	if err != nil {
		m.mu.Lock()
		m.failed = append(m.failed, err)
		m.mu.Unlock()
		d.Failure = failure(err)
		d.Failure.Kind = wattmarkv1.FailureKind_FAILURE_KIND_PROGRAM
	}
	_ = m.send(&wattmarkv1.MeasureRequest{Event: &wattmarkv1.MeasureRequest_Done{Done: d}})
}

func (m *Measurement) do(ctx context.Context, c *wattmarkv1.Command, cfg measurement.Config, work measurement.Work, d *wattmarkv1.Done) error {
	if cfg.Open != nil && !m.opened { // a daemon of an older version does not ask for it
		if _, err := cfg.Open(ctx); err != nil {
			return err
		}
		m.opened = true
	}
	switch w := c.What.(type) {
	case *wattmarkv1.Command_WarmUp:
		t, err := parseDuration("warm-up", w.WarmUp.GetDuration())
		if err != nil {
			return err
		}
		return cfg.Device.WarmUp(ctx, t)
	case *wattmarkv1.Command_PlayMarker:
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
	case *wattmarkv1.Command_OpenGpu:
		d.Gpu = gpu(cfg.Device.Info())
		return nil
	case *wattmarkv1.Command_Work:
		k, err := work(ctx)
		d.Parts = parts(k)
		return err
	}
	return fmt.Errorf("%w: a command that is not known to this version", wire.ErrMessage)
}

// advance notes how far the daemon is.
func (m *Measurement) advance(cfg measurement.Config, p *wattmarkv1.MeasureProgress) {
	now := parsePhase(p.GetPhase())
	m.mu.Lock()
	m.phase = now
	if id := store.TaskID(p.GetTaskId()); id != 0 {
		m.task = store.Brief{ID: id, State: store.Running}
	}
	id := m.task.ID
	m.mu.Unlock()
	if cfg.Progress != nil {
		cfg.Progress(measurement.Progress{Task: id, Phase: now})
	}
}

// conclude takes the outcome.
func (m *Measurement) conclude(ctx context.Context, o *wattmarkv1.MeasureOutcome) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.GetTask() != nil {
		t, err := parseOutcome(o.Task)
		if err != nil {
			return fmt.Errorf("the daemon's outcome: %w", err)
		}
		m.task = t
	}
	here := m.failed
	if cause := context.Cause(ctx); cause != nil {
		here = append(here, cause)
	}
	return parseFailure(o.GetFailure(), here...)
}

// lost says what becomes of a measurement whose daemon went away.
func (m *Measurement) lost(ctx context.Context, err error, lease time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase == "" && ctx.Err() == nil {
		return m.client.fail(err)
	}
	if lease == 0 {
		lease = usualLease
	}
	text := fmt.Sprintf("%s, during %s: %s", m.client.path, m.phase, status.Convert(err).Message())
	if m.task.ID != 0 {
		text += fmt.Sprintf("; task %d is left unfinished: the bench is free once its lease of %v has run out, "+
			"and wattmark host, started again, fetches what the monitor kept", m.task.ID, lease)
	}
	return errors.Join(fmt.Errorf("%w: %s", ErrLost, text), context.Cause(ctx))
}
