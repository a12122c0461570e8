package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/instructions"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/store"
)

// instructionSink takes runs as they end: into the database at once, and into a
// file, whose lines are whole whenever the plan ends.
type instructionSink struct {
	db   *store.DB
	file string
	late bool // the file is written at the end
	show io.Writer
	live bool

	id    store.CampaignID // zero before the first run
	n     int
	begin time.Time
	out   *os.File
	spans []hostagent.Span // of runs 1 to n
}

func (s *instructionSink) add(ctx context.Context, r instructions.Run) error {
	campaign, run := r.Stored()
	// What was measured is kept, even if nobody waits for more.
	ctx = context.WithoutCancel(ctx)
	if s.id == 0 {
		if err := s.start(ctx, campaign); err != nil {
			return err
		}
	}
	var err error
	if s.n, err = s.db.AddInstruction(ctx, s.id, run); err != nil {
		return err
	}
	s.spans = append(s.spans, r.Span())
	if s.live {
		fmt.Fprintf(s.show, "\r\x1b[K%v  pass %d, %d programs: %s -O%d %s", time.Since(s.begin).Round(time.Second), r.Pass+1, s.n, r.Instruction, r.Level, r.Layout)
	}
	if s.out == nil || s.late {
		return nil
	}
	return json.NewEncoder(s.out).Encode(r)
}

func (s *instructionSink) start(ctx context.Context, c store.InstructionCampaign) (err error) {
	s.begin = time.Now()
	if s.file != "" {
		if s.out, err = os.OpenFile(s.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	s.id, err = s.db.BeginInstructions(ctx, c)
	return err
}

// close ends the progress line and the file.
func (s *instructionSink) close(ctx context.Context) error {
	if s.live && s.n > 0 {
		fmt.Fprint(s.show, "\r\x1b[K")
	}
	if s.out == nil {
		return nil
	}
	var err error
	if s.late {
		err = s.write(context.WithoutCancel(ctx))
	}
	return errors.Join(err, s.out.Close())
}

// write copies the campaign from the database to the file.
func (s *instructionSink) write(ctx context.Context) error {
	runs, err := campaignRuns(ctx, s.db, s.id)
	enc := json.NewEncoder(s.out)
	for _, r := range runs {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return err
}

// meter adds what an external meter saw of every run.
func (s *instructionSink) meter(ctx context.Context, task store.TaskID) error {
	means, err := measurement.Means(ctx, s.db, task, s.spans)
	if err != nil {
		return fmt.Errorf("the meter's powers are missing: %w", err)
	}
	watts := map[int]measure.Watt{}
	for n, w := range means {
		if !math.IsNaN(float64(w)) {
			watts[n+1] = w
		}
	}
	if err := s.db.AddInstructionPowers(ctx, s.id, string(instructions.Meter), watts); err != nil {
		return err
	}
	if missing := len(means) - len(watts); missing > 0 {
		return fmt.Errorf("the meter saw %d of %d programs: scans are missing, or the program did not run", len(watts), len(means))
	}
	return nil
}

// instructionsMetered makes a campaign the work of one measurement.
func (a *app) instructionsMetered(ctx context.Context, f instructionsFlags, dev hostagent.Device, open func(context.Context) error, sink *instructionSink, work func(context.Context) error) error {
	mon, err := dialMeter(ctx, f.monitor, monitorclient.Options{Version: version()})
	if err != nil {
		return err
	}
	defer mon.Close()
	gate := a.gate(ctx, f.cluster, sink.db)
	defer gate.close()
	login, holder := whoami()
	cfg := measurement.Config{
		DB: sink.db, Monitor: gate.monitor(mon), Device: dev, Name: "instructions", User: login, Holder: holder, WarmUp: 200 * time.Millisecond, Wait: f.wait,
		Open: func(ctx context.Context) (hostagent.PowerSensor, error) { return nil, open(ctx) },
	}
	id, err := a.measure(ctx, cfg, func(ctx context.Context) ([]hostagent.Kernel, error) {
		err := work(ctx)
		return sink.kernels(), err
	})
	if id == 0 || sink.n == 0 {
		return err
	}
	fmt.Fprintf(a.out, "The meter's samples are task %d\n", id)
	return errors.Join(err, sink.meter(context.WithoutCancel(ctx), id))
}

// kernels are the measured launches, named by their number in the campaign.
func (s *instructionSink) kernels() []hostagent.Kernel {
	var out []hostagent.Kernel
	for n, span := range s.spans {
		if span.Start.Before(span.End) {
			out = append(out, hostagent.Kernel{Name: fmt.Sprintf("instruction run %d", n+1), Span: span})
		}
	}
	return out
}
