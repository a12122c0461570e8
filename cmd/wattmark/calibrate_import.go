package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/measure/calib"
	"wattmark/monitor/calibration"
)

func (a *app) calibrateImportCmd() *cobra.Command {
	var f calibrateFlags
	var channel string
	var nominal bool
	c := &cobra.Command{
		Use: "import FILE", Short: "Take over a laboratory's certificate", Args: cobra.ExactArgs(1),
		Long: `Take over what a laboratory found: known values, what the channel read there, and
the standard uncertainty (k = 1) of the values, in the channel's unit. CSV with the
columns value (or true), reading, u, and perhaps channel and u_reading; or YAML with
points of the same names beside reference, by, remark, at and temperature_c.

The readings are those of the calibration in force; --nominal says that the
instrument's own scale was used, without the records.`,
		Example: `  wattmark calibrate import certificate.csv --bench bench.yaml --channel eps1.current --reference "DKD 4711" --by "lab 7"`,
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
			f.reference, f.remark = firstOf(f.reference, cert.Reference), firstOf(f.remark, cert.Remark)
			if cert.TemperatureC != nil && !f.hasCelsius {
				f.celsius, f.hasCelsius = *cert.TemperatureC, true
			}
			return a.withRig(cmd.Context(), &f, func(ctx context.Context, r *calRig) error {
				return a.importCertificate(ctx, &f, r, cert, channel, nominal)
			})
		},
	}
	f.flags(a, c, false)
	c.Flags().StringVar(&f.reference, "reference", "", "the certificate's number")
	c.Flags().StringVar(&channel, "channel", "", "channel, where the certificate names none")
	c.Flags().BoolVar(&nominal, "nominal", false, "the readings are those of the instrument's own scale")
	return c
}

func (a *app) importCertificate(ctx context.Context, f *calibrateFlags, r *calRig, cert calibration.Certificate, channel string, nominal bool) error {
	if err := r.look(ctx); err != nil {
		return err
	}
	rec, err := f.record(calib.Import, r)
	if err != nil {
		return err
	}
	if cert.At != "" {
		if rec.At, err = parseTime(cert.At); err != nil {
			return err
		}
		if f.valid != "" {
			d, _ := parseDays(f.valid) // it was read before
			rec.ValidUntil = rec.At.Add(d)
		}
	}
	for _, named := range cert.Channels() {
		name := firstOf(named, channel)
		if name == "" {
			return withCode(exitUsage, errors.New("the certificate names no channel: say which with --channel"))
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
	return a.writeRecord(ctx, f, r, rec)
}

func (a *app) calibrateShuntCmd() *cobra.Command {
	var f calibrateFlags
	var rail string
	var ohm, u float64
	c := &cobra.Command{
		Use: "shunt", Short: "Record a shunt's resistance", Args: cobra.NoArgs,
		Long: `Record what a shunt really has, as measured or certified. It takes the place of ohm
and u_rel of the rail in the bench file, for as long as these are not changed.`,
		Example: "  wattmark calibrate shunt --bench bench.yaml --rail pcie_12v --ohm 0.0050123 --u-rel 0.0005 --reference \"RS 4711\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withRig(cmd.Context(), &f, func(ctx context.Context, r *calRig) error { return a.shunt(ctx, &f, r, rail, ohm, u) })
		},
	}
	f.flags(a, c, false)
	fl := c.Flags()
	fl.StringVar(&f.reference, "reference", "", "what it was measured with, or the certificate's number")
	fl.StringVar(&rail, "rail", "", "rail of the bench file")
	fl.Float64Var(&ohm, "ohm", 0, "resistance in Ω")
	fl.Float64Var(&u, "u-rel", 0, "its relative standard uncertainty")
	for _, must := range []string{"rail", "ohm", "u-rel"} {
		_ = c.MarkFlagRequired(must)
	}
	return c
}

func (a *app) shunt(ctx context.Context, f *calibrateFlags, r *calRig, rail string, ohm, u float64) error {
	if err := r.look(ctx); err != nil {
		return err
	}
	i := slices.IndexFunc(r.bench.Nominal.Rails, func(x measure.Rail) bool { return x.Name == rail && x.Wiring == measure.WiringShunt })
	if i < 0 {
		return withCode(exitUsage, fmt.Errorf("no rail %q with a shunt on this bench", rail))
	}
	own := r.bench.Nominal.Rails[i]
	if off := ohm/float64(own.Shunt) - 1; off > 0.25 || off < -0.2 {
		return withCode(exitUsage, fmt.Errorf("%g Ω is %+.0f %% off the bench file's %g Ω: check the unit, or correct the bench file first", ohm, 100*off, float64(own.Shunt)))
	}
	rec, err := f.record(calib.Shunt, r)
	if err != nil {
		return err
	}
	rec.Rails = []calib.Rail{{Name: rail, Ohm: ohm, URel: u, NominalOhm: float64(own.Shunt), NominalURel: own.UShunt}}
	return a.writeRecord(ctx, f, r, rec)
}

func (a *app) calibrateNoteCmd() *cobra.Command {
	var f calibrateFlags
	var channels []string
	c := &cobra.Command{
		Use: "note", Short: "Record a remark: where the clamp sits, which cable is used", Args: cobra.NoArgs,
		Long: `Record something that bears on the calibration but is no number. The newest note of
each channel, and of the bench, travels with every capture and stays with its task.`,
		Example: "  wattmark calibrate note --bench bench.yaml --channel eps1.current --remark \"clamp turned, arrow towards the card\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.remark == "" {
				return withCode(exitUsage, errors.New("a note needs its words: --remark"))
			}
			return a.withRig(cmd.Context(), &f, func(ctx context.Context, r *calRig) error {
				if err := r.look(ctx); err != nil {
					return err
				}
				rec, err := f.record(calib.Note, r)
				if err != nil {
					return err
				}
				for _, name := range channels {
					i, err := r.index(name)
					if err != nil {
						return err
					}
					rec.Channels = append(rec.Channels, calib.Channel{Name: name, Unit: r.setup.Channels[i].Unit})
				}
				return a.writeRecord(ctx, &f, r, rec)
			})
		},
	}
	f.flags(a, c, false)
	c.Flags().StringSliceVar(&channels, "channel", nil, "channel that it is about (repeatable; default: the bench)")
	return c
}
