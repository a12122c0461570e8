// Package predict has the commands that predict time and energy of kernels at other sizes
// and on platforms, and the export to SimGrid.
package predict

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/predict"
	"github.com/wattmark/wattmark/analysis/predict/simgrid"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	c := &cobra.Command{Use: "predict", Short: "Predict a kernel's time and energy from its number of blocks"}
	c.AddCommand(predictAdviseCmd(a), predictCalibrateCmd(a), predictSweepCmd(a), predictAtCmd(a), predictShowCmd(a),
		listCmd(a), kind.DeleteCmd(a, "Delete a model, or one version of it"), predictCheckCmd(a), predictExportCmd(a),
		predictReferenceCmd(a))
	return cli.In(cli.Learn, help, c)
}

// platformFlags select the numbers of blocks to predict, and either a stored model
// or a SimGrid platform file. sms and resident give the blocks of a
// round, or for a stored model the GPU to predict for.
type platformFlags struct {
	platform      string
	flops         float64
	blocks        []string
	sms, resident uint64
}

// Fig3 as --platform selects the built-in platform of Fig. 3 of the paper.
const Fig3 = "fig3"

// read parses the platform and derives its round: flops/speed seconds at the busy
// power, for sms × resident blocks. Fig3 brings its own work and number of
// multiprocessors; a file contains neither, so the flags must.
func (f *platformFlags) read() (r predict.Round, err error) {
	p, flops, sms := simgrid.Fig3(), f.flops, f.sms
	if f.platform == Fig3 {
		flops, sms = cmp.Or(flops, simgrid.Fig3Flops), cmp.Or(sms, predict.FigSMs)
	} else {
		p, err = cli.ReadFile(f.platform, func(r io.Reader, name string) (*simgrid.Platform, error) {
			p, err := simgrid.Parse(r)
			return p, logfile.In(name, err)
		})
		if err != nil {
			return r, err
		}
		// A platform has a speed and powers, from which no time follows alone.
		if flops == 0 || sms == 0 {
			return r, cli.Usagef("--platform does not say what a round is: give --flops of a round and --sms")
		}
	}
	return predict.RoundOf(flops, p.Speed, p.Busy, p.Idle, sms*max(1, f.resident))
}

func predictAtCmd(a *cli.App) *cobra.Command {
	var f platformFlags
	c := cli.Command("at [NAME[@VERSION]]", "Predict time and energy of numbers of blocks", cobra.MaximumNArgs(1),
		func(ctx context.Context, args []string) error {
			if len(f.blocks) == 0 {
				return cli.Usagef("--blocks: say for which numbers of blocks, as 15,140,9765")
			}
			blocks, err := parseBlocks("blocks", f.blocks)
			switch {
			case err != nil:
				return err
			case f.platform == "":
				return predictAt(a, ctx, f, args, blocks)
			case len(args) > 0:
				return cli.Usagef("name a model or a platform, not both")
			}
			return predictByPlatform(a, f, blocks)
		})
	fl := c.Flags()
	fl.StringSliceVar(&f.blocks, "blocks", nil, "numbers of blocks, with commas between them (required)")
	fl.StringVar(&f.platform, "platform", "",
		"SimGrid platform file of a GPU in place of a model; fig3 for that of the paper")
	fl.Float64Var(&f.flops, "flops", 0, "with --platform: work of a round (default of fig3: 14336)")
	fl.Uint64Var(&f.sms, "sms", 0, "multiprocessors: what if there were more or fewer; with --platform those of the GPU")
	fl.Uint64Var(&f.resident, "resident", 0,
		"blocks that a multiprocessor holds at a time, where not those of the calibration")
	return a.JSONFlag(c)
}

// predictAt predicts each number of blocks by a stored model, and prints time in s and
// energy in J with the half widths of their prediction bands, and the reasons for larger
// errors. Nothing is stored.
func predictAt(a *cli.App, ctx context.Context, f platformFlags, args []string, blocks []uint64) error {
	p, err := loadPrediction(a, ctx, args)
	if err != nil {
		return err
	}
	list := []predict.Prediction{}
	for _, n := range blocks {
		q, err := p.model.At(n, predict.Target{SMs: f.sms, Resident: f.resident})
		if err != nil {
			return cli.WithCode(cli.ExitUsage, err)
		}
		list = append(list, q)
	}
	level := p.Options.Level
	v := map[string]any{"name": p.Name, "version": p.Version, "level": level, "predictions": list}
	return a.Print(v, func(w io.Writer) {
		head := out.Row{"blocks", "rounds", "time by the line", "by rounds", "energy by the line", "by rounds", "mixed"}
		t := func(f predict.Forecast) string { return fmt.Sprintf("%v ± %v", f.Time, f.TimePrediction) }
		e := func(f predict.Forecast) string { return fmt.Sprintf("%v ± %v", f.Energy, f.EnergyPrediction) }
		out.Table(w, head, list, func(q predict.Prediction) out.Row {
			return out.Row{q.Blocks, q.Rounds, t(q.Linear), t(q.ByRounds), e(q.Linear), e(q.ByRounds), e(q.Mixed)}
		})
		fmt.Fprintf(w, "\n± holds one new measurement in %.3g %% of cases, if the kernel keeps to the model.\n", 100*level)
		for _, q := range list {
			for _, x := range q.Warnings {
				fmt.Fprintf(w, "%d blocks: %s\n", q.Blocks, x)
			}
		}
	})
}

