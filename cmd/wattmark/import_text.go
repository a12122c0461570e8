package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"wattmark/analysis/recording"
	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/store"
	"wattmark/store/exchange"
	"wattmark/store/exchange/textin"
)

// adopt takes over what an export says of itself, where nobody said otherwise.
func (f *importFlags) adopt(in *incoming, name, gpu string) {
	if f.name == "" && name != "" {
		in.task.Name = measure.Printable(name)
	}
	if f.gpu == "" && gpu != "" {
		in.task.GPU = measure.Printable(gpu)
	}
}

// adoptUncertainties takes over what an export says of its channels, for rails whose
// columns are of single channels: a shunt's current is of two, and of the shunt. It
// reports whether all of the rails' uncertainties are known now.
func adoptUncertainties(s *measure.Setup, m *exchange.Meta) (all bool) {
	if m == nil {
		return false
	}
	all = true
	for _, r := range s.Rails {
		i := slices.IndexFunc(m.Setup.Rails, func(x exchange.RailMeta) bool { return x.Name == r.Name && x.Wiring == r.Wiring.String() })
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

func nameOf(path string) string {
	if path == "-" {
		return "standard input"
	}
	return measure.Printable(filepath.Base(path))
}

// incoming describes the task that a text file becomes. file is where it lies,
// path what it is called, meta what an export of ours says of itself.
func (f *importFlags) incoming(format, path, file string, p *textin.Plan, s *textin.Survey, absolute bool, meta *exchange.Meta) (*incoming, error) {
	out := &incoming{format: format, path: path}
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
	stated := f.uGain > 0 || adoptUncertainties(&setup, meta)
	for i := range setup.Rails {
		if r := &setup.Rails[i]; r.Role == 0 {
			r.Role = instrument.RoleOf(r.Name)
		}
	}
	if err := setup.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, textin.ErrInput, err)
	}
	login, _ := whoami()
	name := nameOf(path)
	out.task = store.NewTask{Name: firstOf(f.name, strings.TrimSuffix(name, filepath.Ext(name))), User: firstOf(f.user, login), Launched: start, GPU: firstOf(f.gpu, "not told")}
	out.header = store.Header{
		Bench: "import", Instrument: store.Instrument{Kind: "import-" + format, Model: "imported file", Address: name},
		Setup: setup, CalibrationID: setup.CalibrationID(), Started: start,
	}
	out.notes = append(out.notes, fmt.Sprintf("%d rows over %v, every %v", s.Rows, measure.Seconds(float64(s.Last-s.First)/1e9), measure.Seconds(s.Step/1e9)))
	for i, c := range setup.Channels {
		how := "as the file has more digits than a count holds"
		if s.Exact[i] {
			how = "the file's last decimal place"
		}
		out.notes = append(out.notes, fmt.Sprintf("%s: one count is %g %s, %s", c.Name, c.Gain, c.Unit, how))
	}
	for _, l := range p.Left {
		out.notes = append(out.notes, "left out: "+l)
	}
	if !stated {
		out.notes = append(out.notes, "no uncertainty of the scales was stated (--u-gain): ± U holds rounding, noise and the time scale only")
	}
	return out, nil
}

// maxEvents bounds a file of events.
const maxEvents = 64 << 20

// eventsOf reads --events as kernels without a length, and puts the window between
// the first and the last.
func (f *importFlags) eventsOf(in *incoming, w *givenSpan) (ks []store.Kernel, err error) {
	if f.events == "" {
		return nil, nil
	}
	if w.hasFrom || w.hasTo {
		return nil, withCode(exitUsage, errors.New("--events sets the window: leave --from, --to and --markers out"))
	}
	file, err := os.Open(f.events)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxEvents+1))
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
	for i, at := range events {
		ks = append(ks, store.Kernel{Name: fmt.Sprintf("event %d", i+1), Start: at, End: at})
	}
	zero := in.header.Started
	w.from, w.to, w.hasFrom, w.hasTo = events[0].Sub(zero), events[len(events)-1].Sub(zero), true, true
	w.by = "from the first event to the last of " + nameOf(f.events)
	return ks, nil
}

// read has a text file's rows stored, with what happened meanwhile.
func (in *incoming) read(rows textin.Source, p *textin.Plan, s *textin.Survey, kernels []store.Kernel) {
	in.before = func(ctx context.Context, db *store.DB, id store.TaskID) error { return db.PutKernels(ctx, id, kernels) }
	in.stream = func(sink textin.Sink) error { return textin.Read(rows, p.Columns, s, sink) }
}

// endBy ends the task with its energy over a window.
func (in *incoming) endBy(format, file string, w givenSpan) {
	in.finish = func(ctx context.Context, db *store.DB, id store.TaskID, samples measure.Window) error {
		window, err := w.of(samples)
		if err != nil {
			return err
		}
		reason, err := provenance(format, original(in.path, file), nameOf(in.path), w.String())
		if err != nil {
			return err
		}
		return finishWindow(ctx, db, id, window, reason, w.edges)
	}
}
