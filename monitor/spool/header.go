package spool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/instrument"
)

// headerFormat is the version of the spool's layout.
const headerFormat = 1

// Header is what is known of a capture before its first sample.
type Header struct {
	Format int `json:"format"`
	// Sum is the CRC-32C of the file with zeros in its place; empty outside of it, and in
	// files of versions that wrote none.
	Sum       string `json:"sum,omitempty"`
	CaptureID string `json:"capture_id"`
	Bench     string `json:"bench"`
	Holder    string `json:"holder"`
	// Owner is who took the capture, where they were asked who they are.
	Owner         string              `json:"owner,omitempty"`
	TaskName      string              `json:"task_name"`
	Created       time.Time           `json:"created"` // monitor's wall clock
	Instrument    instrument.Identity `json:"instrument"`
	Setup         measure.Setup       `json:"setup"`
	CalibrationID string              `json:"calibration_id"`
	Marker        marker.Spec         `json:"marker"`
	// GPU is the UUID of the GPU that the bench measures; empty where nobody said.
	GPU string `json:"gpu,omitempty"`
}

// State is a step of a capture's life as the log keeps it. Code and Trigger are
// the numbers of the capture's state machine, which this package does not know.
type State struct {
	Code    uint8     `json:"state"`
	Trigger uint8     `json:"trigger"`
	At      time.Time `json:"at"`
	// Reason says why a capture is incomplete.
	Reason string `json:"reason,omitempty"`
	// Started is the monitor's wall clock at device time zero, once known.
	Started time.Time `json:"started,omitzero"`
	// Final says that no record follows.
	Final bool `json:"final,omitempty"`
}

// writeHeader writes the header so that it is there whole or not at all, and
// survives a power cut.
func writeHeader(dir string, h Header) error {
	h.Format, h.Sum = headerFormat, noSum
	b, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return fmt.Errorf("spool header: %w", err)
	}
	b = withSum(b, noSum, sumOf(b))
	tmp := filepath.Join(dir, headerName+".new")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, headerName)); err != nil {
		return err
	}
	return syncDir(dir)
}

func readHeader(dir string) (Header, error) {
	b, err := readSmall(filepath.Join(dir, headerName))
	if err != nil {
		return Header{}, err
	}
	var h Header
	if err := json.Unmarshal(b, &h); err != nil {
		return Header{}, fmt.Errorf("%s: %w", filepath.Join(dir, headerName), err)
	}
	if h.Format != headerFormat {
		return Header{}, fmt.Errorf("%s: format %d, this version reads %d", dir, h.Format, headerFormat)
	}
	if sum := sumOf(withSum(b, h.Sum, noSum)); h.Sum != "" && h.Sum != sum {
		return Header{}, fmt.Errorf("%s: damaged: its checksum is %s, want %s", filepath.Join(dir, headerName), sum, h.Sum)
	}
	h.Sum = ""
	if h.CaptureID != filepath.Base(dir) {
		return Header{}, fmt.Errorf("%s: is the header of capture %q", dir, h.CaptureID)
	}
	if err := h.Setup.Validate(); err != nil {
		return Header{}, fmt.Errorf("%s: %w", dir, err)
	}
	return h, nil
}

// noSum stands in a header's text for its checksum while that is computed.
const noSum = "00000000"

func sumOf(text []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)) }

// withSum replaces the checksum in a header's text. In a value its quotes would be escaped.
func withSum(text []byte, was, is string) []byte {
	const field = `"sum": "%s"`
	return bytes.Replace(text, fmt.Appendf(nil, field, was), fmt.Appendf(nil, field, is), 1)
}

// syncDir makes names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
