package main

import (
	"bytes"
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

	"wattmark/analysis/predict"
	"wattmark/analysis/predict/simgrid"
	"wattmark/measure"
	"wattmark/store"
)

func (a *app) predictExportCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "export-platform FILE [NAME[@VERSION]]", Short: "Write a model as a platform file of SimGrid", Args: cobra.RangeArgs(1, 2),
		Long: `Write a model as a platform file of SimGrid 3.32 (and others that read version
4.1): a host of one core whose speed is the flops of a round over its time, with
its idle, busy and switched-off power. FILE - is standard output.`,
		Example: "  wattmark predict export-platform gpu.xml vadd",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkEnding(args[0], "XML", ".xml"); err != nil {
				return err
			}
			p, err := a.loadPrediction(cmd.Context(), args[1:])
			if err != nil {
				return err
			}
			platform := p.platform()
			write := func(w io.Writer) error { _, err := platform.WriteTo(w); return err }
			if args[0] == "-" {
				return write(a.out)
			}
			if err := writeFile(args[0], write); err != nil {
				return err
			}
			flops := p.flopsPerBlock() * float64(p.Round.Blocks)
			if a.json {
				return a.printJSON(map[string]any{
					"file": args[0], "name": p.Name, "version": p.Version, "speed_flop_s": platform.Speed,
					"flops_per_round": flops, "idle_w": platform.Idle, "busy_w": platform.Busy, "off_w": platform.Off,
				})
			}
			fmt.Fprintf(a.out, "%s@%d is in %s: execute %g flop a round\n", p.Name, p.Version, args[0], flops)
			return nil
		},
	}
	return a.jsonFlag(c)
}

// platform is a model as SimGrid sees it.
func (p *prediction) platform() *simgrid.Platform {
	return &simgrid.Platform{Zone: "AS0", Host: "GPU", Speed: p.Round.Speed(p.flopsPerBlock()), Idle: p.Round.Idle, Busy: p.Round.Power, Off: p.Off}
}

// simGridTolerance is how far SimGrid may be from the closed form: it adds up
// rounds one by one.
const simGridTolerance = 1e-9

func (a *app) predictSimGridCmd() *cobra.Command {
	var f platformFlags
	var rest float64
	c := &cobra.Command{
		Use: "simgrid [NAME[@VERSION]]", Short: "Run a model on the real SimGrid and compare", Args: cobra.MaximumNArgs(1),
		Long: `Run a model's rounds on the real SimGrid with its plugin host_energy, and compare
time and energy with the closed form. SimGrid is what this machine has installed
(Debian: libsimgrid-dev, g++): a small program is compiled for it. It fails where
the two differ by more than 1e-9.`,
		Example: `  wattmark predict simgrid --platform fig3 --blocks 15,140,9765 --rest 10
  wattmark predict simgrid vadd --blocks 15,140,9765`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.predictSimGrid(cmd.Context(), f, measure.Seconds(rest), args)
		},
	}
	f.add(c)
	c.Flags().Float64Var(&rest, "rest", 10, "seconds of idleness behind the rounds")
	return a.jsonFlag(c)
}

// simGridReport is one number of blocks by SimGrid and in closed form.
type simGridReport struct {
	roundReport
	SimTimeS     float64 `json:"simgrid_time_s"`
	SimEnergyJ   float64 `json:"simgrid_energy_j"`
	RestJ        float64 `json:"rest_energy_j"`
	SimRestJ     float64 `json:"simgrid_rest_energy_j"`
	Disagreement float64 `json:"relative_difference"` // the largest
}

func (a *app) predictSimGrid(ctx context.Context, f platformFlags, rest measure.Seconds, args []string) error {
	blocks, err := f.wanted()
	if err != nil {
		return err
	}
	platform, round, flops, err := a.simulated(ctx, f, args)
	if err != nil {
		return err
	}
	sim, err := buildSimGrid(ctx, platform)
	if err != nil {
		return err
	}
	defer sim.remove(a.err)
	var list []simGridReport
	worst, ver := 0.0, ""
	for _, n := range blocks {
		o, err := sim.run(ctx, flops, round.Rounds(n), rest)
		if err != nil {
			return fmt.Errorf("%d blocks: %w", n, err)
		}
		r := compareSimGrid(round, n, rest, o)
		list, worst, ver = append(list, r), max(worst, r.Disagreement), o.Version
	}
	if err := a.printSimGrid(list, worst, ver, round, platform, rest); err != nil {
		return err
	}
	if !(worst <= simGridTolerance) {
		return fmt.Errorf("SimGrid and the closed form differ by %.2g", worst)
	}
	return nil
}