// RoundReport is a prediction by rounds alone, as a SimGrid platform allows it.
type RoundReport struct {
	Blocks uint64          `json:"blocks"`
	Rounds uint64          `json:"rounds"`
	Time   measure.Seconds `json:"time_s"`
	Energy measure.Joule   `json:"energy_j"`
}

// predictByPlatform prints the closed form of a platform's rounds, with ten digits
// to compare with the output of SimGrid.
func predictByPlatform(a *cli.App, f platformFlags, blocks []uint64) error {
	r, err := f.read()
	if err != nil {
		return err
	}
	list := lists.Map(blocks, func(n uint64) RoundReport { // without idle time behind them
		t, e := r.At(n, 0)
		return RoundReport{n, r.Rounds(n), t, e}
	})
	v := map[string]any{"platform": f.platform, "round": r, "predictions": list}
	return a.Print(v, func(w io.Writer) {
		fmt.Fprintf(w, "Rounds of %d blocks: %.9g s and %.9g J each, at %v\n\n", r.Blocks, float64(r.Time),
			float64(r.Energy), r.Power)
		out.Table(w, out.Row{"blocks", "rounds", "time", "energy"}, list, func(x RoundReport) out.Row {
			t, e := fmt.Sprintf("%.10g s", float64(x.Time)), fmt.Sprintf("%.10g J", float64(x.Energy))
			return out.Row{x.Blocks, x.Rounds, t, e}
		})
	})
}

func predictShowCmd(a *cli.App) *cobra.Command {
	var svg string
	c := cli.Command("show [NAME[@VERSION]]", "Show a model: coefficients, errors, a plot", cobra.MaximumNArgs(1),
		func(ctx context.Context, args []string) error {
			p, err := loadPrediction(a, ctx, args)
			if err != nil {
				return err
			}
			return p.show(a, svg)
		})
	cli.SVGFlag(c.Flags(), &svg, "draw time and energy into this file")
	return a.JSONFlag(c)
}

// predictCheckCmd returns predict check: a stored model against measured points, with worst, best and average relative
// error (WRE, BRE, ARE).
func predictCheckCmd(a *cli.App) *cobra.Command {
	var s pointSources
	var name string
	c := cli.Command("check [TASK...]", "Hold a model against measured launches", nil,
		func(ctx context.Context, args []string) error {
			points, _, err := s.gather(a, ctx, "check against", args)
			if err != nil {
				return err
			}
			var names []string
			if name != "" {
				names = []string{name}
			}
			p, err := loadPrediction(a, ctx, names)
			if err != nil {
				return err
			}
			v, err := p.model.Evaluate(points)
			if err != nil {
				return err
			}
			// Points that the model was calibrated on make the errors look smaller. They are recognised by blocks and
			// energy: two measurements never agree in all digits.
			known := len(lists.Filter(points, func(x *predict.Point) bool {
				return slices.ContainsFunc(p.Points,
					func(q predict.Point) bool { return q.Blocks == x.Blocks && q.Energy == x.Energy })
			}))
			x := map[string]any{
				"name": p.Name, "version": p.Version, "calibration_points_among_them": known, "evaluation": v,
			}
			return a.Print(x, func(w io.Writer) {
				if known > 0 {
					fmt.Fprintf(w, "%d of these points the model was made from: they flatter it.\n\n", known)
				}
				renderEvaluation(w, &v)
			})
		})
	c.Flags().StringVar(&name, "model", "", "NAME or NAME@VERSION of the model (default: the only one)")
	s.add(c.Flags())
	return a.JSONFlag(c)
}

