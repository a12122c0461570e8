package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/analysis/correct"
	"wattmark/measure"
)

func (a *app) correctFitCmd() *cobra.Command {
	var f correctFlags
	c := &cobra.Command{
		Use: "fit TASK | --readings FILE", Short: "Fit the constant of a sensor that lags on its own readings", Args: cobra.MaximumNArgs(1),
		Long: `Fit the constant of a built-in sensor that lags, on nothing but its own readings.

One kernel of steady power that began after some rest tells it: by the area that is
missing below the level that the reading nears, where the kernel lasted twelve
constants or more, else by an exponential. Its begin is the task's, or --from and --to,
or where the readings rise.

Runs of the same work for different times tell it too, by energy in proportion to
duration: name each with --run BEGIN..END, in seconds since the first reading.`,
		Example: `  wattmark correct fit --readings smi.csv
  wattmark correct fit --readings smi.csv --from 1.228 --to 7.198
  wattmark correct fit --readings smi.csv --run 2.0..7.346 --run 22.0..32.692`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.givenFrom, f.givenTo = cmd.Flags().Changed("from"), cmd.Flags().Changed("to")
			return a.correctFit(cmd.Context(), args, f)
		},
	}
	f.source(c)
	c.Flags().StringArrayVar(&f.runs, "run", nil, "begin and end of a run of the same work, as in 2.0..7.35 (repeatable)")
	return a.jsonFlag(c)
}

// fitReport is what correct fit prints.
type fitReport struct {
	ConstantS  float64  `json:"constant_s"`
	UConstantS *float64 `json:"constant_u_s"` // k = 2
	How        string   `json:"how"`
	TauS       *float64 `json:"tau_s,omitempty"`
	DelayS     *float64 `json:"delay_s,omitempty"`
	RestW      *float64 `json:"rest_w"`
	WorkW      *float64 `json:"work_w"`
	ResidualW  *float64 `json:"residual_w"`
	FromS      *float64 `json:"from_s,omitempty"`
	ToS        *float64 `json:"to_s,omitempty"`
	Readings   int      `json:"readings"`
	Warnings   []string `json:"warnings,omitempty"`
}

func (a *app) correctFit(ctx context.Context, args []string, f correctFlags) error {
	if err := f.oneSource(args); err != nil {
		return err
	}
	kernel, err := f.kernel()
	if err != nil {
		return err
	}
	runs, err := parseRuns(f.runs)
	if err != nil {
		return err
	}
	rs, kernel, err := a.fitReadings(ctx, args, f, kernel)
	if err != nil {
		return err
	}
	var fit correct.Fit
	var out fitReport
	if len(runs) > 0 {
		fit, err = correct.FitDuration(rs, runs)
	} else {
		if kernel == (correct.Span{}) {
			fit, kernel, err = correct.FitAnywhere(rs)
		} else {
			fit, err = correct.FitRise(rs, kernel)
		}
		out.FromS, out.ToS = number(float64(kernel.From)), number(float64(kernel.To))
		out.TauS, out.DelayS = number(float64(fit.Tau)), number(float64(fit.Delay))
	}
	if err != nil {
		return err
	}
	if !(fit.C > 0) {
		return fmt.Errorf("the constant comes out as %v: these readings do not lag, or the runs were not the same work", fit.C)
	}
	out.ConstantS, out.UConstantS, out.How = float64(fit.C), number(float64(fit.U)), fit.How
	out.RestW, out.WorkW, out.ResidualW = number(float64(fit.Rest)), number(float64(fit.Work)), number(float64(fit.Residual))
	out.Readings, out.Warnings = fit.Readings, fit.Warnings
	if a.json {
		return a.printJSON(out)
	}
	out.render(a)
	return nil
}

// fitReadings are the readings to fit on, and the kernel if it is known.
func (a *app) fitReadings(ctx context.Context, args []string, f correctFlags, kernel correct.Span) ([]correct.Reading, correct.Span, error) {
	if len(args) == 0 {
		rs, _, err := readReadings(f.readings, f.field)
		return rs, kernel, err
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return nil, kernel, err
	}
	defer db.Close()
	t, err := a.task(ctx, db, args[0])
	if err != nil {
		return nil, kernel, err
	}
	from, to, err := workSpan(ctx, db, t.ID)
	if err != nil {
		return nil, kernel, err
	}
	rs, _, err := taskReadings(ctx, db, t.ID, f.field, from)
	if kernel == (correct.Span{}) {
		kernel = correct.Span{From: 0, To: measure.SecondsOf(to.Sub(from))}
	}
	return rs, kernel, err
}

func (r *fitReport) render(a *app) {
	u := "?"
	if r.UConstantS != nil {
		u = measure.Seconds(*r.UConstantS).String()
	}
	fmt.Fprintf(a.out, "constant  %v ± %s (k = 2), by %s\n", measure.Seconds(r.ConstantS), u, r.How)
	if r.TauS != nil && r.DelayS != nil {
		fmt.Fprintf(a.out, "          the rise fits an exponential of %v, %v late\n", measure.Seconds(*r.TauS), measure.Seconds(*r.DelayS))
	}
	if r.FromS != nil {
		fmt.Fprintf(a.out, "kernel    %.3f s to %.3f s, ", *r.FromS, *r.ToS)
	} else {
		fmt.Fprint(a.out, "power     ")
	}
	if r.RestW != nil {
		fmt.Fprintf(a.out, "%.1f W to ", *r.RestW)
	}
	fmt.Fprintf(a.out, "%.1f W; %d readings\n", *r.WorkW, r.Readings)
	for _, w := range r.Warnings {
		fmt.Fprintf(a.out, "caution   %s\n", w)
	}
	d := time.Duration(math.Round(r.ConstantS*1e5)) * 10 * time.Microsecond
	fmt.Fprintf(a.out, "Use it:   wattmark correct … --tau %v", d)
	if r.UConstantS != nil {
		fmt.Fprintf(a.out, " --tau-u %v", time.Duration(math.Ceil(*r.UConstantS*1e4))*100*time.Microsecond)
	}
	fmt.Fprintln(a.out)
}

// parseRuns reads BEGIN..END.
func parseRuns(list []string) (out []correct.Span, err error) {
	for _, s := range list {
		from, to, ok := strings.Cut(s, "..")
		a, err1 := strconv.ParseFloat(from, 64)
		b, err2 := strconv.ParseFloat(to, 64)
		if !ok || errors.Join(err1, err2) != nil || !(a < b) {
			return nil, withCode(exitUsage, fmt.Errorf("--run %q: want begin and end in seconds, as in 2.0..7.35", s))
		}
		out = append(out, correct.Span{From: measure.Seconds(a), To: measure.Seconds(b)})
	}
	return out, nil
}