func (a *app) printSimGrid(list []simGridReport, worst float64, ver string, round predict.Round, p *simgrid.Platform, rest measure.Seconds) error {
	if a.json {
		return a.printJSON(map[string]any{
			"simgrid": ver, "round": round, "speed_flop_s": p.Speed, "idle_w": p.Idle, "busy_w": p.Busy, "rest_s": rest,
			"runs": list, "worst_relative_difference": worst,
		})
	}
	fmt.Fprintf(a.out, "SimGrid %s, a host of %g flop/s, %v idle and %v busy; rounds of %d blocks\n\n", ver, p.Speed, p.Idle, p.Busy, round.Blocks)
	t := newTable(a.out)
	t.AppendHeader([]any{"blocks", "rounds", "time", "energy", fmt.Sprintf("%v idle", rest), "closed form differs by"})
	for _, r := range list {
		t.AppendRow([]any{r.Blocks, r.Rounds, fmt.Sprintf("%.10g s", r.SimTimeS), fmt.Sprintf("%.10g J", r.SimEnergyJ), fmt.Sprintf("%.10g J", r.SimRestJ), fmt.Sprintf("%.1e", r.Disagreement)})
	}
	t.Render()
	return nil
}

// simulated is the platform, round and work of a round that the flags name.
func (a *app) simulated(ctx context.Context, f platformFlags, args []string) (*simgrid.Platform, predict.Round, float64, error) {
	if f.platform != "" {
		if len(args) > 0 {
			return nil, predict.Round{}, 0, withCode(exitUsage, errors.New("name a model or a platform, not both"))
		}
		p, r, err := f.read()
		if err != nil {
			return nil, r, 0, err
		}
		return p, r, float64(r.Time) * p.Speed, nil
	}
	p, err := a.loadPrediction(ctx, args)
	if err != nil {
		return nil, predict.Round{}, 0, err
	}
	r, err := p.model.Round(predict.Target{SMs: f.sms, Resident: f.resident})
	if err != nil {
		return nil, r, 0, withCode(exitUsage, err)
	}
	p.Round = r
	return p.platform(), r, p.flopsPerBlock() * float64(r.Blocks), nil
}

func compareSimGrid(r predict.Round, blocks uint64, rest measure.Seconds, o simgrid.Outcome) simGridReport {
	out := simGridReport{roundReport: newRoundReport(r, blocks), SimTimeS: float64(o.Time), SimEnergyJ: float64(o.Energy)}
	_, all := r.At(blocks, rest)
	out.RestJ, out.SimRestJ = float64(r.Idle)*float64(rest), float64(o.RestEnergy-o.Energy)
	for _, c := range [][2]float64{{out.TimeS, out.SimTimeS}, {out.EnergyJ, out.SimEnergyJ}, {float64(all), float64(o.RestEnergy)}} {
		if c[0] != 0 || c[1] != 0 {
			out.Disagreement = max(out.Disagreement, math.Abs(c[1]-c[0])/math.Abs(c[0]))
		}
	}
	return out
}

// simGridProgram is our program, compiled for the SimGrid of this machine.
type simGridProgram struct{ dir, program, platform string }

// buildSimGrid compiles the program into a folder of its own, with the platform.
func buildSimGrid(ctx context.Context, p *simgrid.Platform) (_ *simGridProgram, err error) {
	compiler := firstOf(os.Getenv("CXX"), "g++")
	if _, err := exec.LookPath(compiler); err != nil {
		return nil, fmt.Errorf("SimGrid needs a C++ compiler: %w (Debian: apt install g++ libsimgrid-dev); the closed form needs neither: wattmark predict at", err)
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
	if err := writeFile(s.platform, func(w io.Writer) error { _, err := p.WriteTo(w); return err }); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, compiler, "-O1", "-o", s.program, source, "-lsimgrid").CombinedOutput() // #nosec G702 -- the compiler that the user names, and no shell
	if err != nil {
		hint := ""
		if bytes.Contains(out, []byte("simgrid/")) || bytes.Contains(out, []byte("-lsimgrid")) {
			hint = "\nIs SimGrid installed? Debian: apt install libsimgrid-dev"
		}
		return nil, fmt.Errorf("the program for SimGrid does not compile: %w\n%s%s", err, firstLines(out, 5), hint)
	}
	return s, nil
}

func firstLines(b []byte, n int) string {
	lines := strings.SplitN(strings.TrimSpace(string(b)), "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

func (s *simGridProgram) run(ctx context.Context, flops float64, rounds uint64, rest measure.Seconds) (simgrid.Outcome, error) {
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

func (s *simGridProgram) remove(w io.Writer) {
	if err := os.RemoveAll(s.dir); err != nil {
		fmt.Fprintln(w, "wattmark:", err)
	}
}
