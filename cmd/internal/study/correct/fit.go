package correct

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/certificate"
	"github.com/wattmark/wattmark/analysis/correct"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

func correctFitCmd(a *cli.App) *cobra.Command {
	var f CorrectFlags
	c := f.command(a, "fit TASK | --readings FILE", "Fit the constant of a sensor that lags on its own readings",
		correctFit)
	c.Flags().StringArrayVar(&f.runs, "run", nil,
		"begin and end of a run of the same work, as in 2.0..7.35 (repeatable)")
	return a.HostFlag(a.JSONFlag(c))
}

// correctFit fits the constant of a lag: on runs of different lengths where --run names
// them, on the kernel of --from and --to or of the task, or on a rise that it finds in
// the readings.
func correctFit(a *cli.App, ctx context.Context, args []string, f CorrectFlags) error {
	if err := f.oneSource(args); err != nil {
		return err
	}
	kernel, err := f.kernel()
	if err != nil {
		return err
	}
	var runs []correct.Span
	for _, s := range f.runs {
		from, to, ok := strings.Cut(s, "..")
		begin, err1 := strconv.ParseFloat(from, 64)
		end, err2 := strconv.ParseFloat(to, 64)
		if !ok || errors.Join(err1, err2) != nil || !(begin < end) {
			return cli.Usagef("--run %q: want begin and end in seconds, as in 2.0..7.35", s)
		}
		runs = append(runs, correct.Span{From: measure.Seconds(begin), To: measure.Seconds(end)})
	}
	rs, kernel, err := fitReadings(a, ctx, args, f, kernel)
	if err != nil {
		return err
	}
	var fit correct.Fit
	switch {
	case len(runs) > 0:
		fit, err = correct.FitDuration(rs, runs)
	case kernel == (correct.Span{}):
		fit, err = correct.FitAnywhere(rs)
	default:
		fit, err = correct.FitRise(rs, kernel)
	}
	if err != nil {
		return err
	}
	// The negated comparison refuses NaN too.
	if !(fit.C > 0) {
		return fmt.Errorf(
			"the constant comes out as %v: these readings do not lag, or the runs were not the same work", fit.C)
	}
	return a.Print(fit, func(w io.Writer) { renderFit(w, &fit) })
}

// fitReadings returns the readings of a file or a task, and the kernel where it is known:
// the span of the flags, else that of the task's work.
func fitReadings(a *cli.App, ctx context.Context, args []string, f CorrectFlags,
	kernel correct.Span,
) ([]correct.Reading, correct.Span, error) {
	if len(args) == 0 {
		rs, _, err := readReadings(f.readings, f.field)
		return rs, kernel, err
	}
	db, t, err := a.OpenTask(ctx, args[0])
	if err != nil {
		return nil, kernel, err
	}
	defer db.Close()
	from, to, err := exchange.WorkSpan(ctx, db, t.ID)
	if err != nil {
		return nil, kernel, err
	}
	rs, _, err := taskReadings(ctx, db, t.ID, f.field, from)
	if kernel == (correct.Span{}) {
		kernel = correct.Span{From: 0, To: measure.SecondsOf(to.Sub(from))}
	}
	return rs, kernel, err
}

// renderFit writes the fit as text, with the flags of wattmark correct that use it. The constant is the time that a
// step of power appears late: the time constant and the delay together.
func renderFit(w io.Writer, f *correct.Fit) {
	u := map[bool]string{true: f.U.String(), false: "?"}[measure.Known(f.U)]
	fmt.Fprintf(w, "constant  %v ± %s (k = 2), by %s\n", f.C, u, f.How)
	if measure.Known(f.Tau) && measure.Known(f.Delay) {
		fmt.Fprintf(w, "          the rise fits an exponential of %v, %v late\n", f.Tau, f.Delay)
	}
	if measure.Known(f.From) {
		fmt.Fprintf(w, "kernel    %s to %s, ", seconds(f.From), seconds(f.To))
	} else {
		fmt.Fprint(w, "power     ")
	}
	if measure.Known(f.Rest) {
		fmt.Fprintf(w, "%.1f W to ", float64(f.Rest))
	}
	fmt.Fprintf(w, "%.1f W; %s\n", float64(f.Work), measure.Plural(f.Readings, "reading"))
	out.Each(w, "caution   %s\n", f.Warnings)
	// Rounded to 10 µs; the uncertainty is rounded up to 0.1 ms.
	d := time.Duration(math.Round(float64(f.C)*1e5)) * 10 * time.Microsecond
	fmt.Fprintf(w, "Use it:   wattmark correct … --tau %v", d)
	if measure.Known(f.U) {
		fmt.Fprintf(w, " --tau-u %v", time.Duration(math.Ceil(float64(f.U)*1e4))*100*time.Microsecond)
	}
	fmt.Fprintln(w)
}

