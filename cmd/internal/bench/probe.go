package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/checkup"
	"github.com/wattmark/wattmark/monitor/instrument/powersensor3"
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
	faults := lists.Filter(findings, func(f *checkup.Finding) bool { return f.Level == checkup.Fault })
	return cli.WithCode(cli.ExitFailed, fmt.Errorf("the bench is not ready: %d faults, see above", len(faults)))
}

// renderCheck prints each channel's noise from scan to scan, the noise that the setup states,
// and the floor: the least Allan deviation, with its averaging time. The rails, and the
// findings with remedies, follow.
func renderCheck(w io.Writer, r *checkup.Result, findings []checkup.Finding) {
	fmt.Fprintf(w, "%s in %v\n\n", measure.Plural(r.Scans, "scan"), r.Duration)
	if r.Scans > 0 {
		n := out.NewTable(w, "channel", "mean", "noise a scan", "stated", "floor", "averaged over")
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
			n.AppendRow(out.Row{ch.Name, inUnit(c.Mean, ch.Unit), noise, stated, floor, over})
		}
		n.Render()
		fmt.Fprintf(w, "\n%s\n", railTable(r, r.Rails))
	}
	t := out.NewTable(w)
	signs := [...]string{checkup.Fine: "ok", checkup.Note: "note", checkup.Warning: "WARNING", checkup.Fault: "FAULT"}
	for _, f := range findings {
		t.AppendRow(out.Row{signs[f.Level], f.Subject, f.Text})
		if f.Remedy != "" {
			t.AppendRow(out.Row{"", "", "→ " + f.Remedy})
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

// probe prints a meter's readings: on a terminal renewed twice a second until f.length is
// over or ctx ends, elsewhere once.
func probe(ctx context.Context, a *cli.App, f meterFlags) error {
	live := out.IsTerminal(a.Out) && !a.JSON
	if !live && f.length == 0 {
		f.length = 2 * time.Second
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
	text := fmt.Sprintf("%s  %v, %s%s   (Ctrl-C ends)\n", bench, r.Duration, measure.Plural(r.Scans, "scan"),
		rate) + railTable(r, rails)
	up := ""
	if shown > 0 { // cursor up, then erase to the end of the screen
		up = fmt.Sprintf("\x1b[%dA\x1b[J", shown)
	}
	fmt.Fprint(w, up+text)
	return strings.Count(text, "\n")
}

// railTable formats the rails' mean voltage, current and power, with the extremes of the
// power, and the total over rails. Cells are empty where a rail measures power alone.
func railTable(r *checkup.Result, rails []checkup.Rail) string {
	var b strings.Builder
	t := out.NewTable(&b, "rail", "voltage", "current", "power", "least", "most")
	var total float64
	for i, x := range rails {
		name := r.Setup.Rails[i].Name
		if x.Power.N == 0 {
			t.AppendRow(out.Row{name, "no sample", "", "", "", ""})
			continue
		}
		total += x.Power.Mean
		volt, ampere := "", ""
		if x.Voltage.N > 0 {
			volt, ampere = measure.Volt(x.Voltage.Mean).String(), measure.Ampere(x.Current.Mean).String()
		}
		p := x.Power
		t.AppendRow(out.Row{name, volt, ampere, measure.Watt(p.Mean), measure.Watt(p.Least), measure.Watt(p.Most)})
	}
	if len(rails) > 1 {
		t.AppendFooter(out.Row{"total", "", "", measure.Watt(total), "", ""})
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

// sensorTable is the stored configuration: eight sensors, current and voltage in turn.
type sensorTable = [powersensor3.Sensors]powersensor3.Sensor

// psConfigCmd returns powersensor3 config, which writes to the device only what --set names, after consent.
func psConfigCmd(a *cli.App) *cobra.Command {
	var port string
	var settings []string
	var yes bool
	c := cli.Command("config", "Show or change the configuration that a PowerSensor3 stores", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return psConfig(ctx, a, port, settings, yes) })
	fl := c.Flags()
	fl.StringVar(&port, "port", "", "the device: a serial port such as /dev/ttyACM0, or tcp:host:port")
	fl.StringArrayVar(&settings, "set", nil, "change pairN.name, sensorN.type, sensorN.vref, sensorN.sensitivity or "+
		"sensorN.in_use: KEY=VALUE; may be given again")
	fl.BoolVar(&yes, "yes", false, "write a change without asking")
	_ = c.MarkFlagRequired("port")
	return a.JSONFlag(c)
}

// psConfig prints the configuration, or changes it by settings of the form KEY=VALUE. The
// settings are parsed against an empty table first, so that a typing error is found before
// the device is opened. A write is read back and compared by the driver.
func psConfig(ctx context.Context, a *cli.App, port string, settings []string, yes bool) error {
	if a.JSON && len(settings) > 0 && !yes {
		return cli.Usagef("--json asks nothing: add --yes to write what --set changes")
	}
	dev, err := powersensor3.New(port, powersensor3.Defaults())
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	if err := applySettings(&sensorTable{}, settings); err != nil { // before a device is touched
		return cli.WithCode(cli.ExitUsage, err)
	}
	if err := dev.OpenToConfigure(ctx); err != nil {
		return err
	}
	defer dev.Close()
	was := dev.Sensors()
	// Apply the changes to a copy: the write needs the whole table.
	want := was
	if err := applySettings(&want, settings); err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	if want == was {
		if len(settings) > 0 {
			a.Textf("The device holds that already.\n")
		}
		return printSensors(a, was)
	}
	if !a.JSON {
		printChange(a, was, want)
	}
	if !yes {
		if ok, _ := a.Ask("Write this to the device? [y/N] "); !ok { // the end of the input means no
			return errors.New("nothing was written")
		}
	}
	if err := dev.WriteConfig(ctx, want); err != nil {
		if errors.Is(err, powersensor3.ErrPartial) {
			fmt.Fprintln(a.Err, "The device holds now:")
			printSensorTable(a.Err, dev.Sensors())
		}
		return err
	}
	if a.JSON {
		return printSensors(a, want)
	}
	fmt.Fprintln(a.Out, "Written, read back, and the same.")
	return nil
}

func applySettings(t *sensorTable, settings []string) error {
	for _, s := range settings {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("--set %s: want KEY=VALUE", s)
		}
		if err := powersensor3.Set(t, key, value); err != nil {
			return fmt.Errorf("--set %w", err)
		}
	}
	return nil
}

// printSensors prints the configuration as a table or as JSON.
func printSensors(a *cli.App, t sensorTable) error {
	type sensor struct {
		Number int `json:"sensor"`
		powersensor3.Sensor
	}
	var list []sensor
	for i, s := range t {
		list = append(list, sensor{i, s})
	}
	return a.Print(map[string]any{"sensors": list}, func(w io.Writer) { printSensorTable(w, t) })
}

// printSensorTable prints the configuration as a table. Even sensors measure currents.
func printSensorTable(w io.Writer, sensors sensorTable) {
	t := out.NewTable(w, "sensor", "measures", "pair", "type", "vref", "sensitivity", "in use")
	for i, s := range sensors {
		t.AppendRow(sensorRow(i, [...]string{"current", "voltage"}[i%2], s))
	}
	t.Render()
}

// sensorRow formats sensor i; word goes into the second column.
func sensorRow(i int, word string, s powersensor3.Sensor) out.Row {
	sensitivity := fmt.Sprintf("%v %s", s.Sensitivity, [...]string{"V/A", "V/V"}[i%2])
	return out.Row{i, word, s.Pair, s.Type, fmt.Sprintf("%v V", s.Vref), sensitivity, s.InUse}
}

func printChange(a *cli.App, was, want sensorTable) {
	t := out.NewTable(a.Out, "sensor", "", "pair", "type", "vref", "sensitivity", "in use")
	for i := range was {
		if was[i] != want[i] {
			t.AppendRow(sensorRow(i, "is", was[i]))
			t.AppendRow(sensorRow(i, "becomes", want[i]))
		}
	}
	t.Render()
}
