package predict

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/predict"
	"github.com/wattmark/wattmark/analysis/predict/simgrid"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

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
			platform := p.platform()
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

// platform returns p as a SimGrid host of one core: the speed is the work of a
// round divided by its time, so that executing that work takes one round.
func (p *Prediction) platform() *simgrid.Platform {
	return &simgrid.Platform{
		Zone: "AS0", Host: "GPU", Speed: p.Round.Speed(p.flopsPerBlock()), Idle: p.Round.Idle,
		Busy: p.Round.Power, Off: p.Off,
	}
}

// simGridTolerance bounds the relative difference between SimGrid and the closed
// form. It is above rounding error, since SimGrid adds up the rounds one by one.
const simGridTolerance = 1e-9

// predictSimGridCmd returns predict simgrid.
func predictSimGridCmd(a *cli.App) *cobra.Command {
	var f platformFlags
	var rest float64
	c := cli.Command("simgrid [NAME[@VERSION]]", "Run a model on the real SimGrid and compare", cobra.MaximumNArgs(1),
		func(ctx context.Context, args []string) error {
			return predictSimGrid(a, ctx, f, measure.Seconds(rest), args)
		})
	f.add(c)
	c.Flags().Float64Var(&rest, "rest", 10, "seconds of idleness behind the rounds")
	return a.JSONFlag(c)
}

// SimGridReport compares SimGrid with the closed form for one number of blocks.
// Times are in s and energies in J; the rest energies belong to the idle time
// behind the rounds alone.
type SimGridReport struct {
	RoundReport
	SimTime   measure.Seconds `json:"simgrid_time_s"`
	SimEnergy measure.Joule   `json:"simgrid_energy_j"`
	Rest      measure.Joule   `json:"rest_energy_j"`
	SimRest   measure.Joule   `json:"simgrid_rest_energy_j"`
	// Disagreement is the largest relative difference of time, energy, and energy with
	// rest.
	Disagreement float64 `json:"relative_difference"`
}

// predictSimGrid compiles the program, runs it once per number of blocks, and
// prints the comparison. It blocks while compiler and simulation run; ctx ends
// both. A difference above simGridTolerance is an error, returned after the table.
func predictSimGrid(a *cli.App, ctx context.Context, f platformFlags, rest measure.Seconds, args []string) error {
	blocks, err := f.wanted(args)
	if err != nil {
		return err
	}
	platform, round, flops, err := simulated(a, ctx, f, args)
	if err != nil {
		return err
	}
	sim, err := buildSimGrid(ctx, platform)
	if err != nil {
		return err
	}
	defer func() {
		if err := os.RemoveAll(sim.dir); err != nil {
			fmt.Fprintln(a.Err, "wattmark:", err)
		}
	}()
	var list []SimGridReport
	worst, ver := 0.0, ""
	for _, n := range blocks {
		o, err := sim.run(ctx, flops, round.Rounds(n), rest)
		if err != nil {
			return fmt.Errorf("%d blocks: %w", n, err)
		}
		r := compareSimGrid(round, n, rest, o)
		list, worst, ver = append(list, r), max(worst, r.Disagreement), o.Version
	}
	x := map[string]any{
		"simgrid": ver, "round": round, "speed_flop_s": platform.Speed, "idle_w": platform.Idle, "busy_w": platform.Busy,
		"rest_s": rest, "runs": list, "worst_relative_difference": worst,
	}
	if err := a.Print(x, func(w io.Writer) {
		fmt.Fprintf(w, "SimGrid %s, a host of %g flop/s, %v idle and %v busy; rounds of %d blocks\n\n", ver,
			platform.Speed, platform.Idle, platform.Busy, round.Blocks)
		head := out.Row{"blocks", "rounds", "time", "energy", fmt.Sprintf("%v idle", rest), "closed form differs by"}
		out.Table(w, head, list, SimGridReport.row)
	}); err != nil {
		return err
	}
	// Negated, so that NaN fails too.
	if !(worst <= simGridTolerance) {
		return fmt.Errorf("SimGrid and the closed form differ by %.2g", worst)
	}
	return nil
}

// row returns the comparison's line of the table.
func (r SimGridReport) row() out.Row {
	return out.Row{
		r.Blocks, r.Rounds, fmt.Sprintf("%.10g s", float64(r.SimTime)), fmt.Sprintf("%.10g J", float64(r.SimEnergy)),
		fmt.Sprintf("%.10g J", float64(r.SimRest)), fmt.Sprintf("%.1e", r.Disagreement),
	}
}

