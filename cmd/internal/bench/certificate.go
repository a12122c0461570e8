package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/monitor/calibration"
	"github.com/wattmark/wattmark/store"
)

// calibrateImportCmd returns calibrate import. Flags take precedence over the certificate.
func calibrateImportCmd(a *cli.App) *cobra.Command {
	var f calibrateFlags
	var channel string
	var nominal bool
	c := &cobra.Command{
		Use: "import FILE", Short: "Take over a laboratory's certificate", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			cert, err := calibration.ParseCertificate(args[0], data)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("by") && cert.By != "" {
				f.by = cert.By
			}
			f.reference, f.remark = cmp.Or(f.reference, cert.Reference), cmp.Or(f.remark, cert.Remark)
			if cert.TemperatureC != nil && !f.hasCelsius {
				f.celsius, f.hasCelsius = *cert.TemperatureC, true
			}
			return recordOn(cmd.Context(), a, &f, calib.Import, func(r *calRig, rec *calib.Record) error {
				return importCertificate(r, rec, cert, channel, nominal)
			})
		},
	}
	f.flags(a, c, false)
	c.Flags().StringVar(&f.reference, "reference", "", "the certificate's number")
	c.Flags().StringVar(&channel, "channel", "", "channel, where the certificate names none")
	c.Flags().BoolVar(&nominal, "nominal", false, "the readings are those of the instrument's own scale")
	return c
}

// importCertificate fits each channel of a certificate as calibrate gain does. channel names
// the channel where the certificate does not; with nominal the readings are those of the
// instrument's own scale.
func importCertificate(r *calRig, rec *calib.Record, cert calibration.Certificate, channel string, nominal bool) error {
	if cert.At != "" {
		at, err := cli.ParseTime(cert.At)
		if err != nil {
			return err
		}
		if !rec.ValidUntil.IsZero() { // the validity counts from the certificate's date
			rec.ValidUntil = at.Add(rec.ValidUntil.Sub(rec.At))
		}
		rec.At = at
	}
	// A certificate may cover several channels; an entry without a name belongs to
	// --channel.
	for _, named := range cert.Channels() {
		name := cmp.Or(named, channel)
		if name == "" {
			return cli.Usagef("the certificate names no channel: say which with --channel")
		}
		i, err := r.index(name)
		if err != nil {
			return err
		}
		c, own, basis := r.setup.Channels[i], r.bench.Nominal.Channels[i], r.basis(name)
		if nominal {
			c, basis = own, ""
		}
		x, err := calib.GainOf(c, own, basis, cert.Of(named))
		if err != nil {
			return fmt.Errorf("nothing was written: %w", err)
		}
		rec.Channels = append(rec.Channels, x)
	}
	return nil
}

// calibrateShuntCmd returns calibrate shunt, which records the resistance in Ω of a rail's
// shunt and its relative uncertainty u.
func calibrateShuntCmd(a *cli.App) *cobra.Command {
	var f calibrateFlags
	var rail string
	var ohm, u float64
	c := cli.Command("shunt", "Record a shunt's resistance", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return recordOn(ctx, a, &f, calib.Shunt, func(r *calRig, rec *calib.Record) error {
			i := slices.IndexFunc(r.bench.Nominal.Rails, func(x measure.Rail) bool {
				return x.Name == rail && x.Wiring == measure.WiringShunt
			})
			if i < 0 {
				return cli.Usagef("no rail %q with a shunt on this bench", rail)
			}
			own := r.bench.Nominal.Rails[i]
			// A larger deviation (−20 % … +25 %) is a wrong unit or a wrong rail rather than a
			// tolerance.
			if off := ohm/float64(own.Shunt) - 1; off > 0.25 || off < -0.2 {
				return cli.Usagef("%g Ω is %+.0f %% off the bench file's %g Ω: check the unit, "+
					"or correct the bench file first", ohm, 100*off, float64(own.Shunt))
			}
			rec.Rails = []calib.Rail{{Name: rail, Ohm: ohm, URel: u, NominalOhm: float64(own.Shunt), NominalURel: own.UShunt}}
			return nil
		})
	})
	f.flags(a, c, false)
	fl := c.Flags()
	fl.StringVar(&f.reference, "reference", "", "what it was measured with, or the certificate's number")
	fl.StringVar(&rail, "rail", "", "rail of the bench file")
	fl.Float64Var(&ohm, "ohm", 0, "resistance in Ω")
	cli.RelativeFlag(fl, &u, "u-rel", 0, "its relative standard uncertainty")
	for _, must := range []string{"rail", "ohm", "u-rel"} {
		_ = c.MarkFlagRequired(must)
	}
	return c
}