// correctModelCmd builds correct model, which prints the readings of a simulated K20 as a
// check of the correction against a known energy.
func correctModelCmd(a *cli.App) *cobra.Command {
	var length, gap time.Duration
	var power, noise float64
	var runs int
	var seed uint64
	model := func(context.Context, []string) error {
		if length <= 0 || gap < 0 || runs < 1 || runs > 1000 || noise < 0 || length > time.Hour {
			return cli.Usagef("--length %v --gap %v --runs %d --noise %g: want a "+
				"positive length, and 1 to 1000 runs", length, gap, runs, noise)
		}
		// Kernels follow after 2 s of rest; the readings end 4 s behind the last decay.
		m := correct.K20()
		m.Noise, m.Seed, m.Kernels = measure.Watt(noise), seed, nil
		at := measure.Seconds(2)
		for range runs {
			end := at + measure.SecondsOf(length)
			m.Kernels = append(m.Kernels,
				correct.ModelKernel{Span: correct.Span{From: at, To: end}, Power: measure.Watt(power)})
			at = end + measure.SecondsOf(gap)
		}
		m.End = m.T4() + 4
		return printK20(a, m)
	}
	c := cli.Command("model", "Print the readings of a modelled K20, to try the correction on", cobra.NoArgs, model)
	fl := c.Flags()
	fl.DurationVar(&length, "length", 5346*time.Millisecond, "how long a kernel runs")
	fl.IntVar(&runs, "runs", 1, "how often")
	fl.DurationVar(&gap, "gap", 2*time.Second, "rest between two kernels")
	fl.Float64Var(&power, "power", 158.47, "what a kernel draws, in watts")
	fl.Float64Var(&noise, "noise", 0.005, "standard deviation of a look of the sensor, in watts")
	fl.Uint64Var(&seed, "seed", 1, "seed of the noise")
	return a.JSONFlag(c)
}

// printK20 prints the readings as CSV, or as JSON together with the true energy.
func printK20(a *cli.App, m correct.Model) error {
	rs := m.Readings()
	if a.JSON {
		return json.NewEncoder(cli.Raw(a.Out)).Encode(struct {
			Energy   measure.Joule     `json:"energy_j"`
			Readings []correct.Reading `json:"readings"`
		}{m.Energy(), rs})
	}
	w := bufio.NewWriter(cli.Raw(a.Out))
	fmt.Fprintln(w, "time_s,power_w")
	for _, r := range rs {
		fmt.Fprintf(w, "%.6f,%.3f\n", float64(r.At), float64(r.Power))
	}
	return w.Flush()
}

// CertificateFlags name a certificate of a sensor and the key that it must be signed by.
type CertificateFlags struct {
	Path string
	// file of a public key; empty to check that nothing was changed, not who signed
	Key string
}

// Flags adds both flags to fl.
func (f *CertificateFlags) Flags(fl *pflag.FlagSet) {
	fl.StringVar(&f.Path, "certificate", "", "the sensor, by a certificate of it (wattmark certificate)")
	f.KeyFlag(fl)
}

// KeyFlag adds the flag of the key to fl.
func (f *CertificateFlags) KeyFlag(fl *pflag.FlagSet) {
	fl.StringVar(&f.Key, "certificate-key", "", "public key that the certificate must be signed by")
}

// Open reads and checks the certificate. Errors name the file and wrap
// certificate.ErrRefused.
func (f *CertificateFlags) Open() (*certificate.Certificate, error) {
	var key *certificate.Key
	b, err := os.ReadFile(cmp.Or(f.Key, f.Path))
	if err == nil && f.Key != "" {
		if key, err = certificate.ParsePublic(string(b)); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Key, err)
		}
		b, err = os.ReadFile(f.Path)
	}
	if err != nil {
		return nil, err
	}
	c, err := certificate.Open(b, key, time.Now())
	return c, logfile.In(f.Path, err)
}

// Read is Open with a warning on standard error where no key was named: then it is not known
// who signed.
func (f *CertificateFlags) Read(a *cli.App) (*certificate.Certificate, error) {
	c, err := f.Open()
	if err == nil && f.Key == "" {
		fmt.Fprintf(a.Err, "wattmark: whether %q signed %s was not checked: name the public key with --certificate-key\n",
			measure.Printable(c.Issuer.Name), f.Path)
	}
	return c, err
}

// Fits refuses a certified profile for another GPU or driver; an empty argument is not
// compared, and neither is a profile of another origin.
func (f *CertificateFlags) Fits(p *sensor.Profile, uuid, driver string) error {
	if f.Path == "" {
		return nil
	}
	return logfile.In(f.Path, (&certificate.Certificate{Sensor: *p}).Covers(uuid, driver, ""))
}
