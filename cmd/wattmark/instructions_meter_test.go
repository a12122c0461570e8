package main

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/run"
	"github.com/wattmark/wattmark/cmd/internal/session"
	instructionscmd "github.com/wattmark/wattmark/cmd/internal/study/instructions"
	"github.com/wattmark/wattmark/hostagent/experiment/instructions"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// simMachine runs programs on the simulated GPU: with their block they draw what
// its compute kernel does, without it what half of that does.
type simMachine struct{ gpu.Device }

func (m simMachine) Capability() (int, error) { return 90, nil }

func (m simMachine) Load(_ context.Context, i instructions.Instruction, source []byte, s instructions.Setting) (instructions.Loaded, error) {
	_, loop, _ := strings.Cut(string(source), "LOOP:")
	loop, _, _ = strings.Cut(loop, "bra LOOP;")
	block := strings.Count(loop, ";")+1 > s.Steps
	if i.Name == "mul.f16" && block {
		return nil, errors.New("the simulated GPU has no mul.f16")
	}
	kind := gpu.BenchHalf
	if block {
		kind = gpu.BenchCompute
	}
	return simProgram{m.Device, kind}, nil
}

type simProgram struct {
	dev  gpu.Device
	kind gpu.Benchmark
}

func (p simProgram) Run(ctx context.Context, turns uint64) (instructions.Launch, error) {
	k, err := p.dev.RunBenchmark(ctx, p.kind, time.Duration(turns)*20*time.Microsecond)
	if err != nil {
		return instructions.Launch{}, err
	}
	return instructions.Launch{Span: k[0].Span, Threads: 1}, nil
}

func (simProgram) Close() error { return nil }

// slowSensor lets the emulated meter have the processor.
type slowSensor struct{ gpu.PowerSensor }

func (s slowSensor) Read() (gpu.PowerReading, error) {
	<-time.After(2 * time.Millisecond)
	return s.PowerSensor.Read()
}

func (slowSensor) Condition() gpu.Condition { return gpu.Condition{} }

// simCampaign runs a small plan on the rig's simulated GPU, with its meter.
func simCampaign(t *testing.T, r *rig, ctx context.Context, after func(n int)) (*instructionscmd.InstructionSink, *store.DB, error) {
	t.Helper()
	dev, sensor, err := sim.FindRemote(r.socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	f := instructionscmd.InstructionsFlags{RunFlags: run.RunFlags{Monitor: r.address}, Out: filepath.Join(t.TempDir(), "runs.jsonl"), Levels: []int{3}, Layouts: []string{"whole-gpu"}, Passes: 1}
	f.Length, f.Settle = 80*time.Millisecond, 20*time.Millisecond
	p, err := f.Plan([]string{"add.f16", "mul.f16", "add.bf16"})
	if err != nil {
		t.Fatal(err)
	}
	a := &cli.App{Streams: cli.Streams{Out: io.Discard, Err: io.Discard}, DB: r.db}
	sink, done, err := instructionscmd.NewSink(a, ctx, f, &session.FoundGPU{Device: dev})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	err = sink.Measure(ctx, func(ctx context.Context) error {
		return instructions.Measure(ctx, simMachine{dev}, slowSensor{sensor}, p, func(x instructions.Run) error {
			err := sink.Add(ctx, x)
			after(sink.N)
			return err
		})
	})
	return sink, sink.DB, errors.Join(err, sink.Close(ctx))
}

// Each program of a campaign gets the power that the board drew meanwhile, from an
// emulated meter on a real line, through the markers' clock.
func TestInstructionsWithAMeter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sink, db, err := simCampaign(t, r, t.Context(), func(int) {})
	// mul.f16 does not load: the meter saw what ran, and says how many that were.
	if err == nil || !strings.Contains(err.Error(), "the meter saw 5 of 6 programs") {
		t.Fatal(err)
	}
	runs, err := instructionscmd.CampaignRuns(t.Context(), db, sink.ID)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for n, x := range runs {
		w, ok := x.Power[instructions.Meter]
		if ok != (x.Error == "") {
			t.Errorf("run %d, %s: by the meter %v, error %q", n+1, x.Instruction, w, x.Error)
		}
		if !ok {
			continue
		}
		seen++
		e, err := r.live.Energy(sink.Spans[n].Start, sink.Spans[n].End)
		if err != nil {
			t.Fatal(err)
		}
		truth := measure.Watt(float64(e.Total) / float64(x.Time))
		if off := float64(w/truth) - 1; math.Abs(off) > 0.01 {
			t.Errorf("run %d, %s: %v by the meter, %v in truth", n+1, x.Instruction, w, truth)
		}
	}
	if seen != 5 || len(runs) != 6 {
		t.Errorf("%d of %d runs have the meter's power", seen, len(runs))
	}
	f, err := os.Open(sink.File)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := instructions.ReadRuns(f, sink.File)
	if err != nil || len(lines) != len(runs) || lines[0].Power[instructions.Meter] != runs[0].Power[instructions.Meter] {
		t.Errorf("%d lines (%v) of %d runs", len(lines), err, len(runs))
	}
	for _, e := range instructions.Estimates(lines) {
		if e.Method == instructions.Meter && (e.Dynamic <= 0 || e.Instruction == "mul.f16") {
			t.Errorf("got %+v", e)
		}
	}
	r.free()
}

// A campaign that is cut short keeps what it has, in database and file.
func TestInstructionsWithAMeterCutShort(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sink, db, err := simCampaign(t, r, ctx, func(n int) {
		if n == 2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	runs, err := instructionscmd.CampaignRuns(t.Context(), db, sink.ID)
	if err != nil || len(runs) != 2 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
	f, err := os.Open(sink.File)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if lines, err := instructions.ReadRuns(f, sink.File); err != nil || len(lines) != 2 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	r.free()
}
