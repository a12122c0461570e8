package proftrace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
)

// Marks are what is added to a trace.
type Marks struct {
	Events map[int]attribute.Mark // by the event's number
	// External are the energies of ranges by their id: the copies on the GPU's side have it.
	External map[int64]attribute.Mark
	Counters []string                         // names of the rails' powers
	Powers   iter.Seq2[int64, []measure.Watt] // by the host's clock, in ns since 1970
	Fault    func() error                     // of Powers, once they have ended
	About    any                              // JSON of the outer object's "wattmark"
	Shift    int64                            // ns by which the host's clock is ahead of the trace's
}

// counterPID is the process that the counters stand below; no process has the number.
const counterPID = -7552

// Write copies a trace, with energies in the arguments of the events that have one and counters behind the last
// one. The rest stays byte by byte, but for spaces between the events.
func Write(w io.Writer, r io.Reader, m Marks) error {
	out := bufio.NewWriterSize(w, 1<<16)
	c, n := &converter{out: out}, 0
	var rest []byte // the outer object's other values
	var base int64
	out.WriteString(`{"traceEvents":[`)
	err := walk(r, func(key string, raw json.RawMessage) error {
		if key == "baseTimeNanoseconds" {
			_ = json.Unmarshal(raw, &base)
		}
		name, _ := json.Marshal(key)
		if key != "wattmark" {
			rest = append(append(append(append(rest, ',', '\n'), name...), ':'), raw...)
		}
		return nil
	}, func(raw json.RawMessage) error {
		mark, ok := m.Events[n]
		n++
		if !ok && len(m.External) > 0 && bytes.Contains(raw, []byte(`"gpu_user_annotation"`)) {
			var e event
			if json.Unmarshal(raw, &e) == nil && e.Cat == "gpu_user_annotation" {
				id, _ := e.Args.External.Int64()
				mark, ok = m.External[id]
			}
		}
		c.next()
		if ok {
			raw = marked(raw, mark)
		}
		_, err := out.Write(raw)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTrace, err)
	}
	if err := c.counters(&m, base); err != nil {
		return err
	}
	about, err := json.Marshal(m.About)
	if err != nil {
		return err
	}
	out.WriteString("\n]")
	out.Write(rest)
	fmt.Fprintf(out, ",\n\"wattmark\":%s}\n", about)
	return out.Flush()
}

// counters writes the rails' powers.
func (c *converter) counters(m *Marks, base int64) error {
	c.event(`{"ph":"M","name":"process_name","pid":%d,"tid":0,"ts":0,"args":{"name":"wattmark"}}`, counterPID)
	heads := make([][]byte, len(m.Counters))
	for i, name := range m.Counters {
		heads[i] = fmt.Appendf(nil, `{"ph":"C","name":%s,"pid":%d,"tid":0,"ts":`, quoted(name), counterPID)
	}
	for at, watts := range m.Powers {
		at -= base + m.Shift
		for i, w := range watts {
			c.next()
			c.out.Write(heads[i])
			if _, err := fmt.Fprintf(c.out, `%s,"args":{"W":%.6g}}`, micros(at), float64(w)); err != nil {
				return err
			}
		}
	}
	return m.Fault()
}

// micros is a time in ns as µs with three decimal places.
func micros(ns int64) string {
	sign := ""
	if ns < 0 {
		sign, ns = "-", -ns
	}
	return fmt.Sprintf("%s%d.%03d", sign, ns/1000, ns%1000)
}

// marked adds a mark to an event's arguments.
func marked(raw json.RawMessage, m attribute.Mark) json.RawMessage {
	text := fmt.Appendf(nil, `"energy_j":%.6g,"energy_u_j":%.3g,"gpu_busy_s":%.9g`, float64(m.Energy), float64(m.U),
		float64(m.Busy))
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token() // {: it was read as an event before
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return raw
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return raw
		}
		if key == "args" && len(value) > 1 && value[0] == '{' {
			end := int(d.InputOffset()) - 1
			if len(bytes.TrimSpace(value[1:len(value)-1])) > 0 {
				text = append([]byte(","), text...)
			}
			return insert(raw, end, text)
		}
	}
	return insert(raw, bytes.LastIndexByte(raw, '}'), append(append([]byte(`,"args":{`), text...), '}'))
}

// insert puts text into raw before a place.
func insert(raw []byte, at int, text []byte) []byte {
	out := make([]byte, 0, len(raw)+len(text))
	return append(append(append(out, raw[:at]...), text...), raw[at:]...)
}
