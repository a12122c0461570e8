package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure/marker"
	"wattmark/store"
)

// stream is a streamRun under way.
type stream struct {
	run *streamRun
	p   *monitorProcess
	db  *clockedStore
	id  string // of the capture
	n   measurement.Counters

	begun         time.Time   // the generator's first scan
	host, monitor monitorNote // used by the processes: before, then during
	summary       monitorclient.Summary
	trailer       monitorclient.Trailer
	delivered     int64
}

// capture takes the bench, streams, stops, and waits until all is stored.
func (s *stream) capture(ctx context.Context) error {
	bench, err := s.p.client.GetBench(ctx)
	if err != nil {
		return err
	}
	spec := marker.ProfileFor(bench.Setup, s.run.monitor.tag)
	_, holder := whoami()
	started, err := s.p.client.Start(ctx, monitorclient.StartRequest{Holder: holder, TaskName: "bench", Marker: spec})
	if err != nil {
		return err
	}
	s.id = started.CaptureID
	task, err := s.db.BeginTask(ctx, store.NewTask{
		Name: "bench", User: "bench", Launched: time.Now(), Monitor: s.p.client.Address(), CaptureID: s.id, Marker: spec,
	})
	if err != nil {
		return err
	}
	if err := s.transfer(ctx, task); err != nil {
		return err
	}
	return s.conclude()
}

// transfer streams until the capture was stopped and all of it is stored.
func (s *stream) transfer(ctx context.Context, task store.TaskID) error {
	g, gctx := errgroup.WithContext(ctx)
	side, cancel := context.WithCancel(gctx)
	defer cancel()
	g.Go(func() error { return s.p.client.KeepLease(side, s.id, 0) })
	g.Go(func() error { return s.feed(side) })
	g.Go(func() error { return s.stopAfter(gctx) })
	g.Go(func() (err error) {
		defer cancel() // the lease and the feed are no longer needed
		s.trailer, err = measurement.Transfer(gctx, s.db, s.p.client, task, monitorclient.ReadOptions{CaptureID: s.id, Follow: true}, &s.n)
		return err
	})
	return g.Wait()
}

// feed lets the generator go on as the database follows.
func (s *stream) feed(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !s.run.monitor.paced {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.p.allow(s.n.Scans.Load() + backlogScans); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

// stopAfter plays the stop marker after the run's length, as a host does, and
// stops the capture.
func (s *stream) stopAfter(ctx context.Context) error {
	note, err := s.p.ask("usage")
	if err != nil {
		return err
	}
	s.begun = time.Unix(0, note.BegunNS)
	for next := s.begun; time.Since(s.begun) < s.run.length; {
		next = next.Add(min(time.Second, s.run.length))
		if !sleepUntil(ctx, next) {
			return fmt.Errorf("the stream ended before its time: %w", context.Cause(ctx))
		}
		if s.run.each == nil {
			continue
		}
		if note, err = s.p.ask("usage"); err != nil {
			return err
		}
		s.run.each(time.Since(s.begun), processUsage(), note)
	}
	if _, err := s.p.ask("stop"); err != nil {
		return err
	}
	// A host waits until the marker must have been seen; without a pace there is
	// nothing to wait for.
	if s.run.monitor.paced && !sleepUntil(ctx, time.Now().Add(generatorLead)) {
		return context.Cause(ctx)
	}
	s.summary, err = s.p.client.Stop(ctx, s.id)
	return err
}

func (s *stream) conclude() error {
	host := processUsage()
	monitor, err := s.p.ask("usage")
	if err != nil {
		return err
	}
	s.host.UserS, s.host.SystemS = host.UserS-s.host.UserS, host.SystemS-s.host.SystemS
	s.monitor.UserS, s.monitor.SystemS = monitor.UserS-s.monitor.UserS, monitor.SystemS-s.monitor.SystemS
	s.delivered = monitor.Scans
	switch {
	case len(s.db.done) == 0:
		return errors.New("no chunk was stored")
	case s.summary.State != monitorclient.Complete:
		return fmt.Errorf("the capture ended incomplete: %s", s.summary.Reason)
	case s.summary.Window == nil:
		return fmt.Errorf("the capture has no window: %s", s.summary.NoWindowReason)
	}
	return nil
}
