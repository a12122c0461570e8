package replay

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// Writer makes a recording. It is an instrument.Sink.
type Writer struct {
	tb     measure.Timebase
	n      int
	scans  *os.File
	out    *bufio.Writer
	events *os.File
	table  *csv.Writer
	line   []byte
}

// Create begins a recording in a folder, which must not hold one yet.
func Create(dir string, id instrument.Identity, in instrument.Inputs) (*Writer, error) {
	fail := func(err error) (*Writer, error) { return nil, fmt.Errorf("record to %s: %w", dir, err) }
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(err)
	}
	b, err := json.MarshalIndent(metaOf(id, in), "", "  ")
	if err != nil {
		return fail(err)
	}
	w := &Writer{tb: in.Timebase, n: len(in.Channels)}
	if w.scans, err = create(dir, scansFile); err != nil {
		return fail(err)
	}
	if w.events, err = create(dir, eventsFile); err != nil {
		_ = w.scans.Close()
		return fail(err)
	}
	meta, err := create(dir, metaFile)
	if err == nil {
		_, err = meta.Write(append(b, '\n'))
		err = errors.Join(err, meta.Close())
	}
	if err != nil {
		return fail(errors.Join(err, w.scans.Close(), w.events.Close()))
	}
	w.out, w.table = bufio.NewWriterSize(w.scans, 1<<16), csv.NewWriter(w.events)
	_ = w.table.Write([]string{"kind", "first_scan", "scans", "exact", "channel", "detail"})
	header := csv.NewWriter(w.out)
	names := []string{"scan", "tick"}
	for _, c := range in.Channels {
		names = append(names, c.Name)
	}
	_ = header.Write(names)
	header.Flush()
	return w, header.Error()
}

func create(dir, name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

// Block writes scans.
func (w *Writer) Block(b *measure.Block) error {
	if err := b.Validate(w.tb, w.n); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	for i := range b.Scans() {
		w.line = strconv.AppendUint(w.line[:0], b.FirstScan+uint64(i), 10)
		w.line = append(w.line, ',')
		w.line = strconv.AppendInt(w.line, int64(b.TickAt(w.tb, i)), 10)
		for c := range b.Counts {
			w.line = append(w.line, ',')
			w.line = strconv.AppendInt(w.line, int64(b.Counts[c][i]), 10)
		}
		w.line = append(w.line, '\n')
		if _, err := w.out.Write(w.line); err != nil {
			return fmt.Errorf("record: %w", err)
		}
	}
	return nil
}

// Event writes an event.
func (w *Writer) Event(e measure.Event) error {
	err := w.table.Write([]string{
		strconv.Itoa(int(e.Kind)), strconv.FormatUint(e.FirstScan, 10), strconv.FormatUint(e.Scans, 10),
		strconv.FormatBool(e.Exact), strconv.Itoa(e.Channel), e.Detail,
	})
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// Close ends the recording and makes it durable.
func (w *Writer) Close() error {
	var errs []error
	if w.out != nil {
		w.table.Flush()
		errs = append(errs, w.out.Flush(), w.table.Error(), w.scans.Sync(), w.events.Sync())
	}
	errs = append(errs, w.scans.Close(), w.events.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}
