// Package chrome writes timelines of tasks in the Trace Event Format (JSON), which
// chrome://tracing, Perfetto's UI and others read.
//
//	task ── process     ph M, process_name
//	track ── thread     ph M, thread_name; slices ph X, instants ph i
//	rail ── counter     ph C
//
// Times are µs since a base in the file's otherData, to the ns.
package chrome

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/wattmark/wattmark/store/exchange"
)

// Writer writes timelines as one JSON object. Errors of writing come with the next Add or Close.
type Writer struct {
	out  *bufio.Writer
	base int64
	some bool
	meta []json.RawMessage
	line []byte
}

// New begins a trace whose times count from base, in ns since 1970: microseconds
// since then would leave a reader's float64 no nanoseconds.
func New(w io.Writer, base int64) *Writer {
	out := bufio.NewWriterSize(w, 1<<16)
	fmt.Fprint(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")
	return &Writer{out: out, base: base}
}

// Close ends the object with the metadata of all tasks.
func (w *Writer) Close() error {
	other, err := json.Marshal(map[string]any{
		"clock": "CLOCK_REALTIME", "base_ns": strconv.FormatInt(w.base, 10), exchange.MetaKey: w.meta,
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w.out, "\n],\"otherData\":%s}\n", other)
	return w.out.Flush()
}

// Add adds a task as a process of its number.
func (w *Writer) Add(t *exchange.Timeline) error {
	m := &t.Meta
	text, err := m.JSON()
	if err != nil {
		return err
	}
	w.meta = append(w.meta, text)
	pid := m.Task.ID
	name := quote(fmt.Sprintf("task %d: %s", pid, m.Task.Name))
	w.event(`"ph":"M","name":"process_name","pid":%d,"args":{"name":%s}`, pid, name)
	for i, name := range t.Tracks {
		w.event(`"ph":"M","name":"thread_name","pid":%d,"tid":%d,"args":{"name":%s}`, pid, i+1, quote(name))
	}
	// Times are strings of digits, in µs from base with three decimal places.
	for s, err := range t.Slices {
		if err != nil {
			return err
		}
		// A slice that ends before it begins gets length 0.
		at, length := micros(s.Start-w.base), micros(max(0, s.End-s.Start))
		if err := w.event(`"ph":"X","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":%s`,
			quote(s.Name), pid, s.Track+1, at, length, arguments(s.Args)); err != nil {
			return err
		}
	}
	for _, i := range t.Instants {
		w.event(`"ph":"i","s":"t","name":%s,"pid":%d,"tid":%d,"ts":%s,"args":%s`,
			quote(i.Name), pid, i.Track+1, micros(i.At-w.base), arguments(i.Args))
	}
	for _, c := range t.Readings {
		head := counterHead(c.Name, c.Unit, pid)
		for i := range c.At {
			w.counter(head, c.At[i], c.Values[i])
		}
	}
	return w.power(t, pid)
}

// power writes the counters of the rails, one event a scan and counter.
func (w *Writer) power(t *exchange.Timeline, pid int64) error {
	heads := make([]string, len(t.Counters))
	for k, c := range t.Counters {
		heads[k] = counterHead(t.Power.Columns[c].Name, t.Power.Columns[c].Unit, pid)
	}
	// The last column of a table with host time is host_ns.
	host := len(t.Power.Columns) - 1
	for b, err := range t.Power.Batches {
		if err != nil {
			return err
		}
		for i := range b.Rows {
			for k, c := range t.Counters {
				if err := w.counter(heads[k], b.Columns[host].I64[i], b.Columns[c].F64[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// counterHead is a counter event up to its time; %s is for its unit and value.
func counterHead(name, unit string, pid int64) string {
	return fmt.Sprintf(`{"ph":"C","name":%s,"pid":%d,"args":{%s:`, quote(name), pid, quote(unit))
}

// counter writes one value of a counter. It runs once a sample and counter, so it formats by hand.
func (w *Writer) counter(head string, at int64, v float64) error {
	w.line = append(w.separate(), head...)
	w.line = strconv.AppendFloat(w.line, v, 'g', -1, 64)
	w.line = append(w.line, `},"ts":`...)
	w.line = appendMicros(w.line, at-w.base)
	_, err := w.out.Write(append(w.line, '}'))
	return err
}

// separate begins a line.
func (w *Writer) separate() []byte {
	if !w.some {
		w.some = true
		return append(w.line[:0], '\n')
	}
	return append(w.line[:0], ',', '\n')
}

// event writes an event of the fields that format makes.
func (w *Writer) event(format string, a ...any) error {
	w.line = append(w.separate(), '{')
	w.line = fmt.Appendf(w.line, format, a...)
	_, err := w.out.Write(append(w.line, '}'))
	return err
}

// micros returns ns as microseconds with three decimal places: exactly.
func micros(ns int64) string { return string(appendMicros(nil, ns)) }

// appendMicros appends ns as microseconds: a float64 of µs since 1970 has no ns left.
func appendMicros(b []byte, ns int64) []byte {
	if ns < 0 {
		b, ns = append(b, '-'), -ns
	}
	b = strconv.AppendInt(b, ns/1000, 10)
	r := ns % 1000
	return append(b, '.', byte('0'+r/100), byte('0'+r/10%10), byte('0'+r%10))
}

// quote returns s as a JSON string.
func quote(s string) string {
	b, _ := json.Marshal(s) // a string always can be
	return string(b)
}

// arguments returns details as a JSON object.
func arguments(args []exchange.Arg) string {
	m := map[string]string{}
	for _, a := range args {
		m[a.Name] = a.Value
	}
	b, _ := json.Marshal(m) // of strings: always can be
	return string(b)
}
