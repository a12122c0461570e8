// Package job adds up the energy of one job on many hosts, and reports simultaneity,
// missing tasks and idle times outside of the sum.
//
// The energies are added by measure/group: errors that several tasks have in
// common, by one calibration record or one instrument, add as they are, all others
// by their squares. The times are those of the hosts' clocks, as they are.
package job

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/group"
)

// ErrTwice: a GPU's energy would be counted twice.
var ErrTwice = errors.New("measured twice at the same time")

// Task is one measured task of a job, named as its source does.
type Task struct {
	ID    int64  `json:"task_id"`
	Name  string `json:"name"`
	State string `json:"state"`
	GPU   string `json:"gpu,omitempty"`      // its model
	UUID  string `json:"gpu_uuid,omitempty"` // of the GPU; empty where it is not known
	Span
	measure.Estimate            // of Part
	Part             group.Part `json:"-"`
}

// Span is a stretch of time by the host's clock.
type Span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Host is the job's part in one database. The estimate, Span and the times are Of's, and
// nil or zero without tasks.
type Host struct {
	Name              string `json:"host"`
	*measure.Estimate        // of its tasks
	Tasks             []Task `json:"tasks"`
	// Busy is the time covered by at least one task's window, Before and After the
	// waiting for the other hosts' begin and end, Between the rest. No energy was
	// measured outside of windows, and none is in the sum.
	Busy    measure.Seconds `json:"busy_s"`
	Before  measure.Seconds `json:"idle_before_s"`
	Between measure.Seconds `json:"idle_between_s"`
	After   measure.Seconds `json:"idle_after_s"`
	// ByName: the tasks were found by their name, and none carries the job.
	ByName bool `json:"matched_by_name,omitempty"`
	// Missing names the tasks that the host should have and has not.
	Missing []string `json:"missing,omitempty"`
	Span    Span     `json:"-"`
}

// Length is how long a span is.
func (s Span) Length() measure.Seconds { return measure.SecondsOf(s.To.Sub(s.From)) }

// Total is a job's energy.
type Total struct {
	Sum  group.Sum // over all tasks, in the order of Of's hosts
	Span Span      // from the first begin to the last end
	// Together is how long all hosts that have tasks worked at once, each from its
	// first begin to its last end; negative for how long they missed each other.
	Together measure.Seconds
	Hosts    []Host
	Tasks    int
	Missing  int
}

// Of adds a job up. Two tasks of one GPU at the same time are ErrTwice: a database
// and its copy, or two meters at one GPU.
func Of(hosts []Host) (Total, error) {
	if err := once(hosts); err != nil {
		return Total{}, err
	}
	var t Total
	var parts []group.Part
	for _, h := range hosts {
		var its []group.Part
		for _, x := range h.Tasks {
			its = append(its, x.Part)
			h.Span = h.Span.with(x.Span)
		}
		if sum := group.Of(its); len(its) > 0 {
			h.Estimate = &sum.Estimate
		}
		parts = append(parts, its...)
		t.Hosts, t.Tasks, t.Missing = append(t.Hosts, h), t.Tasks+len(its), t.Missing+len(h.Missing)
		t.Span = t.Span.with(h.Span)
	}
	t.Sum = group.Of(parts)
	t.times()
	return t, nil
}

// with is the span that holds both; a zero one holds nothing.
func (s Span) with(o Span) Span {
	switch {
	case s.From.IsZero():
		return o
	case o.From.IsZero():
		return s
	}
	return Span{lists.Earliest(s.From, o.From), lists.Latest(s.To, o.To)}
}

// times derives the relation of the hosts' times.
func (t *Total) times() {
	// All hosts worked at once from the latest begin to the earliest end.
	var late, early time.Time
	for i := range t.Hosts {
		h := &t.Hosts[i]
		if len(h.Tasks) == 0 {
			continue
		}
		late = lists.Latest(late, h.Span.From)
		if early.IsZero() || h.Span.To.Before(early) {
			early = h.Span.To
		}
		// Busy is how long at least one task lasted.
		list := slices.Clone(h.Tasks)
		slices.SortFunc(list, func(a, b Task) int { return a.Span.From.Compare(b.Span.From) })
		var end time.Time
		for _, x := range list {
			from := lists.Latest(x.Span.From, end)
			if x.Span.To.After(from) {
				h.Busy += measure.SecondsOf(x.Span.To.Sub(from))
				end = x.Span.To
			}
		}
		h.Between = max(h.Span.Length()-h.Busy, 0)
		h.Before = measure.SecondsOf(h.Span.From.Sub(t.Span.From))
		h.After = measure.SecondsOf(t.Span.To.Sub(h.Span.To))
	}
	t.Together = measure.SecondsOf(early.Sub(late))
}

// once refuses two tasks of one GPU that overlap.
func once(hosts []Host) error {
	type at struct {
		Task
		host string
	}
	var list []at
	for _, h := range hosts {
		for _, x := range h.Tasks {
			if x.UUID != "" {
				list = append(list, at{x, h.Name})
			}
		}
	}
	slices.SortFunc(list, func(a, b at) int { return cmp.Or(cmp.Compare(a.UUID, b.UUID), a.From.Compare(b.From)) })
	last := 0 // of one GPU's tasks, the one that ends last
	for i := 1; i < len(list); i++ {
		a, b := &list[last], &list[i]
		if a.UUID == b.UUID && b.From.Before(a.To) {
			return fmt.Errorf("GPU %s: task %d of %s and task %d of %s: %w: leave one of them out", a.UUID, a.ID, a.host,
				b.ID, b.host, ErrTwice)
		}
		if a.UUID != b.UUID || b.To.After(a.To) {
			last = i
		}
	}
	return nil
}
