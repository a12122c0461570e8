package measurement

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"sort"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/store"
)

// clockWander is by how much the rates of two clocks differ from their mean over a capture, relative and k = 1: that
// of quartz at rest, and of a host clock that is steered gently. The line through the markers at both ends is off by
// up to a quarter of the distance between them times that, midway.
const clockWander = 0.1e-6

// vagueClock: a window shorter than so many times the clock's standard uncertainty has no energy. Beyond, the powers at
// its ends do not tell by how much a shift changes it.
const vagueClock = 4

// ServedWindows are the windows of a task, with the number of the result that their energies rest on: 0 for none.
// They are stored without energies, which follow from the task's result in use.
type ServedWindows struct {
	Result  int              `json:"result,omitempty"`
	Windows []serving.Window `json:"windows"`
	Notes   []string         `json:"notes,omitempty"`

	lost int // the first of the notes: of windows that were refused
}

// AddWindows stores windows of a task, also of one that runs yet. More than serving.Most are refused.
func AddWindows(ctx context.Context, db Store, id store.TaskID, w ServedWindows) error {
	content, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("windows of task %d: %w", id, err)
	}
	_, err = db.PutAnalysis(ctx, store.Analysis{
		Kind: serving.Kind, Name: fmt.Sprint(id), Made: time.Now(), Content: content, Tasks: []store.TaskID{id},
	})
	return err
}

// StoreWindows reads the files in which the processes of a program wrote their windows, and stores them with a task.
// Lines that are no windows are left out and noted with the task's windows.
func StoreWindows(ctx context.Context, db *store.DB, id store.TaskID, files []string) error {
	var all ServedWindows
	for _, path := range files {
		w, refused, err := windowsOf(path)
		if err != nil {
			return fmt.Errorf("windows of task %d: %w", id, err)
		}
		if refused != nil {
			all.Notes = append(all.Notes, refused.Error())
		}
		all.Windows = append(all.Windows, w...)
	}
	if n := len(all.Windows); n > serving.Most {
		all.Windows = all.Windows[:serving.Most]
		all.Notes = append(all.Notes, fmt.Sprintf("%d windows beyond the first %d were left out", n-serving.Most,
			serving.Most))
	}
	if len(all.Windows)+len(all.Notes) == 0 {
		return nil
	}
	return AddWindows(ctx, db, id, all)
}

func windowsOf(path string) (w []serving.Window, refused, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return serving.Read(f)
}

// Windows returns the windows of a task with their energies, nil for a task without windows. It reads all samples of
// the task. Errors wrap ErrNoShares for a task without a window of its own or a clock; then the windows come without
// energies.
func Windows(ctx context.Context, db *store.DB, id store.TaskID) (*ServedWindows, error) {
	if _, err := db.Task(ctx, id); err != nil {
		return nil, err
	}
	newest, err := db.Analysis(ctx, serving.Kind, fmt.Sprint(id), 0)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	out := &ServedWindows{}
	for v := 1; v <= newest.Version; v++ {
		part, err := windowsAt(ctx, db, id, v)
		if errors.Is(err, store.ErrNotFound) {
			continue
		} else if err != nil {
			return nil, err
		}
		out.Windows, out.Notes = append(out.Windows, part.Windows...), append(out.Notes, part.Notes...)
	}
	out.once()
	if len(out.Windows) > serving.Most {
		return nil, fmt.Errorf("task %d has %d windows: %w: at most %d", id, len(out.Windows), ErrNoShares, serving.Most)
	}
	out.lost = len(out.Notes)
	return out, out.measure(ctx, db, id)
}

// windowsAt returns a version of a task's windows.
func windowsAt(ctx context.Context, db Store, id store.TaskID, version int) (w ServedWindows, err error) {
	a, err := db.Analysis(ctx, serving.Kind, fmt.Sprint(id), version)
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(a.Content, &w); err != nil {
		return w, fmt.Errorf("windows of task %d: %w: %w", id, store.ErrCorrupt, err)
	}
	return w, nil
}

