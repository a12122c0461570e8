package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/hostagent/cuda"
	"wattmark/hostagent/instructions"
	"wattmark/hostagent/nvml"
	"wattmark/measure"
)

func (a *app) instructionsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "instructions", Short: "Measure what single GPU instructions cost",
		Long: `Measure the energy of single GPU instructions, after Arafa et al. (2020): a kernel
with a block of dependent instructions against the same kernel without it. Two
layouts: one thread, as in the paper, where what an instruction costs is the
whole GPU's power for its time; and a full GPU, where its own power stands out.`,
	}
	c.AddCommand(a.instructionsListCmd(), a.instructionsRunCmd(), a.instructionsTableCmd(), a.instructionsSASSCmd())
	return c
}

func (a *app) instructionsListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the instructions that can be measured", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			t := newTable(a.out)
			t.AppendHeader(table.Row{"instruction", "group", "row of Arafa et al.", "step"})
			for _, i := range instructions.Catalogue() {
				t.AppendRow(table.Row{i.Name, i.Group, i.Row, i.Step})
			}
			t.Render()
			return nil
		},
	}
}

// instructionsFlags are what a run can be told.
type instructionsFlags struct {
	gpu, out       string
	levels         []int
	layouts        []string
	length, settle time.Duration
	seed           uint64
}

func (a *app) instructionsRunCmd() *cobra.Command {
	var f instructionsFlags
	var passes int
	c := &cobra.Command{
		Use: "run [INSTRUCTION...]", Short: "Measure instructions on a GPU",
		Long: `Measure instructions, all unless some are named (add.*, div.s32), by every way to
read the GPU's own sensor, at the driver's optimisation levels 3 and 0. Results of
the kernels are compared with what they must be. Each run is a line of --out, which
'wattmark instructions table' reads. Nothing else should use the GPU meanwhile.

All instructions take some 20 minutes at 3 passes.`,
		Example: "  wattmark instructions run --out h200.jsonl\n  wattmark instructions run 'div.*' mul.f32 --passes 1",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.plan(args, passes)
			if err != nil {
				return withCode(exitUsage, err)
			}
			return a.instructionsRun(cmd.Context(), f, p)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.gpu, "gpu", "", "GPU by index, UUID or PCI bus id; the first when left out")
	fl.StringVar(&f.out, "out", "instructions.jsonl", "file that every run is added to")
	fl.IntVar(&passes, "passes", 3, "times that everything is measured, each in another order")
	fl.IntSliceVar(&f.levels, "level", []int{3, 0}, "optimisation levels of the driver's compiler")
	fl.StringSliceVar(&f.layouts, "layout", []string{string(instructions.OneThread), string(instructions.WholeGPU)}, "one-thread, whole-gpu")
	fl.DurationVar(&f.length, "length", 0, "how long a kernel is measured; 0.5 s when 0")
	fl.DurationVar(&f.settle, "settle", 0, "how long a kernel runs before; 0.2 s of one thread and 1.1 s of a whole GPU when 0")
	fl.Uint64Var(&f.seed, "seed", 1, "of the order")
	return c
}

func (f *instructionsFlags) plan(names []string, passes int) (instructions.Plan, error) {
	p := instructions.DefaultPlan()
	p.Passes, p.Levels, p.Seed = passes, f.levels, f.seed
	if passes < 1 {
		return p, fmt.Errorf("--passes %d: want 1 at least", passes)
	}
	p.Layouts = nil
	for _, l := range f.layouts {
		if _, ok := p.Steps[instructions.Layout(l)]; !ok {
			return p, fmt.Errorf("--layout %q: want %s or %s", l, instructions.OneThread, instructions.WholeGPU)
		}
		p.Layouts = append(p.Layouts, instructions.Layout(l))
	}
	for l := range p.Steps {
		if f.length > 0 {
			p.Length[l] = f.length
		}
		if f.settle > 0 {
			p.Settle[l] = f.settle
		}
	}
	var err error
	p.Instructions, err = instructions.Find(names...)
	return p, err
}