// calibrateNoteCmd returns calibrate note, whose record changes no scale.
func calibrateNoteCmd(a *cli.App) *cobra.Command {
	var f calibrateFlags
	var channels []string
	c := cli.Command("note", "Record a remark: where the clamp sits, which cable is used", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			if f.remark == "" {
				return cli.Usagef("a note needs its words: --remark")
			}
			return recordOn(ctx, a, &f, calib.Note, func(r *calRig, rec *calib.Record) error {
				for _, name := range channels {
					i, err := r.index(name)
					if err != nil {
						return err
					}
					rec.Channels = append(rec.Channels, calib.Channel{Name: name, Unit: r.setup.Channels[i].Unit})
				}
				return nil
			})
		})
	f.flags(a, c, false)
	c.Flags().StringSliceVar(&channels, "channel", nil, "channel that it is about (repeatable; default: the bench)")
	return c
}

// calibrateShowCmd returns calibrate show: the records of a folder, a monitor or a task.
func calibrateShowCmd(a *cli.App) *cobra.Command {
	var f calibrateFlags
	var task string
	c := cli.Command("show", "Show the calibration in force, and its history", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			switch {
			case task != "":
				return showTaskRecords(ctx, a, task)
			case f.monitor != "":
				return showMonitorRecords(ctx, a, f.monitor)
			}
			folder := f.bench.Folder()
			if folder == "" {
				return cli.Usagef("say whose calibration: --bench FILE, --calibration DIR, --monitor ADDRESS or --task N")
			}
			h, err := folder.Load()
			if err != nil {
				return err
			}
			a.Textf("%s in %s\n", measure.Plural(len(h), "record"), folder)
			return showHistory(a, h)
		})
	f.where(c)
	c.Flags().StringVar(&task, "task", "", "the records of a task in the database")
	return a.JSONFlag(c)
}

// showHistory prints the record in force of each channel and rail, then all records by
// date.
func showHistory(a *cli.App, h calib.History) error {
	if a.JSON {
		return a.PrintJSON(map[string]any{"records": append(calib.History{}, h...)})
	}
	if len(h) == 0 {
		fmt.Fprintln(a.Out, "No records: the instrument's and the bench file's own scale is in force.")
		return nil
	}
	fmt.Fprintln(a.Out)
	t := out.NewTable(a.Out, "in force", "-record", "-of", "--by", "gain (a count)", "u, today", "zero (at count 0)",
		"u, today")
	all := named(h)
	for _, n := range all {
		name, shown := n.name, n.name
		// A subject without a record in force appears in the history only.
		r := h.InForce(n.of, name)
		if r == nil {
			continue
		}
		// With several instruments a channel's name alone is ambiguous.
		if all[0].of != all[len(all)-1].of {
			shown += " of " + n.of.String()
		}
		row := []any{measure.Printable(shown), r.ID, cli.AtDay(r.At) + cli.Expired(r), measure.Printable(r.By)}
		d := h.DriftAt(n.of, name, time.Now())
		today := func(u, age, temperature float64) float64 { return math.Hypot(u, math.Hypot(age, temperature)) }
		for _, c := range r.Channels {
			if c.Name == name {
				s := c.Scale
				row = append(row, fmt.Sprintf("%.7g %s", s.Gain, c.Unit),
					fmt.Sprintf("%.2g %%", 100*today(s.UGain, d.AgeGain, d.TemperatureGain)), fmt.Sprintf("%.6g %s",
						s.Offset, c.Unit),
					fmt.Sprintf("%.2g %s", today(s.UOffset, d.AgeOffset, d.TemperatureOffset), c.Unit))
			}
		}
		for _, x := range r.Rails {
			if x.Name == name {
				row = append(row, fmt.Sprintf("%.6g Ω", x.Ohm), fmt.Sprintf("%.2g %%",
					100*today(x.URel, d.AgeGain, d.TemperatureGain)))
			}
		}
		t.AppendRow(row)
	}
	t.Render()
	fmt.Fprintln(a.Out, "\nHistory:")
	for _, r := range h {
		fmt.Fprintf(a.Out, "  %s  %s  %s\n", r.At.Local().Format("2006-01-02 15:04"), r.ID, recordText(&r))
	}
	return nil
}