// once leaves out the windows that are there with their energy already.
func (w *ServedWindows) once() {
	type key struct {
		id, stage, class string
		begin, end       int64
	}
	settled := map[key]int{}
	of := func(w *serving.Window) key { return key{w.ID, w.Stage, w.Class, w.Begin, w.End} }
	for i := range w.Windows {
		if w := &w.Windows[i]; w.Settled {
			settled[of(w)]++
		}
	}
	w.Windows = slices.DeleteFunc(w.Windows, func(w serving.Window) bool {
		if w.Settled || settled[of(&w)] == 0 {
			return false
		}
		settled[of(&w)]--
		return true
	})
}

// Served returns the energy of all that was served in a task, by the fields of InferenceX; nil without windows. It
// reads all samples of the task once more.
func (w *ServedWindows) Served(ctx context.Context, db *store.DB, id store.TaskID) (*serving.Served, error) {
	out := serving.Serve(w.Windows)
	if out == nil {
		return nil, nil
	}
	t, err := db.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	whole := ServedWindows{Windows: []serving.Window{{Begin: out.Begin, End: out.End}}}
	if err = whole.measure(ctx, db, id); err != nil && !errors.Is(err, ErrNoShares) {
		return nil, err
	}
	reasons := slices.Clone(w.Notes[:w.lost])
	if err != nil {
		reasons = append(reasons, err.Error())
	}
	if t.State != store.Complete {
		reasons = append(reasons, fmt.Sprintf("the task is %v", t.State))
	}
	if v, _ := t.Verdict(); v.Level == quality.Void {
		reasons = append(reasons, "the measurement is void")
	}
	var e measure.Estimate
	if s := whole.Windows[0].Share; s != nil {
		e = s.Estimate
	} else if len(reasons) == 0 {
		reasons = whole.Notes
	}
	out.Took(e, reasons...)
	return out, nil
}

// measure sets the energies of the windows that are not settled, and puts all in the order of their begin.
func (w *ServedWindows) measure(ctx context.Context, db Store, id store.TaskID) error {
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	for i := range w.Windows {
		if !w.Windows[i].Settled {
			w.Windows[i].Share = nil
		}
	}
	slices.SortStableFunc(w.Windows, func(a, b serving.Window) int { return cmp.Compare(a.Begin, b.Begin) })
	if w.Result = t.ResultNumber; t.Result == nil || t.Clock == nil {
		w.Result = 0
		return fmt.Errorf("task %d: %w: it has no window, or no clock that relates it to the host", id, ErrNoShares)
	}
	m, err := bent(ctx, db, &t)
	if err != nil {
		return fmt.Errorf("windows of task %d: %w", id, err)
	}
	return w.share(ctx, db, &t, &m)
}

