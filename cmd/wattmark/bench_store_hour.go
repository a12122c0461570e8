package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"wattmark/measure"
	"wattmark/measure/pyramid"
	"wattmark/store"
)

// longReport is a long capture: stored, drawn and exported.
type longReport struct {
	LengthS      float64         `json:"length_s"` // of the capture, at its own rate
	RateHz       float64         `json:"sample_rate_hz"`
	Scans        uint64          `json:"scans"`
	RawBytes     float64         `json:"raw_bytes"` // 12 a scan
	StoredS      float64         `json:"stored_s"`  // coded and durable, at full speed
	BytesPerScan float64         `json:"database_bytes_per_scan"`
	PyramidShare float64         `json:"pyramid_of_raw"`
	Draws        []drawReport    `json:"draws"`
	Export       exportingReport `json:"export"`
}

// drawReport is one span, drawn in so many columns.
type drawReport struct {
	SpanS    float64 `json:"span_s"`
	Columns  int     `json:"columns"`
	BinScans uint64  `json:"bin_scans"`
	ColdS    float64 `json:"cold_s"` // opened anew, with nothing of the file in memory
	WarmP50S float64 `json:"warm_p50_s"`
	WarmP99S float64 `json:"warm_p99_s"`
}

// exportingReport is an export to Parquet, in a process of its own.
type exportingReport struct {
	Bytes      int64   `json:"bytes"`
	WallS      float64 `json:"wall_s"`
	CPUS       float64 `json:"cpu_s"`
	RawPerCPUS float64 `json:"raw_bytes_per_cpu_s"`
	PeakBytes  int64   `json:"peak_rss_bytes"`
}

const (
	longRateHz  = 100e3
	drawColumns = 2000
	drawCalls   = 100
)

func (a *app) benchLong(ctx context.Context, dir string, length time.Duration) (*longReport, error) {
	r := &longReport{LengthS: length.Seconds(), RateHz: longRateHz, Scans: uint64(length.Seconds() * longRateHz)}
	r.RawBytes = 12 * float64(r.Scans)
	path := filepath.Join(dir, "long.db")
	db, err := store.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }() // the one of an error; it was only read
	m := madeCapture{g: newGenerator(longRateHz, false), rate: longRateHz, scans: r.Scans}
	id, took, err := m.store(ctx, db, "long")
	if err != nil {
		return nil, err
	}
	size, err := sizeOf(ctx, db)
	if err != nil {
		return nil, err
	}
	r.StoredS, r.PyramidShare = took.Seconds(), size.pyramid/r.RawBytes
	r.BytesPerScan = (size.all - size.pyramid) / float64(r.Scans)
	for _, span := range zooms(r.LengthS) {
		if db, err = r.draw(ctx, db, path, id, measure.Seconds(span)); err != nil {
			return nil, err
		}
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	r.Export, err = exportBeside(ctx, path, filepath.Join(dir, "long.parquet"), id, r.RawBytes)
	return r, err
}

// zooms are the spans that a capture is drawn at, the longest first: tenths of each other,
// and those that take longest, just before the bins of a level are fine enough.
func zooms(length float64) (out []float64) {
	for span := length; span >= 0.01; span /= 10 {
		out = append(out, span)
	}
	for level := range pyramid.Levels {
		if span := drawColumns * float64(pyramid.BinScans(level)-1) / longRateHz; span < length {
			out = append(out, span)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

// draw draws the middle of the capture, first with a database that was opened anew, as a
// host opens it, and a file of which nothing is in the system's memory.
func (r *longReport) draw(ctx context.Context, db *store.DB, path string, id store.TaskID, span measure.Seconds) (*store.DB, error) {
	if err := db.Close(); err != nil {
		return db, err
	}
	db, err := store.Open(ctx, path)
	if err != nil {
		return db, err
	}
	if err := db.OpenAll(ctx); err != nil {
		return db, err
	}
	if err := forget(path); err != nil {
		return db, err
	}
	from := (measure.Seconds(r.LengthS) - span) / 2
	call := func() (int, error) {
		e, err := db.Envelope(ctx, id, from, from+span, drawColumns)
		if err != nil {
			return 0, err
		}
		return int(e.BinScans), nil
	}
	begin := time.Now()
	bin, err := call()
	if err != nil {
		return db, err
	}
	d := drawReport{SpanS: float64(span), Columns: drawColumns, BinScans: uint64(bin), ColdS: time.Since(begin).Seconds()}
	p, err := timePages(ctx, drawCalls, call)
	d.WarmP50S, d.WarmP99S = p.P50S, p.P99S
	r.Draws = append(r.Draws, d)
	return db, err
}

// exportBeside exports the counts with the program itself.
func exportBeside(ctx context.Context, db, to string, id store.TaskID, raw float64) (r exportingReport, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	defer os.Remove(to)
	cmd := exec.CommandContext(ctx, self, "export", strconv.FormatInt(int64(id), 10), "--raw", "--all", "-o", to, "--db", db, "--json")
	cmd.Stderr = os.Stderr
	begin := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("export: %w", err)
	}
	r.WallS = time.Since(begin).Seconds()
	var said exportReport
	if err := json.Unmarshal(out, &said); err != nil {
		return r, fmt.Errorf("export: %w", err)
	}
	r.Bytes = said.Bytes
	r.CPUS = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	r.RawPerCPUS, r.PeakBytes = raw/r.CPUS, peakBytes(cmd.ProcessState)
	return r, nil
}
