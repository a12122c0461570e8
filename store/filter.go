package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"wattmark/measure"
)

// Filter selects tasks. The zero Filter selects all.
type Filter struct {
	User string // exact
	// Name is a pattern: * is any text, ? any one character, \* and \? are themselves.
	Name         string
	Job          string // exact
	Since, Until time.Time
	GPU          string // a UUID, or a part of the model's name in either case
	States       []State
	Group        GroupID // 0 for all
	// Limits of the energy and of the length of the window, both ends included; 0 for
	// none. With one of them, only tasks that have a window are selected.
	MinEnergy, MaxEnergy     measure.Joule
	MinDuration, MaxDuration measure.Seconds
	// With all of Tags and none of Without, and with all of the words, or beginnings of
	// words, of Search in name, notes or tags.
	Tags, Without []Tag
	Search        string
}

// Check refuses a pattern that cannot be; errors wrap ErrPattern.
func (f *Filter) Check() error {
	_, err := parsePattern(f.Name)
	return err
}

// names reads the pattern for names.
func (f *Filter) names() (namePattern, error) {
	p, err := parsePattern(f.Name)
	if err != nil {
		return p, fmt.Errorf("name %q: %w", f.Name, err)
	}
	return p, nil
}

// conditions are ANDed, with their arguments.
type conditions struct {
	where []string
	args  []any
}

func (c *conditions) add(cond string, args ...any) {
	c.where, c.args = append(c.where, cond), append(c.args, args...)
}

func (c *conditions) clone() *conditions {
	return &conditions{slices.Clone(c.where), slices.Clone(c.args)}
}

// sql is the conditions as a WHERE clause with a blank behind it.
func (c *conditions) sql() string {
	if len(c.where) == 0 {
		return ""
	}
	return "WHERE " + strings.Join(c.where, " AND ") + " "
}

// durationSQL is the length of the window.
const durationSQL = "(t.to_s-t.from_s)"

// byUser is the condition that a task is of a user.
const byUser = "t.user_id=(SELECT user_id FROM user WHERE login=?)"

// conditions are those on a row t of task; names is what Filter.names gave, or what
// was made of it since.
func (f *Filter) conditions(names namePattern) *conditions {
	c := &conditions{}
	if f.User != "" {
		c.add(byUser, f.User)
	}
	if f.Name != "" {
		names.where(c)
	}
	if f.Job != "" {
		c.add("t.job=?", f.Job)
	}
	if !f.Since.IsZero() {
		c.add("t.launched_ns>=?", f.Since.UnixNano())
	}
	if !f.Until.IsZero() {
		c.add("t.launched_ns<?", f.Until.UnixNano())
	}
	if f.GPU != "" {
		c.add("(t.gpu_uuid=? OR t.bench_gpu=? OR instr(lower(t.gpu), lower(?))>0)", f.GPU, f.GPU, f.GPU)
	}
	if len(f.States) > 0 {
		states := make([]any, len(f.States))
		for i, s := range f.States {
			states[i] = int64(s)
		}
		if !slices.Contains(f.States, Complete) {
			c.add("t.state<>2") // there is an index of those
		}
		c.add("t.state IN (?"+strings.Repeat(",?", len(states)-1)+")", states...)
	}
	if f.Group != 0 {
		c.add("t.task_id IN (SELECT task_id FROM group_member WHERE group_id=?)", int64(f.Group))
	}
	c.labelled(f.Tags, f.Without, f.Search)
	f.limits(c)
	return c
}

func (f *Filter) limits(c *conditions) {
	for _, l := range []struct {
		cond  string
		value float64
	}{
		{"t.energy_j>=?", float64(f.MinEnergy)},
		{"t.energy_j<=?", float64(f.MaxEnergy)},
		{durationSQL + ">=?", float64(f.MinDuration)},
		{durationSQL + "<=?", float64(f.MaxDuration)},
	} {
		if l.value != 0 {
			c.add(l.cond, l.value)
		}
	}
}