// simulated returns the platform, its round, and the work of a round in flop: of
// --platform, or of a stored model for the GPU that --sms and --resident name.
func simulated(a *cli.App, ctx context.Context, f platformFlags, args []string) (_ *simgrid.Platform, r predict.Round,
	flops float64, err error,
) {
	if f.platform != "" {
		p, r, err := f.read()
		if err != nil {
			return nil, r, 0, err
		}
		return p, r, float64(r.Time) * p.Speed, nil
	}
	p, err := loadPrediction(a, ctx, args)
	if err != nil {
		return nil, r, 0, err
	}
	if p.Round, err = p.model.Round(predict.Target{SMs: f.sms, Resident: f.resident}); err != nil {
		return nil, r, 0, cli.WithCode(cli.ExitUsage, err)
	}
	return p.platform(), p.Round, p.flopsPerBlock() * float64(p.Round.Blocks), nil
}

// compareSimGrid sets the closed form beside SimGrid's outcome o. Values that are
// both zero agree.
func compareSimGrid(r predict.Round, blocks uint64, rest measure.Seconds, o simgrid.Outcome) SimGridReport {
	x := SimGridReport{
		RoundReport: newRoundReport(r, blocks), SimTime: o.Time, SimEnergy: o.Energy, SimRest: o.RestEnergy - o.Energy,
		Rest: measure.Joule(float64(r.Idle) * float64(rest)),
	}
	// The simulation ends after the rest; its energies at the end of the rounds are read there.
	_, all := r.At(blocks, rest)
	for _, c := range [][2]float64{
		{float64(x.Time), float64(o.Time)},
		{float64(x.Energy), float64(o.Energy)},
		{float64(all), float64(o.RestEnergy)},
	} {
		if c[0] != 0 || c[1] != 0 {
			x.Disagreement = max(x.Disagreement, math.Abs(c[1]-c[0])/math.Abs(c[0]))
		}
	}
	return x
}

// simGridProgram is the compiled program in a temporary directory, with its
// platform file.
type simGridProgram struct{ dir, program, platform string }

// buildSimGrid compiles the embedded program with $CXX, or g++, into a new
// temporary directory. On error the directory is removed; on success the caller removes
// it. Errors contain the first lines of the compiler's output, and a hint if
// SimGrid's headers or library are missing.
func buildSimGrid(ctx context.Context, p *simgrid.Platform) (_ *simGridProgram, err error) {
	compiler := cmp.Or(os.Getenv("CXX"), "g++")
	if _, err := exec.LookPath(compiler); err != nil {
		return nil,
			fmt.Errorf("SimGrid needs a C++ compiler: %w (Debian: apt install g++ libsimgrid-dev); the closed form "+
				"needs neither: wattmark predict at", err)
	}
	dir, err := store.TempDir()
	if err != nil {
		return nil, err
	}
	s := &simGridProgram{dir, filepath.Join(dir, "rounds"), filepath.Join(dir, "gpu.xml")}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	source := filepath.Join(dir, "rounds.cpp")
	if err := os.WriteFile(source, simgrid.Source, 0o600); err != nil {
		return nil, err
	}
	if err := cli.WriteFile(s.platform, func(w io.Writer) error { _, err := p.WriteTo(w); return err }); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, compiler, "-O1", "-o", s.program, source,
		"-lsimgrid").CombinedOutput() // #nosec G702 -- the compiler that the user names, and no shell
	if err != nil {
		// The compiler names the missing header or library in its own words.
		hint := ""
		if bytes.Contains(out, []byte("simgrid/")) || bytes.Contains(out, []byte("-lsimgrid")) {
			hint = "\nIs SimGrid installed? Debian: apt install libsimgrid-dev"
		}
		return nil, fmt.Errorf("the program for SimGrid does not compile: %w\n%s%s", err, firstLines(out, 5), hint)
	}
	return s, nil
}

// firstLines returns at most n lines of b.
func firstLines(b []byte, n int) string {
	lines := strings.SplitN(strings.TrimSpace(string(b)), "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

// run executes the rounds in SimGrid, followed by rest seconds of idle time.
func (s *simGridProgram) run(ctx context.Context, flops float64, rounds uint64, rest measure.Seconds) (simgrid.Outcome,
	error,
) {
	args, err := simgrid.Args(s.platform, flops, rounds, rest)
	if err != nil {
		return simgrid.Outcome{}, err
	}
	c := exec.CommandContext(ctx, s.program, args...)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		return simgrid.Outcome{}, fmt.Errorf("SimGrid: %w\n%s", err, firstLines(said.Bytes(), 5))
	}
	return simgrid.ParseOutcome(out.String())
}
