package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"wattmark/api/auth"
	"wattmark/api/auth/pki"
)

// overTLS is the transport of a benchmark that asks who calls.
const overTLS = "tls"

// benchLab makes what a monitor that asks wants, and returns what its client wants.
func benchLab(dir string) (auth.Client, error) {
	now := time.Now()
	ca, err := pki.NewCA(dir, now)
	if err != nil {
		return auth.Client{}, err
	}
	p, err := ca.Server([]string{"localhost"}, now, time.Hour)
	if err != nil {
		return auth.Client{}, err
	}
	f := authFlags{dir: dir, life: days(time.Hour)}
	text, tokenErr := f.addToken("bench", auth.Measurer, now, "")
	return auth.Client{CA: filepath.Join(dir, pki.CACert), Token: text}, errors.Join(tokenErr,
		auth.WriteNew(filepath.Join(dir, pki.ServerKey), p.Key, 0o600), auth.WriteNew(filepath.Join(dir, pki.ServerCert), p.Cert, 0o644))
}

// secureReport is what bench secure prints.
type secureReport struct {
	Machine machineReport   `json:"machine"`
	Plain   []*streamReport `json:"plain"`
	Secure  []*streamReport `json:"secure"`
	// Ratio is that of the scans a second with TLS to those without, of each pair of runs
	// that followed each other; Median is theirs.
	Ratio  []float64 `json:"ratio"`
	Median float64   `json:"median"`
	// CPU is the median of the same of processor time a scan, of both processes.
	CPU   float64 `json:"cpu_ratio"`
	Goals []goal  `json:"goals"`
}

// leastRatio is what TLS and tokens must leave of the rate.
const leastRatio = 0.85

func (a *app) benchSecureCmd() *cobra.Command {
	var f ingestFlags
	var rounds int
	c := &cobra.Command{
		Use: "secure", Short: "What TLS and tokens cost between monitor and database", Args: cobra.NoArgs,
		Long: `Stream as bench ingest does, as fast as the slowest stage lets, over loopback:
without TLS, and with TLS 1.3 and a token that is asked for. The two take turns, and
each pair's ratio counts, as the machine's own pace changes with time.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rounds < 1 || f.seconds <= 0 {
				return withCode(exitUsage, errors.New("--rounds and --seconds: want more than 0"))
			}
			return a.benchSecure(cmd.Context(), f, rounds)
		},
	}
	fl := c.Flags()
	fl.Float64Var(&f.seconds, "seconds", 4, "length of each run")
	fl.IntVar(&rounds, "rounds", 5, "pairs of runs")
	fl.StringVar(&f.dir, "dir", os.TempDir(), "directory for spool and database, on the disk that is to be measured")
	return a.jsonFlag(c)
}

func (a *app) benchSecure(ctx context.Context, f ingestFlags, rounds int) error {
	f.transport = "tcp"
	dir, remove, err := f.scratch()
	if err != nil {
		return err
	}
	defer remove()
	r := &secureReport{Machine: describeMachine(dir)}
	var cpu []float64
	for i := range rounds {
		var pair [2]*streamReport
		for j := range pair {
			which := (i + j) % 2 // the first of a pair is not always the same
			f.transport = []string{"tcp", overTLS}[which]
			if pair[which], err = a.ingestOnce(ctx, f, dir, ingestRun{name: fmt.Sprintf("%s %d", f.transport, i+1), length: ofSeconds(f.seconds)}); err != nil {
				return err
			}
		}
		r.Plain, r.Secure = append(r.Plain, pair[0]), append(r.Secure, pair[1])
		r.Ratio = append(r.Ratio, pair[1].ScansPerS/pair[0].ScansPerS)
		cpu = append(cpu, pair[1].cpuPerScan()/pair[0].cpuPerScan())
	}
	r.Median, r.CPU = quantile(slices.Sorted(slices.Values(r.Ratio)), 0.5), quantile(slices.Sorted(slices.Values(cpu)), 0.5)
	r.Goals = []goal{{Name: "rate with TLS and a token, to that without", Want: fmt.Sprintf("at least %.2f", leastRatio), Result: r.Median, Met: r.Median >= leastRatio, shown: fmt.Sprintf("%.3f", r.Median)}}
	if a.json {
		return a.printJSON(r)
	}
	for i, ratio := range r.Ratio {
		p, s := r.Plain[i], r.Secure[i]
		fmt.Fprintf(a.out, "plain %5.1f, TLS %5.1f million scans/s: %.3f   host %.2f and %.2f, monitor %.2f and %.2f cores\n",
			p.ScansPerS/1e6, s.ScansPerS/1e6, ratio, p.HostCores, s.HostCores, p.MonitorCores, s.MonitorCores)
	}
	g := r.Goals[0]
	fmt.Fprintf(a.out, "median ratio %s (goal: %s); processor time a scan %.3f\n", g.shown, g.Want, r.CPU)
	return nil
}

// cpuPerScan is in seconds.
func (r *streamReport) cpuPerScan() float64 {
	return (r.HostCPUS + r.MonitorCPUS) / float64(r.Scans)
}
