package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"wattmark/monitor"
	"wattmark/monitor/checkup"
)

// survey opens an instrument and watches it for the time of the flags, or until
// ctx ends where that is 0. each is called twice a second meanwhile.
func survey(ctx context.Context, f meterFlags, notes io.Writer, each func(monitor.Bench, *checkup.Survey)) (*checkup.Result, error) {
	b, closeBench, err := openBench(f.benchFlags)
	if err != nil {
		return nil, err
	}
	defer closeBench()
	if err := b.Instrument.Open(ctx); err != nil {
		return nil, err
	}
	setup, err := b.Setup(b.Instrument.Inputs())
	if err != nil {
		return nil, err
	}
	s, err := checkup.New(&setup)
	if err != nil {
		return nil, err
	}
	// Ctrl-C ends the measurement, not the report.
	measuring, stop := context.WithCancel(ctx)
	defer stop()
	if f.length > 0 {
		measuring, stop = context.WithTimeout(ctx, f.length)
		defer stop()
	}
	ended := make(chan struct{})
	var g errgroup.Group
	g.Go(func() error {
		defer close(ended)
		return b.Instrument.Stream(measuring, s)
	})
	g.Go(func() error {
		watchSurvey(notes, ended, b, s, each)
		return nil
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return s.Result(), nil
}

// watchSurvey calls each until the instrument has ended, and tells how far the
// reading of its memory is.
func watchSurvey(notes io.Writer, ended <-chan struct{}, b monitor.Bench, s *checkup.Survey, each func(monitor.Bench, *checkup.Survey)) {
	tick := time.NewTicker(probeRenew)
	defer tick.Stop()
	live := isTerminal(notes)
	for {
		select {
		case <-ended:
			if live {
				fmt.Fprint(notes, "\r\x1b[K")
			}
			return
		case <-tick.C:
		}
		each(b, s)
		if done, total := s.Delivery(); live && total > 0 {
			fmt.Fprintf(notes, "\r\x1b[Kreading the instrument's memory: %d of %d scans", done, total)
		}
	}
}