// subject is a channel or a rail of an instrument.
type subject struct {
	of   calib.Instrument
	name string
}

// named returns the channels and rails that appear in records, once each, ordered by
// instrument and name.
func named(h calib.History) (all []subject) {
	for _, r := range h {
		for _, c := range r.Channels {
			all = append(all, subject{r.Instrument, c.Name})
		}
		for _, x := range r.Rails {
			all = append(all, subject{r.Instrument, x.Name})
		}
	}
	slices.SortFunc(all, func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.of.Kind, b.of.Kind), cmp.Compare(a.of.Serial, b.of.Serial), cmp.Compare(a.name, b.name))
	})
	return slices.Compact(all)
}

// recordText formats a record in one line, without control characters.
func recordText(r *calib.Record) string {
	on := lists.Map(r.Channels, func(c calib.Channel) string { return c.Name })
	on = append(on, lists.Map(r.Rails, func(x calib.Rail) string { return x.Name })...)
	text := string(r.Done)
	if len(on) > 0 {
		text += " of " + strings.Join(on, ", ")
	}
	text += ", by " + r.By
	if r.Conditions.Reference != "" {
		text += ", against " + r.Conditions.Reference
	}
	if t := r.Conditions.TemperatureC; t != nil {
		text += fmt.Sprintf(", at %g °C", *t)
	}
	if w := r.Conditions.WithinK; w != nil {
		text += fmt.Sprintf(" ± %g K", *w)
	}
	if !r.ValidUntil.IsZero() {
		text += ", valid until " + cli.AtDay(r.ValidUntil)
	}
	if r.Remark != "" {
		text += ": " + r.Remark
	}
	return measure.Printable(text)
}

// showMonitorRecords prints the records that a running monitor follows, and its notes about
// records that it does not.
func showMonitorRecords(ctx context.Context, a *cli.App, address string) error {
	client, err := cli.DialMeter(ctx, address, monitorclient.Options{Version: cli.Version()})
	if err != nil {
		return err
	}
	b, err := client.GetBench(ctx)
	if err = errors.Join(err, client.Close()); err != nil {
		return err
	}
	if len(b.Setup.Channels) == 0 {
		return errors.New(b.Trouble)
	}
	h, err := calib.HistoryOf(&b.Setup)
	if err != nil {
		return err
	}
	a.Textf("Bench %s, %s, calibration %s\n", b.Name, out.InstrumentText(b.Instrument), b.CalibrationID)
	for _, n := range b.Notes {
		a.Textf("Note: %s\n", n)
	}
	return showHistory(a, h)
}