// predictExportCmd returns predict export-platform: a SimGrid platform file, or
// the same on standard output for "-".
func predictExportCmd(a *cli.App) *cobra.Command {
	return a.JSONFlag(cli.Command("export-platform FILE [NAME[@VERSION]]",
		"Write a model as a platform file of SimGrid", cobra.RangeArgs(1, 2),
		func(ctx context.Context, args []string) error {
			if err := cli.CheckEnding(args[0], "XML", ".xml"); err != nil {
				return err
			}
			p, err := loadPrediction(a, ctx, args[1:])
			if err != nil {
				return err
			}
			// A host of one core, whose speed is the work of a round over its time.
			platform := &simgrid.Platform{
				Zone: "AS0", Host: "GPU", Speed: p.Round.Speed(p.flopsPerBlock()), Idle: p.Round.Idle,
				Busy: p.Round.Power, Off: p.Off,
			}
			write := func(w io.Writer) error { _, err := platform.WriteTo(w); return err }
			if args[0] == "-" {
				return write(cli.Raw(a.Out))
			}
			if err := cli.WriteFile(args[0], write); err != nil {
				return err
			}
			v := map[string]any{
				"file": args[0], "name": p.Name, "version": p.Version, "speed_flop_s": platform.Speed,
				"flops_per_round": p.FlopsPerRound, "idle_w": platform.Idle, "busy_w": platform.Busy, "off_w": platform.Off,
			}
			return a.Print(v, func(w io.Writer) {
				fmt.Fprintf(w, "%s@%d is in %s: execute %g flop a round\n", p.Name, p.Version, args[0], p.FlopsPerRound)
			})
		}))
}

// predictReferenceCmd returns predict reference: the rows of the paper, and a note on each
// that contradicts itself. It reads no file and no database.
func predictReferenceCmd(a *cli.App) *cobra.Command {
	render := func(w io.Writer) {
		notes := ""
		head := out.Row{"device", "kernel", "time WRE", "BRE", "ARE", "energy WRE", "BRE", "ARE", ""}
		out.Table(w, head, predict.References(), func(r predict.Reference) out.Row {
			mark := ""
			if r.Irregular != "" {
				mark = "*"
				notes += fmt.Sprintf("* %s on %s: %s\n", r.Kernel, r.Device, r.Irregular)
			}
			t, e := r.Time, r.Energy
			return out.Row{r.Device, r.Kernel, t.Worst, t.Best, t.Average, e.Worst, e.Best, e.Average, mark}
		})
		fmt.Fprint(w, notes)
	}
	return a.JSONFlag(cli.Command("reference", "Show the errors that the paper reports", cobra.NoArgs,
		func(context.Context, []string) error {
			v := map[string]any{"source": "Boughzala et al. 2020, Tables IV and V", "rows": predict.References()}
			return a.Print(v, render)
		}))
}

// predictAdviseCmd returns predict advise: numbers of blocks that determine line
// and rounds.
func predictAdviseCmd(a *cli.App) *cobra.Command {
	var sms, resident, largest uint64
	c := cli.Command("advise", "Say which numbers of blocks to measure for a calibration", cobra.NoArgs,
		func(context.Context, []string) error {
			x, err := predict.Advise(sms, resident, largest)
			if err != nil {
				return cli.WithCode(cli.ExitUsage, err)
			}
			return a.Print(x, func(w io.Writer) {
				fmt.Fprintf(w, "Measure launches of %v blocks:\n", x.Blocks)
				out.Each(w, " - %s\n", x.Why)
			})
		})
	c.Flags().Uint64Var(&sms, "sms", 0, "multiprocessors of the GPU (required)")
	c.Flags().Uint64Var(&resident, "resident", 1, "blocks that a multiprocessor holds at a time")
	c.Flags().Uint64Var(&largest, "largest", 0, "largest number of blocks that is to be predicted")
	return a.JSONFlag(c)
}

// parseBlocks parses numbers of blocks, from 1 to predict.MostBlocks; errors are
// wrong usage and name the flag.
func parseBlocks(flag string, list []string) (out []uint64, err error) {
	for _, s := range list {
		n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
		if err != nil || n == 0 || n > predict.MostBlocks {
			return nil, cli.Usagef("--%s %q: want whole numbers of blocks from 1 on, with commas between them", flag, s)
		}
		out = append(out, n)
	}
	return out, nil
}

// blocksText lists the numbers of blocks of points in ascending order, each once.
func blocksText(points []predict.Point) string {
	sizes := lists.Map(points, func(p predict.Point) uint64 { return p.Blocks })
	slices.Sort(sizes)
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(slices.Compact(sizes)), "[]"), " ", ", ")
}
