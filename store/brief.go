package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"wattmark/measure"
)

// briefSQL reads what a list shows of tasks t.
const briefSQL = `t.task_id, t.name, u.login, t.launched_ns, t.gpu, t.gpu_uuid, t.job,
	t.state, t.reason, t.scans, t.nvml_j, t.has_result, t.from_s, t.to_s, t.samples, t.gaps, t.lost, t.energy_j, t.energy_u_j, t.mean_w, t.peak_w,
	m.group_id, t.pinned, t.tags`

// briefJoins are the tables that briefSQL reads beside tasks t: as joins, they are opened
// once a page rather than once a task.
const briefJoins = ` LEFT JOIN user u ON u.user_id=t.user_id LEFT JOIN group_member m ON m.task_id=t.task_id `

// brief is where the columns of briefSQL go, and behind them a key. It is filled again
// and again.
type brief struct {
	task           Brief
	result         Figures
	hasResult      bool
	launched, nvml cell
	tags, key      cell
}

// columns are where the columns go.
func (b *brief) columns() []column {
	t, r := &b.task, &b.result
	return []column{
		intTo(&t.ID), textTo(&t.Name), textTo(&t.User), &b.launched, textTo(&t.GPU), textTo(&t.GPUUUID), textTo(&t.Job),
		intTo(&t.State), textTo(&t.Reason), intTo(&t.Scans), &b.nvml,
		flag{&b.hasResult},
		realTo(&r.From), realTo(&r.To),
		intTo(&r.Samples), intTo(&r.Gaps), intTo(&r.Lost), realTo(&r.Total.Energy), realTo(&r.Total.U), realTo(&r.Mean), realTo(&r.Peak),
		intTo(&t.Group),
		flag{&t.Pinned},
		&b.tags, &b.key,
	}
}

// briefs are tasks of a list, with what each is ordered by.
type briefs struct {
	tasks []Brief
	keys  []cell
	// What tasks point to, side by side: one allocation for a page.
	results []Figures
	joules  []measure.Joule
}

func newBriefs(n int) *briefs {
	return &briefs{tasks: make([]Brief, 0, n), keys: make([]cell, 0, n), results: make([]Figures, 0, n), joules: make([]measure.Joule, 0, n)}
}

// add copies what was read.
func (l *briefs) add(b *brief) error {
	l.keys = append(l.keys, b.key)
	l.tasks = append(l.tasks, b.task)
	t := &l.tasks[len(l.tasks)-1]
	if b.launched.kind == cellInt {
		t.Launched = time.Unix(0, int64(b.launched.bits)).UTC()
	}
	if b.nvml.kind != cellNone {
		l.joules = append(l.joules, measure.Joule(b.nvml.number()))
		t.NVML = &l.joules[len(l.joules)-1]
	}
	if b.hasResult {
		l.results = append(l.results, b.result)
		t.Result = &l.results[len(l.results)-1]
	}
	if b.tags.kind == cellNone {
		return nil
	}
	var err error
	if t.Tags, err = tagsOf(b.tags.text); err != nil {
		return fmt.Errorf("%w: tags of task %d: %w", ErrCorrupt, t.ID, err)
	}
	return nil
}

// tagsOf reads a JSON object of texts. Where nothing in it is escaped, as nearly always,
// its texts are what stands between its quotes.
func tagsOf(object string) (map[string]string, error) {
	if between := strings.Split(object, `"`); len(between)%4 == 1 && !strings.Contains(object, `\`) {
		tags := make(map[string]string, len(between)/4)
		for i := 1; i < len(between); i += 4 {
			tags[measure.Printable(between[i])] = measure.Printable(between[i+2])
		}
		return tags, nil
	}
	var raw map[string]string
	if err := json.Unmarshal([]byte(object), &raw); err != nil {
		return nil, err
	}
	tags := make(map[string]string, len(raw))
	for k, v := range raw {
		tags[measure.Printable(k)] = measure.Printable(v)
	}
	return tags, nil
}

// read adds the tasks t of some tables and conditions, with a key; planned as gather has it.
func (l *briefs) read(ctx context.Context, d *DB, plan Planning, key, tables, where string, args ...any) error {
	var b brief
	return d.gather(ctx, plan, b.columns(), func() error { return l.add(&b) }, briefSQL+", "+key, tables+briefJoins+where, args...)
}

// order puts the tasks behind the first n in order. They are, but for what the database
// was free to do.
func (l *briefs) order(n int, ascending bool) {
	s := byKey{l.tasks[n:], l.keys[n:], ascending}
	if !sort.IsSorted(s) {
		sort.Sort(s)
	}
}

// byKey sorts tasks by their keys, then by their ids.
type byKey struct {
	tasks     []Brief
	keys      []cell
	ascending bool
}

func (s byKey) Len() int { return len(s.tasks) }

func (s byKey) Less(i, j int) bool {
	if !s.ascending {
		i, j = j, i
	}
	c := s.keys[i].compare(&s.keys[j])
	return c < 0 || c == 0 && s.tasks[i].ID < s.tasks[j].ID
}

func (s byKey) Swap(i, j int) {
	s.tasks[i], s.tasks[j] = s.tasks[j], s.tasks[i]
	s.keys[i], s.keys[j] = s.keys[j], s.keys[i]
}

// cut leaves the first n.
func (l *briefs) cut(n int) { l.tasks, l.keys = slices.Clip(l.tasks[:n]), l.keys[:n] }
