package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// instrumentsReport is what bench instruments prints.
type instrumentsReport struct {
	Machine  machineReport  `json:"machine"`
	Decoders []decodeReport `json:"decoders"`
	Drivers  []driveReport  `json:"drivers"`
	Goals    []goal         `json:"goals"`
}

// decodeReport is how fast a driver's decoder is on bytes of its instrument. A
// sample is one channel's value.
type decodeReport struct {
	Driver   string `json:"driver"`
	Emulated string `json:"emulated"` // that sent the bytes
	Bytes    int    `json:"bytes"`    // of the recording
	Scans    int    `json:"scans"`    // in it
	Channels int    `json:"channels"`
	// SamplesPerS are those of a second of processor time.
	SamplesPerS float64 `json:"samples_per_cpu_s"`
	Passes      int     `json:"passes"` // over the recording
	// AllocsPerSample is of whole allocations a pass.
	AllocsPerSample float64 `json:"allocations_per_sample"`
	// MeterPerS is what the instrument itself gives with these options; 0 for
	// scopes, which do not stream.
	MeterPerS float64 `json:"meter_samples_per_s,omitempty"`
}

// driveReport is what a whole driver takes beside an instrument in a process of
// its own.
type driveReport struct {
	Name      string  `json:"name"`
	Inputs    int     `json:"inputs"`
	Wanted    float64 `json:"wanted_samples_per_s"`
	Samples   uint64  `json:"samples"`
	DurationS float64 `json:"duration_s"`
	Rate      float64 `json:"samples_per_s"`
	Lost      uint64  `json:"scans_lost"` // as the driver told
	Cores     float64 `json:"driver_cores"`
}

type instrumentsFlags struct {
	benchFlagsShared
	each, record, drive float64
}

func (a *app) benchInstrumentsCmd() *cobra.Command {
	var f instrumentsFlags
	c := &cobra.Command{
		Use: "instruments", Short: "Every driver's decoder, and whole drivers at full rate", Args: cobra.NoArgs,
		Long: `Record a moment of every instrument that can be emulated, through its driver over
TCP, and decode those bytes again and again in this process: samples a second of
processor time, and allocations a sample. Then run the NI and LabJack drivers at
their instruments' full rate beside an emulator in a process of its own, and
measure this process. A sample is one channel's value.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.benchInstruments(cmd.Context(), f) },
	}
	fl := c.Flags()
	fl.Float64Var(&f.each, "seconds", 0.5, "how long each decoder works")
	fl.Float64Var(&f.record, "record-seconds", 0.5, "length of each recording")
	fl.Float64Var(&f.drive, "drive-seconds", 5, "how long each whole driver runs; 0 leaves them out")
	fl.StringVar(&f.profile, "profile", "", "write a CPU profile of this process to this path")
	return a.jsonFlag(c)
}

func (a *app) benchInstruments(ctx context.Context, f instrumentsFlags) error {
	if f.each <= 0 || f.record <= 0 {
		return withCode(exitUsage, errors.New("--seconds and --record-seconds: want values above 0"))
	}
	if f.profile != "" {
		stop, err := startProfile(f.profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	r := &instrumentsReport{Machine: describeMachine("")}
	r.Machine.FileSystem = "" // nothing is kept
	recordings, err := recordAll(ctx, ofSeconds(f.record))
	if err != nil {
		return err
	}
	bar := newBenchBar(a.err, "decoders", time.Duration(len(benchSubjects))*ofSeconds(f.each))
	defer bar.clear()
	for i, s := range benchSubjects {
		bar.update(time.Duration(i) * ofSeconds(f.each))
		d, err := s.measure(ctx, recordings[i], ofSeconds(f.each))
		if err != nil {
			return fmt.Errorf("decoder of %s: %w", s.emulated, err)
		}
		r.Decoders = append(r.Decoders, d)
	}
	bar.clear()
	if f.drive > 0 {
		for _, s := range driveSubjects() {
			d, err := s.measure(ctx, ofSeconds(f.drive), a.err)
			if err != nil {
				return fmt.Errorf("driver of %s: %w", s.name, err)
			}
			r.Drivers = append(r.Drivers, d)
		}
	}
	r.judge()
	if a.json {
		return a.printJSON(r)
	}
	r.render(a.out)
	return nil
}
