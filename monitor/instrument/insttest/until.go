package insttest

import (
	"context"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// streamTime is what a stream of a test may take.
const streamTime = 20 * time.Second

// until stops a stream after n scans; halfway it calls then.
type until struct {
	*Collector
	n    int
	then func()
	stop func()
	seen int
}

func (u *until) Block(b *measure.Block) error {
	if err := u.Collector.Block(b); err != nil {
		return err
	}
	u.seen += b.Scans()
	if u.then != nil && u.seen >= u.n/2 {
		u.then()
		u.then = nil
	}
	if u.seen >= u.n {
		u.stop()
	}
	return nil
}

// For makes a collector for an instrument's inputs.
func For(in instrument.Inputs) *Collector {
	return &Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
}

// Stream streams until n scans have come, 20 s have passed, or the stream fails;
// halfway it calls then, which may be nil.
func Stream(t *testing.T, i instrument.Instrument, n int, then func()) (*Collector, error) {
	t.Helper()
	out := For(i.Inputs())
	ctx, cancel := context.WithTimeout(t.Context(), streamTime)
	defer cancel()
	return out, i.Stream(ctx, &until{Collector: out, n: n, then: then, stop: cancel})
}

// Collect is Stream for a test that wants all n scans.
func Collect(t *testing.T, i instrument.Instrument, n int, then func()) *Collector {
	t.Helper()
	out, err := Stream(t, i, n, then)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(out.Scans()); got < n {
		t.Fatalf("only %d of %d scans in %v; events %+v", got, n, streamTime, out.Events(0))
	}
	return out
}

// Energy integrates what was collected over a window of device time.
func Energy(t *testing.T, setup *measure.Setup, out *Collector, from, to measure.Seconds) measure.Estimate {
	t.Helper()
	if err := setup.Validate(); err != nil {
		t.Fatal(err)
	}
	if out.Lost() != 0 {
		t.Fatalf("a gap on a perfect line: %+v", out.Events(0))
	}
	g, err := measure.NewIntegrator(setup, from, to)
	if err != nil {
		t.Fatal(err)
	}
	blk := measure.Block{}
	if setup.Timebase.Stamped {
		blk.Ticks = out.Ticks()
	}
	for c := range setup.Channels {
		blk.Counts = append(blk.Counts, out.Counts(c))
	}
	if err := g.Add(&blk); err != nil {
		t.Fatal(err)
	}
	res, err := g.Result(measure.Edges{})
	if err != nil {
		t.Fatal(err)
	}
	return res.Total
}