// share sets the energies by a task's clock, which goes from mark to mark, and its result. The windows are in the order
// of their begin.
func (w *ServedWindows) share(ctx context.Context, db Store, t *store.Task, m *marking) error {
	f := &m.fit
	t.Clock = f
	if len(f.Knots) == 0 { // the line is right at its ends
		from, _ := f.Host(t.Result.From)
		to, _ := f.Host(t.Result.To)
		late := float64(to-from) / 4 * clockWander
		f.Knots = []clock.Knot{{Host: from, Bend: late * late}, {Host: to}}
	}
	s := &sharing{ctx: ctx, db: db, task: t, spans: w.kernels(t, m.spans)}
	x, err := s.run()
	if err != nil {
		return fmt.Errorf("windows of task %d: %w", t.ID, err)
	}
	known := s.known(w.ends(t))
	vague, outside, open, deleted, early := 0, 0, 0, 0, 0
	for i := range w.Windows {
		from, to := w.span(t, i)
		a, u := f.Meter(from)
		b, uEnd := f.Meter(to)
		if w.Windows[i].Marks > 0 {
			open++
		}
		switch {
		case w.Windows[i].Settled:
			if w.Windows[i].Share == nil {
				early++
			}
		// The marks bend the clock that placed the task's window, so an end counts as within by its U.
		case i >= len(x.Kernels) || a+2*u < t.Result.From || b-2*uEnd > t.Result.To:
			outside++
		case !known(a, b):
			deleted++
		case x.Kernels[i].Launches == 0: // noted: a mark was played all the time
		case u > (b-a)/vagueClock:
			vague++
		default:
			k := &x.Kernels[i]
			share := s.part(k, false)
			w.Windows[i].Share = &share
		}
	}
	w.lack(vague, fmt.Sprintf("shorter than %d times the uncertainty of when it was on the meter's clock", vagueClock))
	w.lack(early, "too short for the clocks' uncertainty, or within a mark, when its energy was due amid the capture")
	w.lack(deleted, "over samples that had been deleted when it was named (--keep)")
	w.lack(outside, "not within the task's window")
	if n := len(w.Windows); len(m.spans) > 0 && n < len(x.Kernels) {
		text := m.note()
		if len(s.deleted) == 0 {
			text += fmt.Sprintf("; they drew %v, which is in no window", x.Kernels[n].Energy)
		}
		w.Notes = append(w.Notes, fmt.Sprintf("%s; %s open meanwhile, less that time", text, measure.Plural(open, "window")))
	}
	return nil
}

// lack notes why so many windows have no energy.
func (w *ServedWindows) lack(n int, why string) {
	if n > 0 {
		w.Notes = append(w.Notes, fmt.Sprintf("%s %s: without energy", measure.Plural(n, "window"), why))
	}
}

// ends are the windows' ends on the meter's clock.
func (w *ServedWindows) ends(t *store.Task) (out []measure.Seconds) {
	for i := range w.Windows {
		from, to := w.span(t, i)
		a, _ := t.Clock.Meter(from)
		b, _ := t.Clock.Meter(to)
		out = append(out, a, b)
	}
	return out
}

// span is a window on the clock's count.
func (w *ServedWindows) span(t *store.Task, i int) (from, to measure.Seconds) {
	return HostSeconds(*t.Clock, time.Unix(0, w.Windows[i].Begin)), HostSeconds(*t.Clock, time.Unix(0, w.Windows[i].End))
}

// kernels are the windows as the engine shares energy: each of its own name, less the time of the marks, which have the
// name behind.
func (w *ServedWindows) kernels(t *store.Task, marks []gpu.Span) iter.Seq2[attribute.Kernel, error] {
	var out []attribute.Kernel
	for i := range w.Windows {
		k := attribute.Kernel{Name: i}
		k.Start, k.End = w.span(t, i)
		w.Windows[i].Marks = 0
		n := sort.Search(len(marks), func(n int) bool { return HostSeconds(*t.Clock, marks[n].End) > k.Start })
		for ; n < len(marks) && HostSeconds(*t.Clock, marks[n].Start) < k.End; n++ {
			from, to := HostSeconds(*t.Clock, marks[n].Start), HostSeconds(*t.Clock, marks[n].End)
			w.Windows[i].Marks += min(to, k.End) - max(from, k.Start)
			if k.Start < from {
				out = append(out, attribute.Kernel{Name: i, Start: k.Start, End: from})
			}
			k.Start = to
		}
		if k.Start < k.End {
			out = append(out, k)
		}
	}
	for _, s := range marks {
		from, to := HostSeconds(*t.Clock, s.Start), HostSeconds(*t.Clock, s.End)
		out = append(out, attribute.Kernel{Name: len(w.Windows), Start: from, End: to})
	}
	slices.SortStableFunc(out, func(a, b attribute.Kernel) int { return cmp.Compare(a.Start, b.Start) })
	return func(yield func(attribute.Kernel, error) bool) {
		for _, k := range out {
			if !yield(k, nil) {
				return
			}
		}
	}
}
