package main

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"time"

	"wattmark/analysis/metercsv"
	"wattmark/analysis/recording"
	"wattmark/analysis/validate"
	"wattmark/measure"
)

// readFiles reads a meter's CSV, a log of nvidia-smi and a file of kernels.
func (f *recordedFlags) readFiles() (*foreignRun, error) {
	kernels, from, to, err := readKernels(f.events)
	if err != nil {
		return nil, err
	}
	header, err := meterHeader(f.meter)
	if err != nil {
		return nil, err
	}
	m := &foreignRun{placed: true, gaps: func() []validate.Span { return nil }, notes: func() []string { return nil }}
	m.Name, m.Meter = filepath.Base(f.meter), "CSV"
	m.Missing, m.Systematic = header.Missing, f.uMeter
	m.Cautions = append(m.Cautions, fmt.Sprintf("the meter's power was taken to be right within %.3g %% (k = 1, --u-meter)", 100*f.uMeter))
	switch {
	case !header.Origin.IsZero() && f.start != "":
		return nil, withCode(exitUsage, fmt.Errorf("%s has absolute times: leave --meter-start out", f.meter))
	case !header.Origin.IsZero():
		m.Origin = header.Origin
	case f.start != "":
		if m.Origin, err = time.Parse(time.RFC3339Nano, f.start); err != nil {
			return nil, withCode(exitUsage, fmt.Errorf("--meter-start %q: want a time such as 2026-01-02T15:04:05.123Z", f.start))
		}
	case f.offsetGiven && !f.recover:
		return nil, withCode(exitUsage, fmt.Errorf("%s has relative times: --clock-offset says nothing without --meter-start", f.meter))
	default: // only the data tell where its times begin
		m.Origin, m.placed = from, false
	}
	m.traceCSV(f.meter)
	m.setWork(kernels, from, to)
	log, err := readSmi(f.smi)
	if err != nil {
		return nil, err
	}
	if err := m.setSensor(log, f.smiTime); err != nil {
		return nil, fmt.Errorf("%s: %w", f.smi, err)
	}
	return m, nil
}

func readKernels(path string) (list []recording.Kernel, from, to time.Time, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, from, to, err
	}
	defer file.Close()
	if list, from, to, err = recording.ParseKernels(file); err != nil {
		return nil, from, to, fmt.Errorf("%s: %w", path, err)
	}
	return list, from, to, nil
}

// meterHeader reads what stands before the rows, and the first row's time.
func meterHeader(path string) (*metercsv.Header, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	h, _, err := metercsv.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// traceCSV makes the trace of a CSV file. Times of a file with relative ones count
// from the subject's origin.
func (m *foreignRun) traceCSV(path string) {
	m.trace = func() iter.Seq2[validate.Sample, error] {
		return func(yield func(validate.Sample, error) bool) {
			file, err := os.Open(path)
			if err != nil {
				yield(validate.Sample{}, err)
				return
			}
			defer file.Close()
			h, samples, err := metercsv.Read(file)
			if err != nil {
				yield(validate.Sample{}, fmt.Errorf("%s: %w", path, err))
				return
			}
			var shift measure.Seconds
			if !h.Origin.IsZero() {
				shift = measure.SecondsOf(h.Origin.Sub(m.Origin))
			}
			for s, err := range samples {
				if err != nil {
					err = fmt.Errorf("%s: %w", path, err)
				}
				s.At += shift
				if !yield(s, err) {
					return
				}
			}
		}
	}
}
