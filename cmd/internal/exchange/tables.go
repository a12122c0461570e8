package exchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/recording"
	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/csvfile"
	"github.com/wattmark/wattmark/store/exchange/textin"
)

func importCSVCmd(a *cli.App) *cobra.Command {
	var f importFlags
	var from, to time.Duration
	var assume, rails []string
	c := &cobra.Command{
		Use: "csv FILE", Short: "Take in a table of volts, amperes or watts as a task", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := givenSpan{from: from, to: to, hasFrom: cmd.Flags().Changed("from"), hasTo: cmd.Flags().Changed("to")}
			return importCSV(cmd.Context(), a, args[0], f, w, assume, rails)
		},
	}
	f.textFlags(c)
	fl := c.Flags()
	fl.DurationVar(&from, "from", 0, "the window's begin, in time since the first row (default: the first row)")
	fl.DurationVar(&to, "to", 0, "the window's end (default: the last row)")
	fl.StringArrayVar(&assume, "assume", nil,
		"voltage of a rail of which only the current is there, as in eps=12; may be given again")
	fl.StringArrayVar(&rails, "rail", nil, "only this rail; may be given again")
	return a.JSONFlag(c)
}

// givenSpan is a window as the flags or events of an import give it, relative to the file's
// time zero. An end that is not given is that of the samples. edges are the uncertainties
// of its ends.
type givenSpan struct {
	from, to       time.Duration
	hasFrom, hasTo bool
	by             string // its source; empty for flags
	edges          measure.Edges
}

// of returns the window in device time. It fails with ExitUsage for a window that is empty
// or reaches beyond the samples.
func (g givenSpan) of(samples measure.Window) (measure.Window, error) {
	w := samples
	if g.hasFrom {
		w.From = measure.SecondsOf(g.from)
	}
	if g.hasTo {
		w.To = measure.SecondsOf(g.to)
	}
	if w.From < samples.From || w.To > samples.To || w.From >= w.To {
		return w, cli.Usagef("window from %v to %v: the samples lie from %v to %v: "+
			"choose --from and --to within them", w.From, w.To, samples.From, samples.To)
	}
	return w, nil
}

// String returns the source of the window, for the task's provenance.
func (g givenSpan) String() string {
	switch {
	case !g.hasFrom && !g.hasTo:
		return "all samples"
	case g.by != "":
		return g.by
	}
	return "set by hand"
}

// importCSV stores a table as a task. It reads the file more than once: for the
// heading, for the ranges and steps that fix a count's scale (Look), and for the values.
func importCSV(ctx context.Context, a *cli.App, path string, f importFlags, w givenSpan, assume, rails []string,
) (err error) {
	assumed, err := assumedVolts(assume)
	if err != nil {
		return err
	}
	from, done, err := f.source(ctx, path, a.In)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	in, err := csvfile.Open(from.open, textin.Options{Assumed: assumed, Rails: rails})
	if err != nil {
		return logfile.In(path, err)
	}
	s, err := from.look(a, path, in.Rows, in.Columns)
	if err != nil {
		return logfile.In(path, err)
	}
	if in.Meta != nil && f.start == "" {
		f.start = in.Meta.Task.Started.Format(time.RFC3339Nano)
	}
	// Numbers that large count from 1970, unless --start gives their zero.
	absolute := in.Absolute || s.First >= since1970 && f.start == ""
	out, err := f.incoming("csv", path, from.file, in.Plan, s, absolute, in.Meta)
	if err != nil {
		return err
	}
	if m := in.Meta; m != nil {
		out.Task.Name = cmp.Or(f.name, measure.Printable(m.Task.Name), out.Task.Name)
		out.Task.GPU = cmp.Or(f.gpu, measure.Printable(m.Task.GPU), out.Task.GPU)
		out.notes = append(out.notes, fmt.Sprintf("the file is an export of task %d, %s, of calibration %s", m.Task.ID,
			m.Task.Name, m.Setup.ID))
	}
	kernels, err := f.eventsOf(out, &w)
	if err != nil {
		return err
	}
	out.steps("CSV", from, in.Rows, in.Plan, s, kernels, w)
	return ImportTask(ctx, a, out)
}

// since1970 separates time axes, in ns: larger numbers count from 1970 (the bound lies in
// 1973), smaller ones from the start of the recording (the bound is more than three years).
const since1970 = 100_000_000_000_000_000

// assumedVolts parses --assume, RAIL=VOLTS, with 0 < volts < 10 000. It fails with
// ExitUsage.
func assumedVolts(assume []string) (map[string]measure.Volt, error) {
	out := map[string]measure.Volt{}
	for _, s := range assume {
		rail, text, _ := strings.Cut(s, "=")
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v > 0 && v < 1e4) || rail == "" {
			return nil, cli.Usagef("--assume %q: want a rail and its volts, as in eps=12", s)
		}
		out[rail] = measure.Volt(v)
	}
	return out, nil
}

