package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"wattmark/measure"
	"wattmark/monitor"
	"wattmark/monitor/checkup"
)

// survey opens an instrument and watches it for the time of the flags, or until
// ctx ends where that is 0. Which calibration is in force goes to out once that is
// known; each is called twice a second from then on.
func survey(ctx context.Context, f meterFlags, out, notes io.Writer, each func(monitor.Bench, *checkup.Survey)) (*checkup.Result, error) {
	b, closeBench, err := openBench(f.benchFlags)
	if err != nil {
		return nil, err
	}
	defer closeBench()
	setup, remarks, err := b.Open(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(out, f.calibrationText(&setup))
	for _, r := range remarks {
		fmt.Fprintln(notes, "Note:", r)
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

// calibrationText says under which calibration a bench is read, and how to see it
// otherwise.
func (f benchFlags) calibrationText(s *measure.Setup) string {
	text := "calibration: " + recordsText(s)
	asked := f
	asked.nominal = false
	folder := asked.folder()
	switch {
	case len(s.Records) > 0:
		return fmt.Sprintf("%s\n(from %s; --nominal leaves them out)", text, folder)
	case f.nominal && folder != "":
		return fmt.Sprintf("%s\n(--nominal leaves out those of %s)", text, folder)
	case folder != "":
		return fmt.Sprintf("%s\n(looked for in %s)", text, folder)
	}
	return text + "\n(--calibration names a folder of them; beside a bench file it is calibration/)"
}

// recordsText says which calibration records are in force.
func recordsText(s *measure.Setup) string {
	if len(s.Records) == 0 {
		return "nominal scale, no calibration record in force"
	}
	var ids []string
	for _, r := range s.Records {
		ids = append(ids, measure.Printable(r.ID))
	}
	return fmt.Sprintf("%s in force (%s)", plural(len(ids), "calibration record"), strings.Join(ids, ", "))
}
