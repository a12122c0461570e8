package main

import (
	"context"
	"fmt"
	"time"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/marker"
	"wattmark/store"
)

// trimming makes captures one after the other.
type trimming struct {
	p       *monitorProcess
	spec    marker.Spec
	perScan float64

	inside       float64 // seconds in the monitor
	stop, header time.Duration
	bytes        uint64
	scans        uint64
}

// one makes a capture that lasts, markers and leads included, about the given time.
func (t *trimming) one(ctx context.Context, length time.Duration) error {
	_, holder := whoami()
	started, err := t.p.client.Start(ctx, monitorclient.StartRequest{Holder: holder, TaskName: "bench", Marker: t.spec})
	if err != nil {
		return err
	}
	note, err := t.p.ask("usage")
	if err != nil {
		return err
	}
	work := length - t.spec.Duration().Duration() - generatorLead
	if !sleepUntil(ctx, time.Unix(0, note.BegunNS).Add(work)) {
		return ctx.Err()
	}
	if _, err := t.p.ask("stop"); err != nil {
		return err
	}
	if !sleepUntil(ctx, time.Now().Add(generatorLead)) {
		return ctx.Err()
	}
	begin := time.Now()
	sum, err := t.p.client.Stop(ctx, started.CaptureID)
	t.stop = time.Since(begin)
	if err != nil {
		return err
	}
	if sum.State != monitorclient.Complete || sum.Window == nil {
		return fmt.Errorf("ended in state %d without a window: %s%s", sum.State, sum.Reason, sum.NoWindowReason)
	}
	first := headerClock{begin: begin}
	if _, err := t.p.client.Read(ctx, monitorclient.ReadOptions{CaptureID: started.CaptureID}, &first); err != nil {
		return err
	}
	t.header, t.scans = first.took, sum.Scans
	if note, err = t.p.ask("usage"); err != nil {
		return err
	}
	t.inside = note.StopS
	return t.release(ctx, started.CaptureID)
}

// release notes the size in the spool and lets go of the capture.
func (t *trimming) release(ctx context.Context, id string) error {
	held, err := t.p.client.Captures(ctx)
	if err != nil {
		return err
	}
	for _, c := range held {
		if c.ID == id {
			t.bytes = c.SpoolBytes
			t.perScan = float64(t.bytes) / float64(t.scans)
		}
	}
	return t.p.client.Release(ctx, id)
}

// headerClock notes when the header came.
type headerClock struct {
	begin time.Time
	took  time.Duration
}

func (h *headerClock) Header(store.Header, uint64) error {
	h.took = time.Since(h.begin)
	return nil
}
func (h *headerClock) Chunk(*chunk.Chunk) error  { return nil }
func (h *headerClock) Event(measure.Event) error { return nil }