func (a *app) instructionsRun(ctx context.Context, f instructionsFlags, p instructions.Plan) error {
	dev, err := cuda.Open(ctx, f.gpu)
	if err != nil {
		return err
	}
	defer dev.Close()
	sensor, err := nvml.Open(dev.Info().UUID)
	if err != nil {
		return err
	}
	defer sensor.Close()
	out, err := os.OpenFile(f.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	n, begin, live := 0, time.Now(), isTerminal(a.err)
	enc := json.NewEncoder(out)
	gpu := instructions.OnGPU(dev)
	err = instructions.Measure(ctx, gpu, sensor, p, func(r instructions.Run) error {
		n++
		if live {
			fmt.Fprintf(a.err, "\r\x1b[K%v  pass %d, %d programs: %s -O%d %s", time.Since(begin).Round(time.Second), r.Pass+1, n, r.Instruction, r.Level, r.Layout)
		}
		return enc.Encode(r)
	})
	if live {
		fmt.Fprint(a.err, "\r\x1b[K")
	}
	if err = errors.Join(err, gpu.Close(), out.Close()); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%d programs in %v on a %s, in %s\nwattmark instructions table %s\n", n, time.Since(begin).Round(time.Second), dev.Info().Name, f.out, f.out)
	return nil
}

func (a *app) instructionsTableCmd() *cobra.Command {
	var method, layout string
	c := &cobra.Command{
		Use: "table FILE...", Short: "Show the energy of the instructions that were measured", Args: cobra.MinimumNArgs(1),
		Example: "  wattmark instructions table h200.jsonl --layout whole-gpu --method counter",
		RunE: func(_ *cobra.Command, args []string) error {
			var runs []instructions.Run
			for _, name := range args {
				r, err := readRuns(name)
				if err != nil {
					return err
				}
				runs = append(runs, r...)
			}
			return a.instructionsTable(runs, instructions.Method(method), instructions.Layout(layout))
		},
	}
	c.Flags().StringVar(&method, "method", string(instructions.Instant), "sma, mtsm, papi, counter or instant")
	c.Flags().StringVar(&layout, "layout", "", "one-thread or whole-gpu; both when left out")
	return a.jsonFlag(c)
}

// readRuns reads a file of runs; its errors name the line.
func readRuns(name string) ([]instructions.Run, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []instructions.Run
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for line := 1; s.Scan(); line++ {
		if strings.TrimSpace(s.Text()) == "" {
			continue
		}
		var r instructions.Run
		d := json.NewDecoder(strings.NewReader(s.Text()))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s:%d: no run of wattmark instructions: %w", name, line, err)
		}
		out = append(out, r)
	}
	return out, s.Err()
}

func (a *app) instructionsTable(runs []instructions.Run, method instructions.Method, layout instructions.Layout) error {
	var rows []instructions.Estimate
	for _, e := range instructions.Estimates(runs) {
		if (a.json || e.Method == method) && (layout == "" || e.Layout == layout) {
			rows = append(rows, e)
		}
	}
	if a.json {
		return a.printJSON(rows)
	}
	t := newTable(a.out)
	t.AppendHeader(table.Row{"instruction", "layout", "level", "energy", "± spread", "dynamic", "± spread", "cycles", "power", "result"})
	for _, e := range rows {
		checked := ""
		if e.Checked {
			checked = "checked"
		}
		t.AppendRow(table.Row{
			e.Instruction, e.Layout, fmt.Sprintf("-O%d", e.Level), joules(e.Energy), joules(e.Spread), joules(e.Dynamic), joules(e.DynamicSpread),
			fmt.Sprintf("%.1f", e.Cycles), e.Power, checked,
		})
	}
	t.Render()
	return nil
}

// joules writes very small energies.
func joules(e measure.Joule) string {
	switch v := float64(e); {
	case v == 0:
		return "0"
	case v < 1e-9 && v > -1e-9:
		return fmt.Sprintf("%.3g pJ", 1e12*v)
	case v < 1e-6 && v > -1e-6:
		return fmt.Sprintf("%.3g nJ", 1e9*v)
	default:
		return fmt.Sprintf("%.3g µJ", 1e6*v)
	}
}
