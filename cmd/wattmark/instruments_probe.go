package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/monitor"
	"wattmark/monitor/checkup"
)

func (a *app) probeCmd() *cobra.Command {
	var f meterFlags
	c := &cobra.Command{
		Use: "probe", Short: "Show what a meter reads now, in volts, amperes and watts", Args: cobra.NoArgs,
		Long: `Open a meter and show what its rails read. On a terminal the values are renewed
twice a second, until Ctrl-C or for the time of --for; elsewhere they are printed
once, after 2 s or that time. Nothing is stored. A monitor may run meanwhile; while it
samples, the meter is its own.

The calibration records in force are those of a monitor of the same bench: calibration/
beside the bench file, or --calibration. --nominal shows the scale of the instrument
and the bench file without them.`,
		Example: "  wattmark instruments probe --bench bench.yaml\n  wattmark instruments probe --instrument nvml --for 5s --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.probe(cmd.Context(), f)
		},
	}
	f.add(c, 0)
	return a.jsonFlag(c)
}

// Times of a probe.
const (
	probeOnce  = 2 * time.Second
	probeRenew = 500 * time.Millisecond
)

// tableOut is where people read; a script's JSON stands alone.
func (a *app) tableOut() io.Writer {
	if a.json {
		return io.Discard
	}
	return a.out
}

func (a *app) probe(ctx context.Context, f meterFlags) error {
	live := isTerminal(a.out) && !a.json
	if !live && f.length == 0 {
		f.length = probeOnce
	}
	shown := 0
	r, err := survey(ctx, f, a.tableOut(), a.err, func(b monitor.Bench, s *checkup.Survey) {
		if live {
			shown = redraw(a.out, shown, b.Name, s.Result(), s.Recent())
		}
	})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(probeReport(r))
	}
	if live && !r.Deferred {
		return nil
	}
	fmt.Fprint(a.out, railTable(r, r.Rails))
	return nil
}

// redraw writes the rails over what was shown before, and returns the lines.
func redraw(w io.Writer, shown int, bench string, r *checkup.Result, rails []checkup.Rail) int {
	if r.Scans == 0 {
		return shown
	}
	text := fmt.Sprintf("%s  %v, %d scans%s   (Ctrl-C ends)\n", bench, r.Duration, r.Scans, rateNote(r)) + railTable(r, rails)
	up := ""
	if shown > 0 {
		up = fmt.Sprintf("\x1b[%dA\x1b[J", shown)
	}
	fmt.Fprint(w, up+text)
	return strings.Count(text, "\n")
}

func rateNote(r *checkup.Result) string {
	if r.Rate == 0 {
		return ""
	}
	return ", " + rateText(float64(r.Rate))
}

// railTable shows the rails' values; empty cells where a rail has none.
func railTable(r *checkup.Result, rails []checkup.Rail) string {
	var b strings.Builder
	t := newTable(&b)
	t.AppendHeader(table.Row{"rail", "voltage", "current", "power", "least", "most"})
	var total float64
	for i, x := range rails {
		if x.Power.N == 0 {
			t.AppendRow(table.Row{r.Setup.Rails[i].Name, "no sample", "", "", "", ""})
			continue
		}
		total += x.Power.Mean
		volt, ampere := "", ""
		if x.Voltage.N > 0 {
			volt, ampere = measure.Volt(x.Voltage.Mean).String(), measure.Ampere(x.Current.Mean).String()
		}
		t.AppendRow(table.Row{
			r.Setup.Rails[i].Name, volt, ampere, measure.Watt(x.Power.Mean), measure.Watt(x.Power.Least), measure.Watt(x.Power.Most),
		})
	}
	if len(rails) > 1 {
		t.AppendFooter(table.Row{"total", "", "", measure.Watt(total), "", ""})
	}
	t.Render()
	return b.String()
}

// railReading is a rail in JSON; what a rail has not is left out.
type railReading struct {
	Rail     string         `json:"rail"`
	VoltageV *spreadReading `json:"voltage_v,omitempty"`
	CurrentA *spreadReading `json:"current_a,omitempty"`
	PowerW   *spreadReading `json:"power_w,omitempty"`
}

type spreadReading struct {
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"standard_deviation"`
	Least     float64 `json:"least"`
	Most      float64 `json:"most"`
}

type probeJSON struct {
	Scans     uint64        `json:"scans"`
	DurationS float64       `json:"duration_s"`
	RateHz    float64       `json:"rate_hz,omitempty"`
	URateHz   float64       `json:"u_rate_hz,omitempty"` // k = 1
	Rails     []railReading `json:"rails"`
	// The calibration in force; no records for the nominal scale.
	CalibrationID string   `json:"calibration_id"`
	Records       []string `json:"calibration_records"`
}

func probeReport(r *checkup.Result) probeJSON {
	p := probeJSON{
		Scans: r.Scans, DurationS: float64(r.Duration), RateHz: float64(r.Rate), URateHz: float64(r.URate),
		CalibrationID: r.Setup.CalibrationID(), Records: []string{},
	}
	for _, c := range r.Setup.Records {
		p.Records = append(p.Records, c.ID)
	}
	for i, x := range r.Rails {
		p.Rails = append(p.Rails, railReading{r.Setup.Rails[i].Name, reading(x.Voltage), reading(x.Current), reading(x.Power)})
	}
	return p
}

func reading(s checkup.Spread) *spreadReading {
	if s.N == 0 {
		return nil
	}
	return &spreadReading{s.Mean, s.Deviation, s.Least, s.Most}
}
