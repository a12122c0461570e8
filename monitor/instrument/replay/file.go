package replay

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// MetaFile and ScansFile are files of a recording's folder.
const (
	MetaFile   = "recording.json"
	ScansFile  = "scans.csv"
	eventsFile = "events.csv"

	formatName    = "wattmark-recording"
	formatVersion = 1
)

// ErrFormat: the folder holds no recording that can be read.
var ErrFormat = errors.New("not a recording")

// meta is recording.json. Units live in the names.
type meta struct {
	Format   string        `json:"format"`
	Version  int           `json:"version"`
	Identity identityJSON  `json:"identity"`
	Timebase timebaseJSON  `json:"timebase"`
	Response responseJSON  `json:"response"`
	Channels []channelJSON `json:"channels"`
}

// identityJSON is the part of recording.json that names the instrument.
type identityJSON struct {
	Kind     string `json:"kind"`
	Model    string `json:"model"`
	Serial   string `json:"serial"`
	Firmware string `json:"firmware"`
	Address  string `json:"address"`
}

// timebaseJSON is a measure.Timebase in a recording.
type timebaseJSON struct {
	TickHz       measure.Hertz `json:"tick_hz"`
	UTickHz      float64       `json:"u_tick_rel"`
	TicksPerScan float64       `json:"ticks_per_scan"`
	Stamped      bool          `json:"stamped"`
}

// responseJSON is a measure.Response in a recording.
type responseJSON struct {
	Tau     measure.Seconds `json:"tau_s"`
	Window  measure.Seconds `json:"window_s"`
	Update  measure.Seconds `json:"update_s"`
	Delay   measure.Seconds `json:"-"`
	Centred bool            `json:"-"`
}

// channelJSON is a measure.Channel in a recording; gain, offset, u_offset and noise are in unit.
type channelJSON struct {
	Name     string          `json:"name"`
	Unit     measure.Unit    `json:"unit"`
	Gain     float64         `json:"gain"`
	Offset   float64         `json:"offset"`
	UGain    float64         `json:"u_gain_rel"`
	UOffset  float64         `json:"u_offset"`
	Noise    float64         `json:"noise"`
	MinCount measure.Count   `json:"min_count"`
	MaxCount measure.Count   `json:"max_count"`
	Skew     measure.Seconds `json:"skew_s"`
	Drift    measure.Drift   `json:"-"`
}

// inputs are those that the recording's text describes, checked.
func (m meta) inputs() instrument.Inputs {
	in := instrument.Inputs{Timebase: measure.Timebase(m.Timebase), Response: measure.Response(m.Response)}
	in.Channels = lists.Map(m.Channels, func(c channelJSON) measure.Channel { return measure.Channel(c) })
	return in
}

// validate refuses a recording that cannot be played: a null, which a quantity reads as NaN, leaves no time known.
func (m meta) validate() error {
	type quantity struct {
		field string
		value float64
	}
	all := []quantity{
		{"timebase.tick_hz", float64(m.Timebase.TickHz)},
		{"response.tau_s", float64(m.Response.Tau)},
		{"response.window_s", float64(m.Response.Window)},
		{"response.update_s", float64(m.Response.Update)},
	}
	for i, c := range m.Channels {
		all = append(all, quantity{fmt.Sprintf("channels[%d].skew_s", i), float64(c.Skew)})
	}
	for _, q := range all {
		if !measure.Known(q.value) {
			return fmt.Errorf("%s: want a finite number, not null", q.field)
		}
	}
	in := m.inputs()
	err := in.Timebase.Validate()
	if err == nil && len(in.Channels) == 0 {
		err = errors.New("no channels")
	}
	for i := 0; i < len(in.Channels) && err == nil; i++ {
		err = in.Channels[i].Validate()
	}
	return err
}

// readMeta reads recording.json. Errors wrap ErrFormat and name the file.
func readMeta(dir string) (meta, error) {
	var m meta
	b, err := os.ReadFile(filepath.Join(dir, MetaFile))
	if err != nil {
		return m, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	err = json.Unmarshal(b, &m)
	if at := (*json.SyntaxError)(nil); errors.As(err, &at) { // such as NaN, which other programs write
		err = fmt.Errorf("%w, behind %q", err, b[max(0, at.Offset-40):at.Offset])
	}
	if err == nil && (m.Format != formatName || m.Version != formatVersion) {
		return m, fmt.Errorf("%w: %s says format %q, version %d; this program reads %q, version %d", ErrFormat,
			MetaFile, m.Format, m.Version, formatName, formatVersion)
	}
	if err == nil {
		err = m.validate()
	}
	if err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrFormat, MetaFile, err)
	}
	return m, nil
}

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
		if line = rest; !found {
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
	in   *bufio.Reader
	line int
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
		return fmt.Errorf("%s, line %d: %w", ScansFile, r.line, err)
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
		out = append(out, measure.Event{
			Kind: measure.EventKind(kind), FirstScan: first, Scans: scans, Exact: exact, Channel: channel, Detail: l[5],
		})
	}
	return out, nil
}

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
	m := meta{
		Format: formatName, Version: formatVersion, Identity: identityJSON(id),
		Timebase: timebaseJSON(in.Timebase), Response: responseJSON(in.Response),
	}
	names := []string{"scan", "tick"}
	for _, c := range in.Channels {
		names = append(names, c.Name)
		m.Channels = append(m.Channels, channelJSON(c))
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	create := func(name string) (f *os.File) { // one that is there is an error
		if err == nil {
			f, err = os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		}
		return f
	}
	w := &Writer{tb: in.Timebase, n: len(in.Channels), scans: create(ScansFile), events: create(eventsFile)}
	if meta := create(MetaFile); err == nil {
		_, err = meta.Write(append(b, '\n'))
		err = errors.Join(err, meta.Close())
	}
	if err != nil {
		_, _ = w.scans.Close(), w.events.Close() // nil where there is none
		return nil, fmt.Errorf("record to %s: %w", dir, err)
	}
	w.out, w.table = bufio.NewWriterSize(w.scans, 1<<16), csv.NewWriter(w.events)
	_ = w.table.Write([]string{"kind", "first_scan", "scans", "exact", "channel", "detail"})
	header := csv.NewWriter(w.out)
	_ = header.Write(names)
	header.Flush()
	return w, header.Error()
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
	w.table.Flush()
	if err := errors.Join(w.out.Flush(), w.table.Error(), w.scans.Sync(), w.events.Sync(), w.scans.Close(),
		w.events.Close()); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}
