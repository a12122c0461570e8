package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/monitor"
	"wattmark/monitor/checkup"
)

func (a *app) checkCmd() *cobra.Command {
	var f meterFlags
	c := &cobra.Command{
		Use: "check", Short: "Check a bench: noise, rate, losses, polarity, swapped rails", Args: cobra.NoArgs,
		Long: `Measure a while and judge the bench: each channel's noise and the floor that
averaging reaches (Allan deviation), the sample rate that is really reached, what
was lost, channels at the end of their range, reversed clamps, shunts and probes,
and rails whose voltage belongs to another. The card must be powered, and idle:
work would count as noise. The calibration records in force are those of a monitor of
the same bench; --nominal leaves them out.

Rails of one voltage that are swapped with each other cannot be told apart.
The exit code is 0 also with warnings, 1 where a figure will be wrong.`,
		Example: "  wattmark instruments check --bench bench.yaml\n  wattmark instruments check --instrument powersensor3 --port /dev/ttyACM0 --for 60s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.check(cmd.Context(), f)
		},
	}
	f.add(c, 10*time.Second)
	return a.jsonFlag(c)
}

func (a *app) check(ctx context.Context, f meterFlags) error {
	if f.length == 0 {
		f.length = 10 * time.Second
	}
	begin, live := time.Now(), isTerminal(a.err)
	r, err := survey(ctx, f, a.tableOut(), a.err, func(b monitor.Bench, _ *checkup.Survey) {
		if live {
			fmt.Fprintf(a.err, "\r\x1b[Kchecking %s: %v of %v", b.Name, time.Since(begin).Round(time.Second), f.length)
		}
	})
	if err != nil {
		return err
	}
	findings := checkup.Findings(r)
	if a.json {
		err = a.printJSON(checkReport(r, findings))
	} else {
		renderCheck(a.out, r, findings)
	}
	if err != nil || checkup.Worst(findings) < checkup.Fault {
		return err
	}
	return withCode(exitFailed, fmt.Errorf("the bench is not ready: %d faults, see above", count(findings, checkup.Fault)))
}

func count(findings []checkup.Finding, l checkup.Level) (n int) {
	for _, f := range findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

var levelSigns = map[checkup.Level]string{checkup.Fine: "ok", checkup.Note: "note", checkup.Warning: "WARNING", checkup.Fault: "FAULT"}

func renderCheck(w io.Writer, r *checkup.Result, findings []checkup.Finding) {
	fmt.Fprintf(w, "%d scans in %v\n\n", r.Scans, r.Duration)
	if r.Scans > 0 {
		renderNoise(w, r)
		fmt.Fprintf(w, "\n%s\n", railTable(r, r.Rails))
	}
	t := newTable(w)
	for _, f := range findings {
		t.AppendRow(table.Row{levelSigns[f.Level], f.Subject, f.Text})
		if f.Remedy != "" {
			t.AppendRow(table.Row{"", "", "→ " + f.Remedy})
		}
	}
	t.Render()
}

// renderNoise shows each channel's noise from scan to scan, and its floor.
func renderNoise(w io.Writer, r *checkup.Result) {
	t := newTable(w)
	t.AppendHeader(table.Row{"channel", "mean", "noise a scan", "stated", "floor", "averaged over"})
	for i, c := range r.Channels {
		ch := r.Setup.Channels[i]
		noise, stated, floor, over := "", "", "", ""
		if len(c.Noise) > 0 {
			noise = inUnit(c.Noise[0].Dev, ch.Unit)
		}
		if ch.Noise > 0 {
			stated = inUnit(ch.Noise, ch.Unit)
		}
		if f, ok := c.Floor(); ok {
			floor, over = inUnit(f.Best.Dev, ch.Unit), f.Best.Tau.String()
		}
		t.AppendRow(table.Row{ch.Name, inUnit(c.Mean, ch.Unit), noise, stated, floor, over})
	}
	t.Render()
}

// inUnit writes a value with its unit.
func inUnit(v float64, u measure.Unit) string {
	switch u {
	case measure.UnitVolt:
		return measure.Volt(v).String()
	case measure.UnitAmpere:
		return measure.Ampere(v).String()
	default:
		return measure.Watt(v).String()
	}
}

// checkJSON is a check for scripts.
type checkJSON struct {
	probeJSON
	Channels []channelCheck `json:"channels"`
	Findings []findingJSON  `json:"findings"`
	Worst    string         `json:"worst"`
}

type channelCheck struct {
	Name      string       `json:"name"`
	Unit      measure.Unit `json:"unit"`
	Mean      float64      `json:"mean"`
	Least     float64      `json:"least"`
	Most      float64      `json:"most"`
	OverRange uint64       `json:"over_range"`
	Allan     []allanPoint `json:"allan"`
}

type allanPoint struct {
	TauS      float64 `json:"tau_s"`
	Deviation float64 `json:"deviation"` // in the channel's unit
	N         uint64  `json:"n"`
}

type findingJSON struct {
	Level   string `json:"level"`
	Subject string `json:"subject,omitempty"`
	Text    string `json:"text"`
	Remedy  string `json:"remedy,omitempty"`
}

func checkReport(r *checkup.Result, findings []checkup.Finding) checkJSON {
	out := checkJSON{probeJSON: probeReport(r), Worst: checkup.Worst(findings).String()}
	for i, c := range r.Channels {
		ch := channelCheck{
			Name: r.Setup.Channels[i].Name, Unit: r.Setup.Channels[i].Unit,
			Mean: c.Mean, Least: c.Least, Most: c.Most, OverRange: c.Low + c.High,
		}
		for _, p := range c.Noise {
			ch.Allan = append(ch.Allan, allanPoint{float64(p.Tau), p.Dev, p.N})
		}
		out.Channels = append(out.Channels, ch)
	}
	for _, f := range findings {
		out.Findings = append(out.Findings, findingJSON{f.Level.String(), f.Subject, f.Text, f.Remedy})
	}
	return out
}