// adoptUncertainties copies the uncertainties that an export states for its channels to the
// rails of s with the same name and wiring. It reports whether all rails are covered. Only
// rails with columns of single channels match: a shunt's current depends on two channels
// and the shunt's own resistance.
func adoptUncertainties(s *measure.Setup, m *exchange.Meta) (all bool) {
	if m == nil {
		return false
	}
	all = true
	for _, r := range s.Rails {
		i := slices.IndexFunc(m.Setup.Rails, func(x exchange.RailMeta) bool {
			return x.Name == r.Name && x.Wiring == r.Wiring.String()
		})
		if i < 0 {
			all = false
			continue
		}
		from := m.Setup.Rails[i]
		for _, c := range m.Setup.Channels {
			for to, name := range map[int]string{r.X: from.X, r.Y: from.Y} {
				if to >= 0 && c.Name == name {
					s.Channels[to].UGain, s.Channels[to].UOffset, s.Channels[to].Noise = c.UGainRel, c.UOffset, c.Noise
				}
			}
		}
	}
	return all
}

// nameOf returns the file's base name without control characters.
func nameOf(path string) string {
	if path == "-" {
		return "standard input"
	}
	return measure.Printable(filepath.Base(path))
}

// incoming returns the task that a text file becomes: setup, start, and notes about
// assumptions. file is the readable path, path the name that the user gave, meta the
// metadata of an export of ours or nil. With absolute, times count from 1970; otherwise
// --start or the file's modification time places them.
func (f *importFlags) incoming(format, path, file string, p *textin.Plan, s *textin.Survey, absolute bool,
	meta *exchange.Meta,
) (*Incoming, error) {
	out := &Incoming{Format: format, Path: path}
	start := time.Unix(0, s.First)
	if !absolute {
		at, note, err := f.startOf(original(path, file), time.Duration(s.Last))
		if err != nil {
			return nil, err
		}
		if start = at.Add(time.Duration(s.First)); note != "" {
			out.notes = append(out.notes, note)
		}
	}
	setup := p.Setup(s, f.uGain, f.uClock)
	// Uncertainties: those of the flags, else those of an export; otherwise a note warns.
	stated := f.uGain > 0 || adoptUncertainties(&setup, meta)
	for i := range setup.Rails {
		if r := &setup.Rails[i]; r.Role == 0 {
			r.Role = instrument.RoleOf(r.Name)
		}
	}
	if err := setup.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, textin.ErrInput, err)
	}
	name := nameOf(path)
	out.heads(f, strings.TrimSuffix(name, filepath.Ext(name)), "not told",
		store.Instrument{Kind: "import-" + format, Model: "imported file", Address: name}, setup, start)
	out.notes = append(out.notes, readingNotes(p, s, setup.Channels)...)
	if !stated {
		out.notes = append(out.notes,
			"no uncertainty of the scales was stated (--u-gain): ± U holds rounding, noise and the time scale only")
	}
	return out, nil
}

// readingNotes returns notes on how a file was read: its rows, the value of a count by channel, and columns left out.
func readingNotes(p *textin.Plan, s *textin.Survey, channels []measure.Channel) []string {
	notes := []string{fmt.Sprintf("%s over %v, every %v", measure.Plural(s.Rows, "row"),
		measure.Seconds(float64(s.Last-s.First)/1e9),
		measure.Seconds(s.Step/1e9))}
	for i, c := range channels {
		how := "as the file has more digits than a count holds"
		if s.Exact[i] {
			how = "the file's last decimal place"
		}
		notes = append(notes, fmt.Sprintf("%s: one count is %g %s, %s", c.Name, c.Gain, c.Unit, how))
	}
	return append(notes, lists.Map(p.Left, func(column string) string { return "left out: " + column })...)
}

// maxEvents bounds a file of events in bytes.
const maxEvents = 64 << 20

// eventsOf reads --events as kernels of length zero and sets the window from the first
// event to the last. It does nothing without the flag, and fails with ExitUsage where the
// window is set already.
func (f *importFlags) eventsOf(in *Incoming, w *givenSpan) ([]store.Kernel, error) {
	if f.events == "" {
		return nil, nil
	}
	if w.hasFrom || w.hasTo {
		return nil, cli.Usagef("--events sets the window: leave --from, --to and --markers out")
	}
	text, err := cli.ReadFile(f.events, func(r io.Reader, _ string) ([]byte, error) {
		return io.ReadAll(io.LimitReader(r, maxEvents+1))
	})
	if err != nil {
		return nil, err
	}
	if len(text) > maxEvents {
		return nil, fmt.Errorf("%s: larger than %d MiB: cut out what belongs to the file", f.events, maxEvents>>20)
	}
	events, err := recording.ParseEvents(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: want microseconds since 1970, one a line", f.events, err)
	}
	zero := in.Header.Started
	w.from, w.to, w.hasFrom, w.hasTo = events[0].Sub(zero), events[len(events)-1].Sub(zero), true, true
	w.by = "from the first event to the last of " + nameOf(f.events)
	return bench.EventKernels(events), nil
}

