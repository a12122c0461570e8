package instructions

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// mostLine bounds a line of a file of runs: a run has less than 2 kB.
const mostLine = 1 << 20

// ReadRuns reads runs, a JSON object a line; empty lines are passed over. Errors
// name the line, as NAME:LINE.
func ReadRuns(r io.Reader, name string) ([]Run, error) {
	var out []Run
	s := bufio.NewScanner(r)
	s.Buffer(nil, mostLine)
	line := 1
	for ; s.Scan(); line++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		run, err := parseRun(s.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, err)
		}
		out = append(out, run)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, line, err)
	}
	return out, nil
}

func parseRun(text []byte) (r Run, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("no run of wattmark instructions: %w", err)
	}
	if d.More() {
		return r, errors.New("more than one run in a line")
	}
	return r, r.valid()
}

// valid refuses what no measurement can have left.
func (r *Run) valid() error {
	switch {
	case r.Instruction == "":
		return errors.New("a run without an instruction")
	case r.Campaign.IsZero():
		return fmt.Errorf("a run of %s without its campaign", r.Instruction)
	case r.Layout != OneThread && r.Layout != WholeGPU:
		return fmt.Errorf("a run of %s with the layout %q: want %s or %s", r.Instruction, r.Layout, OneThread, WholeGPU)
	case r.Time < 0 || r.Steps < 0 || r.Pass < 0:
		return fmt.Errorf("a run of %s with a negative time, number of steps or pass", r.Instruction)
	}
	for m := range r.Power {
		if m != Meter && !slices.Contains(Methods(), m) {
			return fmt.Errorf("a run of %s with a power by %q: want one of %v, %s", r.Instruction, m, Methods(), Meter)
		}
	}
	return nil
}
