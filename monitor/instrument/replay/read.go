package replay

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"wattmark/measure"
)

// row is one scan of scans.csv.
type row struct {
	scan   uint64
	tick   int64
	counts []measure.Count
}

// parseRow reads one line: scan,tick,counts…, all whole numbers.
func parseRow(line []byte, r *row) error {
	field := func(bits int) (int64, error) {
		f, rest, found := bytes.Cut(line, []byte{','})
		line = rest
		if !found {
			line = nil
		}
		return strconv.ParseInt(string(bytes.TrimSpace(f)), 10, bits)
	}
	scan, err := field(64)
	if err != nil || scan < 0 {
		return fmt.Errorf("%w: the scan's number is missing or no number", ErrFormat)
	}
	r.scan = uint64(scan)
	if r.tick, err = field(64); err != nil {
		return fmt.Errorf("%w: scan %d: the tick is missing or no number", ErrFormat, scan)
	}
	for c := range r.counts {
		v, err := field(32)
		if err != nil {
			return fmt.Errorf("%w: scan %d: channel %d is missing or no 32-bit number", ErrFormat, scan, c)
		}
		r.counts[c] = measure.Count(v)
	}
	if line != nil {
		return fmt.Errorf("%w: scan %d: more columns than channels", ErrFormat, scan)
	}
	return nil
}

// rows reads scans.csv line by line.
type rows struct {
	f    *os.File
	in   *bufio.Reader
	line int
}

func openRows(dir string) (*rows, error) {
	f, err := os.Open(filepath.Join(dir, scansFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	r := &rows{f: f, in: bufio.NewReaderSize(f, 1<<16)}
	if _, err := r.in.ReadSlice('\n'); err != nil { // the names
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s has no header", ErrFormat, scansFile)
	}
	r.line = 1
	return r, nil
}

// next reads a scan; io.EOF at the end. A last line without an end was cut off
// while it was written and does not count.
func (r *rows) next(out *row) error {
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	r.line++
	if err == nil {
		err = parseRow(bytes.TrimSpace(line), out)
	}
	if err != nil {
		return fmt.Errorf("%s, line %d: %w", scansFile, r.line, err)
	}
	return nil
}

// readEvents reads events.csv, which may be absent.
func readEvents(dir string) ([]measure.Event, error) {
	f, err := os.Open(filepath.Join(dir, eventsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	defer f.Close()
	table := csv.NewReader(f)
	table.FieldsPerRecord = 6
	lines, err := table.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFormat, eventsFile, err)
	}
	var out []measure.Event
	for i, l := range lines[min(1, len(lines)):] {
		kind, e1 := strconv.ParseUint(l[0], 10, 8)
		first, e2 := strconv.ParseUint(l[1], 10, 64)
		scans, e3 := strconv.ParseUint(l[2], 10, 64)
		exact, e4 := strconv.ParseBool(l[3])
		channel, e5 := strconv.Atoi(l[4])
		if err := errors.Join(e1, e2, e3, e4, e5); err != nil {
			return nil, fmt.Errorf("%w: %s, line %d: %w", ErrFormat, eventsFile, i+2, err)
		}
		out = append(out, measure.Event{Kind: measure.EventKind(kind), FirstScan: first, Scans: scans, Exact: exact, Channel: channel, Detail: l[5]})
	}
	return out, nil
}