// showTaskRecords prints the records of every result of a task; in JSON only those of the
// result in use.
func showTaskRecords(ctx context.Context, a *cli.App, arg string) error {
	db, t, err := a.OpenTask(ctx, arg)
	if err != nil {
		return err
	}
	defer db.Close()
	if len(t.Results) == 0 {
		return showSetupRecords(a, t, "calibration "+t.CalibrationID)
	}
	for _, r := range t.Results {
		x, err := db.TaskResult(ctx, t.ID, r.Number)
		if err != nil {
			return err
		}
		if a.JSON && !r.InUse {
			continue
		}
		if err := showSetupRecords(a, &x, fmt.Sprintf("result %d%s, calibration %s", r.Number,
			map[bool]string{true: " (in use)"}[r.InUse], r.CalibrationID)); err != nil {
			return err
		}
	}
	return nil
}

// showSetupRecords prints the records in a task's setup under a title.
func showSetupRecords(a *cli.App, t *store.Task, title string) error {
	h, err := calib.HistoryOf(&t.Setup)
	if err != nil {
		return err
	}
	a.Textf("Task %d, %s\n", t.ID, title)
	return showHistory(a, h)
}

// ParseDrift reads the limits of a data sheet for channels of a unit, empty for a shunt: gain=0.1%/year,
// offset=2mA/year, gain=50ppm/K, offset=0.1mA/K, or none where nothing moves. A limit is that of a
// rectangular distribution (GUM, 4.3.7): u = limit/√3. Offsets in another unit are left out. It is nil for an
// empty list, and fails with ExitUsage.
func ParseDrift(list []string, unit measure.Unit) (*calib.Drift, error) {
	if len(list) == 0 {
		return nil, nil
	}
	var d calib.Drift
	entries := map[string]**float64{
		"gain/year": &d.GainPerYear, "offset/year": &d.OffsetPerYear, "gain/K": &d.GainPerK, "offset/K": &d.OffsetPerK,
	}
	if slices.Equal(list, []string{"none"}) {
		for _, e := range entries {
			*e = new(float64)
		}
		return &d, nil
	}
	for _, s := range list {
		of, limit, _ := strings.Cut(s, "=")
		limit, per, _ := strings.Cut(limit, "/")
		e, known := entries[of+"/"+per]
		if !known {
			return nil, cli.Usagef("--drift %q: want gain or offset = a data sheet's limit / year or K, such as "+
				"gain=0.1%%/year, offset=2mA/year or gain=50ppm/K; or none alone", s)
		}
		v, err := relative(limit)
		if of == "offset" {
			if m := quantity().FindStringSubmatch(limit); m != nil && m[3] != "" && m[3] != string(unit) {
				continue // of channels in another unit
			}
			v, err = ParseQuantity(limit, unit)
		}
		if err != nil || !(v >= 0) || math.IsInf(v, 0) {
			return nil, cli.Usagef("--drift %q: %q is no limit: want zero or more, a gain's as 0.1%% or 50ppm, an offset's "+
				"as 2mA", s, limit)
		}
		if *e != nil {
			return nil, cli.Usagef("--drift %q: %s/%s is stated twice", s, of, per)
		}
		v /= math.Sqrt(3)
		*e = &v
	}
	return &d, nil
}

// relative parses 0.1%, 50ppm or 0.001.
func relative(s string) (float64, error) {
	unit := 1.0
	if t, is := strings.CutSuffix(s, "%"); is {
		s, unit = t, 0.01
	} else if t, is := strings.CutSuffix(s, "ppm"); is {
		s, unit = t, 1e-6
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return v * unit, err
}

// drifts gives all channels and shunts of a record the drift of the flags.
func (f *calibrateFlags) drifts(rec *calib.Record) (err error) {
	for i := range rec.Channels {
		if c := &rec.Channels[i]; c.Scale != nil && err == nil {
			c.Drift, err = ParseDrift(f.drift, c.Unit)
		}
	}
	for i := 0; i < len(rec.Rails) && err == nil; i++ {
		rec.Rails[i].Drift, err = ParseDrift(f.drift, "")
	}
	return err
}
