package measurement

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure/marker"
	"wattmark/store"
)

// begin takes the bench and records the task. Before the capture has started
// there is nothing to record: an error leaves no task.
func begin(ctx context.Context, cfg Config) (*session, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Lease == 0 {
		cfg.Lease = defaultLease
	}
	if cfg.Holder == "" {
		cfg.Holder = cfg.User
	}
	// The bench is not for who has nowhere to put what it measures.
	if err := cfg.DB.Room(ctx); err != nil {
		return nil, fmt.Errorf("no room for a task: %w", err)
	}
	s := &session{cfg: cfg, line: cfg.line}
	if s.line == nil {
		s.line = newTimeline(cfg.Now)
	}
	if cfg.Records {
		s.line.others()
	}
	s.enter(PhaseBench)
	var err error
	if s.bench, err = cfg.Monitor.GetBench(ctx); err != nil {
		return nil, err
	}
	if len(s.bench.Setup.Channels) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrBench, s.bench.Trouble)
	}
	if gpu := cfg.Device.Info(); gpu.UUID != "" || cfg.Open == nil {
		if err := checkGPU(&s.bench, cfg.Monitor.Address(), gpu, cfg.MustSayGPU); err != nil {
			return nil, err
		}
	}
	if s.spec, err = s.chooseMarker(); err != nil {
		return nil, err
	}
	s.enter(PhaseCapture)
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.abandon(ctx))
	}
	measuring.Store(s.capture, true)
	info := hostagent.Identify(cfg.Device.Info(), s.cfg.Sensor)
	s.id, err = cfg.DB.BeginTask(ctx, store.NewTask{
		Name: cfg.Name, User: cfg.User, Job: cfg.Job, Launched: s.line.at(s.line.now()), Monitor: cfg.Monitor.Address(), CaptureID: s.capture,
		GPU: info.Name, GPUUUID: info.UUID, Driver: info.Driver, Marker: s.spec,
		Owner: cfg.Owner, Group: cfg.Group, Tags: cfg.Tags, Note: cfg.Note, Provenance: s.provenance(ctx),
	})
	if err != nil {
		measuring.Delete(s.capture)
		return nil, errors.Join(err, s.abandon(ctx))
	}
	s.tell()
	return s, nil
}

// provenance is what the caller knows of where the task comes from, the version that
// the monitor tells, and the trace.
func (s *session) provenance(ctx context.Context) *store.Provenance {
	if s.cfg.Provenance == nil {
		return nil
	}
	p := *s.cfg.Provenance
	p.MonitorVersion, p.TraceID = s.bench.Version, traceID(ctx)
	return &p
}

// start takes the bench. When the caller gives up meanwhile the monitor still
// has a moment to answer: a capture can be stopped only by who knows its name.
func (s *session) start(ctx context.Context) (err error) {
	ctx, done := step(ctx, "start capture")
	defer func() { done(err) }()
	if err := ctx.Err(); err != nil {
		return err
	}
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(courtesy, cancel)
		context.AfterFunc(call, func() { timer.Stop() })
	})
	defer stop()
	started, err := s.cfg.Monitor.Start(call, monitorclient.StartRequest{
		Holder: s.cfg.Holder, TaskName: s.cfg.Name, Marker: s.spec, Lease: s.cfg.Lease, Wait: s.cfg.Wait,
	})
	gaveUp := context.Cause(ctx)
	if err != nil {
		return errors.Join(err, gaveUp)
	}
	if s.capture = started.CaptureID; gaveUp != nil {
		return errors.Join(gaveUp, s.abandon(ctx))
	}
	return nil
}

// open opens the GPU while the bench is held: nobody else's measurement sees it.
func (s *session) open(ctx context.Context) error {
	if s.cfg.Open == nil {
		return nil
	}
	lease := s.keepLease(ctx)
	sensor, err := s.cfg.Open(ctx)
	if err := errors.Join(err, lease()); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if sensor != nil {
		s.cfg.Sensor = sensor
	}
	return checkGPU(&s.bench, s.cfg.Monitor.Address(), s.cfg.Device.Info(), s.cfg.MustSayGPU)
}

// abandon frees the bench of a capture that has no task.
func (s *session) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if _, err := s.cfg.Monitor.Stop(ctx, s.capture); err != nil {
		return err
	}
	return s.cfg.Monitor.Release(ctx, s.capture)
}

// chooseMarker fits the marker to the bench, and gives it a tag.
func (s *session) chooseMarker() (marker.Spec, error) {
	tag := s.cfg.Tag
	if tag == 0 {
		tag = rand.Uint32()
	}
	if s.cfg.Lead == 0 {
		r := s.bench.Setup.Response
		s.cfg.Lead = max(leastLead, (2*(r.Update+r.Window) + 5*r.Tau).Duration())
	}
	if s.cfg.Marker != nil {
		return *s.cfg.Marker, s.cfg.Marker.Validate()
	}
	spec := marker.ProfileFor(s.bench.Setup, tag)
	return spec, spec.Validate()
}
