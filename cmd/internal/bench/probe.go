package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/checkup"
)

// checkFor is the length of a check by default, and of one that is to have none.
const checkFor = 10 * time.Second

// check measures a bench and prints findings. It fails with ExitFailed where a finding is a
// fault: a figure measured on this bench would be wrong.
func check(ctx context.Context, a *cli.App, f meterFlags) error {
	f.length = cmp.Or(f.length, checkFor)
	begin, bar := time.Now(), a.Progress("checking")
	defer bar.End()
	r, err := survey(ctx, a, f, bar, func(b monitor.Bench, _ *checkup.Survey) {
		bar.Note(b.Name)
		bar.Set(int(time.Since(begin)), int(f.length))
	})
	if err != nil {
		return err
	}
	findings := checkup.Findings(r)
	report := checkJSON{ProbeJSON: probeReport(r), Findings: findings, Worst: checkup.Worst(findings)}
	for i, c := range r.Channels {
		report.Channels = append(report.Channels, channelCheck{
			r.Setup.Channels[i].Name, r.Setup.Channels[i].Unit, c.Mean, c.Least, c.Most, c.Low + c.High, c.Noise,
		})
	}
	err = a.Print(report, func(w io.Writer) { renderCheck(w, r, findings) })
	if err != nil || checkup.Worst(findings) < checkup.Fault {
		return err
	}
	faults := 0
	for _, f := range findings {
		if f.Level == checkup.Fault {
			faults++
		}
	}
	return cli.WithCode(cli.ExitFailed, fmt.Errorf("the bench is not ready: %d faults, see above", faults))
}

// levelSigns are the levels as check prints them.
var levelSigns = map[checkup.Level]string{
	checkup.Fine: "ok", checkup.Note: "note", checkup.Warning: "WARNING",
	checkup.Fault: "FAULT",
}

// renderCheck prints each channel's noise from scan to scan, the noise that the setup states,
// and the floor: the least Allan deviation, with its averaging time. The rails, and the
// findings with remedies, follow.
func renderCheck(w io.Writer, r *checkup.Result, findings []checkup.Finding) {
	fmt.Fprintf(w, "%s in %v\n\n", measure.Plural(r.Scans, "scan"), r.Duration)
	if r.Scans > 0 {
		n := out.NewTable(w)
		n.AppendHeader(table.Row{"channel", "mean", "noise a scan", "stated", "floor", "averaged over"})
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
			n.AppendRow(table.Row{ch.Name, inUnit(c.Mean, ch.Unit), noise, stated, floor, over})
		}
		n.Render()
		fmt.Fprintf(w, "\n%s\n", railTable(r, r.Rails))
	}
	t := out.NewTable(w)
	for _, f := range findings {
		t.AppendRow(table.Row{levelSigns[f.Level], f.Subject, f.Text})
		if f.Remedy != "" {
			t.AppendRow(table.Row{"", "", "→ " + f.Remedy})
		}
	}
	t.Render()
}

// inUnit formats a value with an SI prefix and the unit; any unit but V and A counts as W.
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

// checkJSON is the JSON of instruments check.
type checkJSON struct {
	ProbeJSON
	Channels []channelCheck    `json:"channels"`
	Findings []checkup.Finding `json:"findings"`
	Worst    checkup.Level     `json:"worst"`
}

// channelCheck is a channel's statistics in its unit. OverRange counts readings at either
// end of the range.
type channelCheck struct {
	Name      string               `json:"name"`
	Unit      measure.Unit         `json:"unit"`
	Mean      float64              `json:"mean"`
	Least     float64              `json:"least"`
	Most      float64              `json:"most"`
	OverRange uint64               `json:"over_range"`
	Allan     []quality.AllanPoint `json:"allan"`
}

// Times of a probe.
const (
	probeOnce  = 2 * time.Second
	probeRenew = 500 * time.Millisecond
)

// tableOut returns the writer for tables: standard output, or none with --json, whose
// document must stand alone.
func tableOut(a *cli.App) io.Writer {
	if a.JSON {
		return io.Discard
	}
	return a.Out
}

// probe prints a meter's readings: on a terminal renewed twice a second until f.length is
// over or ctx ends, elsewhere once.
func probe(ctx context.Context, a *cli.App, f meterFlags) error {
	live := out.IsTerminal(a.Out) && !a.JSON
	if !live && f.length == 0 {
		f.length = probeOnce
	}
	shown := 0
	r, err := survey(ctx, a, f, nil, func(b monitor.Bench, s *checkup.Survey) {
		if live {
			shown = redraw(a.Out, shown, b.Name, s.Result(), s.Recent())
		}
	})
	if err != nil {
		return err
	}
	return a.Print(probeReport(r), func(w io.Writer) {
		// The last redraw is on the screen already; deferred readings came after it.
		if !live || r.Deferred {
			fmt.Fprint(w, railTable(r, r.Rails))
		}
	})
}

// redraw prints the rails over the last output of shown lines, and returns the number of
// lines printed now.
func redraw(w io.Writer, shown int, bench string, r *checkup.Result, rails []checkup.Rail) int {
	if r.Scans == 0 {
		return shown
	}
	rate := "" // not known at first
	if r.Rate != 0 {
		rate = ", " + out.RateText(r.Rate)
	}
	text := fmt.Sprintf("%s  %v, %s%s   (Ctrl-C ends)\n", bench, r.Duration, measure.Plural(r.Scans, "scan"), rate) + railTable(r, rails)
	up := ""
	// Cursor up, then erase to the end of the screen.
	if shown > 0 {
		up = fmt.Sprintf("\x1b[%dA\x1b[J", shown)
	}
	fmt.Fprint(w, up+text)
	return strings.Count(text, "\n")
}

// railTable formats the rails' mean voltage, current and power, with the extremes of the
// power, and the total over rails. Cells are empty where a rail measures power alone.
func railTable(r *checkup.Result, rails []checkup.Rail) string {
	var b strings.Builder
	t := out.NewTable(&b)
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
			r.Setup.Rails[i].Name, volt, ampere, measure.Watt(x.Power.Mean), measure.Watt(x.Power.Least),
			measure.Watt(x.Power.Most),
		})
	}
	if len(rails) > 1 {
		t.AppendFooter(table.Row{"total", "", "", measure.Watt(total), "", ""})
	}
	t.Render()
	return b.String()
}

// railReading is a rail in JSON.
type railReading struct {
	Name string `json:"rail"`
	checkup.Rail
}

// ProbeJSON is the JSON of instruments probe. URateHz is the standard uncertainty of the
// rate.
type ProbeJSON struct {
	Scans     uint64        `json:"scans"`
	DurationS float64       `json:"duration_s"`
	RateHz    float64       `json:"rate_hz,omitempty"`
	URateHz   float64       `json:"u_rate_hz,omitempty"` // k = 1
	Rails     []railReading `json:"rails"`
	// The calibration in force; no records for the nominal scale.
	CalibrationID string   `json:"calibration_id"`
	Records       []string `json:"calibration_records"`
}

// probeReport converts a survey for JSON.
func probeReport(r *checkup.Result) ProbeJSON {
	p := ProbeJSON{
		Scans: r.Scans, DurationS: float64(r.Duration), RateHz: float64(r.Rate), URateHz: float64(r.URate),
		CalibrationID: r.Setup.CalibrationID(), Records: r.Setup.RecordIDs(),
	}
	for i, x := range r.Rails {
		p.Rails = append(p.Rails, railReading{r.Setup.Rails[i].Name, x})
	}
	return p
}
