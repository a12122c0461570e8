package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"time"

	"wattmark/monitor/instrument/analog"
	"wattmark/monitor/instrument/labjack"
	"wattmark/monitor/instrument/nidaqmx"
)

// driveSubject is a driver at its instrument's full rate.
type driveSubject struct {
	name, emulated string
	inputs         int
	samples        float64 // a second, in all
	options        func(any)
}

// fullT7 is all that a T7 can stream, over four inputs.
func fullT7(o any) {
	l := o.(*labjack.Options)
	l.Inputs, l.ScanRate = nil, 25_000
	for i := range 4 {
		l.Inputs = append(l.Inputs, analog.Input{AIN: i})
	}
}

// driveSubjects are the drivers whose instruments are the fastest. A USB-6259
// converts 1.25 million times a second with one input, 1 million with several.
func driveSubjects() []driveSubject {
	ni := func(n int, samples float64) func(any) {
		return func(o any) { niInputs(o.(*nidaqmx.Options), n, samples) }
	}
	return []driveSubject{
		{"NI ReadRaw over gRPC, 1.25 MS/s", "nidaqmx", 1, 1.25e6, ni(1, 1.25e6)},
		{"NI ReadRaw over gRPC, 1 MS/s", "nidaqmx", 6, 1e6, ni(6, 1e6)},
		{"LabJack T7 over TCP, 100 kS/s", "labjack", 4, 100e3, fullT7},
	}
}

// measure runs the driver beside the instrument, a process of its own. What this
// process takes is counted from the start of the stream to its end.
func (s *driveSubject) measure(ctx context.Context, length time.Duration, stderr io.Writer) (driveReport, error) {
	r := driveReport{Name: s.name, Inputs: s.inputs, Wanted: s.samples}
	address, stop, err := startEmulator(ctx, s.emulated, stderr)
	if err != nil {
		return r, err
	}
	defer stop()
	d, _, err := newDriver(driverOf(s.emulated), address, s.options)
	if err == nil {
		err = d.Open(ctx)
	}
	if err != nil {
		return r, err
	}
	streaming, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	n := &counting{}
	cpu, begin := processUsage().cpu(), time.Now()
	err = d.Stream(streaming, n)
	cpu, r.DurationS = processUsage().cpu()-cpu, time.Since(begin).Seconds()
	if err = errors.Join(err, d.Close()); err != nil {
		return r, err
	}
	if n.scans == 0 {
		return r, fmt.Errorf("no samples in %v", length)
	}
	r.Samples, r.Lost = n.scans*uint64(n.channels), n.lost
	r.Rate, r.Cores = float64(r.Samples)/r.DurationS, cpu/r.DurationS
	return r, nil
}

// startEmulator starts this program again as an instrument. stop ends it.
func startEmulator(ctx context.Context, kind string, stderr io.Writer) (address string, stop func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("start the emulator: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	c := exec.CommandContext(ctx, exe, "emulate", kind, "--listen", "127.0.0.1:0", "--period", "1h")
	c.Stderr = stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		cancel()
		return "", nil, fmt.Errorf("start the emulator: %w", err)
	}
	stop = func() { cancel(); _ = c.Wait() } // which says that it was killed
	said := bufio.NewScanner(out)
	if said.Scan() {
		address = regexp.MustCompile(`tcp:[0-9.:]+[0-9]`).FindString(said.Text())
	}
	if address == "" {
		stop()
		return "", nil, fmt.Errorf("the emulator says %q, not where it listens", said.Text())
	}
	return address, stop, nil
}