// steps sets the steps that store the kernels and the rows of a text file, and the energy over the window w, with the
// file's provenance.
func (in *Incoming) steps(format string, from *source, rows textin.Source, p *textin.Plan, s *textin.Survey,
	kernels []store.Kernel, w givenSpan,
) {
	in.before = func(ctx context.Context, db *store.DB, id store.TaskID) error {
		return db.PutKernels(ctx, id, kernels)
	}
	in.rows = int(s.Rows)
	in.Stream = func(sink textin.Sink) error { return textin.Read(rows, p.Columns, s, sink) }
	in.finish = func(ctx context.Context, db *store.DB, id store.TaskID, samples measure.Window) error {
		window, err := w.of(samples)
		if err != nil {
			return err
		}
		reason, err := provenance(format, original(in.Path, from.file), nameOf(in.Path), w.String())
		if err != nil {
			return err
		}
		t, err := db.Task(ctx, id)
		if err != nil {
			return err
		}
		res, err := measurement.Integrate(ctx, db, &t, window, w.edges)
		if err != nil {
			return err
		}
		return db.Finish(ctx, id, store.Outcome{State: store.Complete, Reason: reason, Result: res})
	}
}

// storeIncoming stores head, samples and result of a Partial task; the last step publishes
// it. It fails for a file without samples.
func storeIncoming(ctx context.Context, db *store.DB, id store.TaskID, in *Incoming, bar *cli.Progress) error {
	if err := db.PutHeader(ctx, id, in.Header); err != nil {
		return err
	}
	if in.before != nil {
		if err := in.before(ctx, db, id); err != nil {
			return err
		}
	}
	s := chunkStore{ctx: ctx, db: db, id: id, tb: in.Header.Setup.Timebase, channels: in.Header.Setup.Channels}
	var err error
	if s.encoder, err = chunk.NewEncoder(s.tb, len(in.Header.Setup.Channels), ImportChunk); err != nil {
		return err
	}
	rows := 0
	block := func(b *measure.Block) error {
		rows += b.Scans()
		bar.Set(rows, in.rows)
		return s.block(b)
	}
	if err := in.Stream(textin.Sink{Block: block, Event: s.event}); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	if !s.some {
		return fmt.Errorf("%w: it holds no samples", textin.ErrInput)
	}
	return in.finish(ctx, db, id, s.samples)
}

// ImportChunk is the largest number of scans in a chunk of an imported task.
const ImportChunk = 1 << 16

// chunkStore encodes blocks into chunks and appends them to a task, each with the events
// that precede its end. samples is the span of device time seen, valid once some is set.
type chunkStore struct {
	ctx      context.Context
	db       *store.DB
	id       store.TaskID
	tb       measure.Timebase
	channels []measure.Channel
	encoder  *chunk.Encoder
	no       uint64
	events   []measure.Event
	samples  measure.Window
	some     bool
}

// event keeps an event for the next flush.
func (s *chunkStore) event(e measure.Event) error {
	s.events = append(s.events, e)
	return nil
}

// block appends a block. A block may fill several chunks: the encoder takes as many scans
// as fit, and the rest goes into the next chunk.
func (s *chunkStore) block(b *measure.Block) error {
	n := b.Scans()
	if n == 0 {
		return nil
	}
	if !s.some {
		s.samples.From, s.some = s.tb.Seconds(b.TickAt(s.tb, 0)), true
	}
	// Blocks come in order of time: the newest scan ends the span.
	s.samples.To = s.tb.Seconds(b.TickAt(s.tb, n-1))
	for done := 0; done < n; {
		took, err := s.encoder.Append(new(b.Slice(s.tb, done, n)))
		if err != nil {
			return err
		}
		if done += took; done < n || s.encoder.Full() {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush stores the open chunk, with an event for each run of readings at the end of a
// channel's range, and the events kept. It does nothing where both are empty.
func (s *chunkStore) flush() error {
	var chunks []*chunk.Chunk
	if c := s.encoder.Flush(s.no); c != nil {
		if err := c.OverRangeEvents(s.channels, s.event); err != nil {
			return err
		}
		chunks = append(chunks, c)
		s.no++
	}
	if len(chunks)+len(s.events) == 0 {
		return nil
	}
	err := s.db.AppendChunks(s.ctx, s.id, chunks, s.events)
	s.events = s.events[:0]
	return err
}
