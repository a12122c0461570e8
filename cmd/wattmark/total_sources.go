package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	"wattmark/analysis/job"
	"wattmark/api/client"
	"wattmark/hostagent/measurement"
	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/measure/group"
	"wattmark/store"
)

// readDatabase reads a job's tasks out of a task database.
func (h *jobHost) readDatabase(ctx context.Context, path string, f totalFlags, q store.Query) error {
	if _, err := os.Stat(path); err != nil && !store.OnServer(path) {
		return fmt.Errorf("no task database: %w", err)
	}
	db, err := store.OpenSource(ctx, path)
	if err != nil {
		return err
	}
	defer db.Close()
	q.Job = f.job
	list, err := db.Tasks(ctx, q)
	if err != nil {
		return err
	}
	byName := len(list) == 0
	if byName {
		q.Job, q.Name = "", f.job
		if list, err = db.Tasks(ctx, q); err != nil {
			return err
		}
	}
	slices.Reverse(list) // oldest first
	groups := map[store.GroupID]bool{}
	for i := range list {
		t, err := db.Task(ctx, list[i].ID)
		if err != nil {
			return err
		}
		h.add(jobTask{int64(t.ID), t.Name, stateNames[t.State], t.GPU}, t.GPUUUID, taskSpan(t.Result, t.Clock, t.Started),
			group.Part{Instrument: t.Instrument, Setup: &t.Setup, Result: t.Result}, t.Reason)
		if id := t.Group.Group; id != 0 && !groups[id] {
			groups[id] = true
			if err := h.addMissingOf(ctx, db, id); err != nil {
				return err
			}
		}
	}
	if byName && len(list) > 0 {
		return h.oneEach(f.job)
	}
	return nil
}

// addMissingOf notes a group's GPUs that have no task.
func (h *jobHost) addMissingOf(ctx context.Context, db *store.DB, id store.GroupID) error {
	g, err := db.Group(ctx, id)
	if err != nil {
		return err
	}
	for _, m := range g.Members {
		if m.Task == 0 {
			h.Missing = append(h.Missing, fmt.Sprintf("%s of group %d: %s", firstOf(m.GPUUUID, m.GPU), id, firstOf(m.Reason, "no task")))
		}
	}
	return nil
}

// readService reads a job's tasks from a wattmark host.
func (h *jobHost) readService(ctx context.Context, address string, f totalFlags, q store.Query) error {
	c, err := dialTasks(ctx, address)
	if err != nil {
		return err
	}
	defer c.Close()
	collect := func(name, job string) (list []client.Task, err error) {
		for t, err := range c.Tasks(ctx, client.Query{Name: name, Job: job, Since: q.Since, Until: q.Until}) {
			if err != nil {
				return nil, fmt.Errorf("asking for its tasks: %s", status.Convert(err).Message())
			}
			// A host of an older version knows no jobs, and answers with all tasks.
			if job != "" && t.Job != job {
				continue
			}
			list = append(list, t)
		}
		return list, nil
	}
	list, err := collect("", f.job)
	if err != nil {
		return err
	}
	byName := len(list) == 0
	if byName {
		if list, err = collect(f.job, ""); err != nil {
			return err
		}
	}
	slices.Reverse(list)
	for _, x := range list {
		d, err := c.Task(ctx, x.ID)
		if err != nil {
			return fmt.Errorf("asking for task %d: %s", x.ID, status.Convert(err).Message())
		}
		r := resultOf(&d)
		h.add(jobTask{d.ID, d.Name, d.State.String(), d.GPU}, d.GPUUUID, taskSpan(r, d.Clock, firstTime(d.Started, d.Launched)),
			group.Part{Instrument: d.Instrument, Setup: d.Setup, Result: r}, d.Reason)
		if r != nil && len(r.Budget) == 0 {
			h.cautions = append(h.cautions, fmt.Sprintf("%s does not tell what the U of task %d is made of: it is taken as its own", address, d.ID))
		}
	}
	if byName && len(list) > 0 {
		return h.oneEach(f.job)
	}
	return nil
}

func firstTime(t ...time.Time) time.Time {
	for _, v := range t {
		if !v.IsZero() {
			return v
		}
	}
	return time.Time{}
}

// resultOf is a task's result as a service tells it; nil without one.
func resultOf(d *client.Detail) *measure.Result {
	w := d.Window
	if w == nil {
		return nil
	}
	return &measure.Result{
		From: d.From, To: d.To, Samples: w.Samples, Gaps: w.Gaps, Lost: w.Lost,
		Rails: d.Rails, Total: w.Energy, Mean: w.Mean, Peak: w.Peak, Budget: d.Budget,
	}
}

// add takes a task: into the sum where it has an energy, else among the missing.
func (h *jobHost) add(t jobTask, uuid string, span job.Span, p group.Part, reason string) {
	if p.Result == nil || p.Setup == nil {
		h.Missing = append(h.Missing, fmt.Sprintf("task %d is %s: %s", t.id, t.state, firstOf(reason, "it has no energy")))
		return
	}
	if t.state != stateNames[store.Complete] {
		h.cautions = append(h.cautions, fmt.Sprintf("%s: task %d is %s: %s", h.Name, t.id, t.state, reason))
	}
	if p.Instrument.Serial == "" { // one that is where it was is the same
		p.Meter = fmt.Sprintf("the %s of %s at %s", p.Instrument.Kind, uuid, joinNonEmpty(" ", h.Name, p.Instrument.Address))
	}
	h.tasks = append(h.tasks, t)
	h.Tasks = append(h.Tasks, job.Task{Name: fmt.Sprintf("task %d", t.id), GPU: uuid, Span: span, Part: p})
}

// taskSpan is a window by the host's clock; by the monitor's where the two clocks
// were not related.
func taskSpan(r *measure.Result, f *clock.Fit, started time.Time) job.Span {
	if r == nil {
		return job.Span{}
	}
	at := func(s measure.Seconds) time.Time {
		if f == nil {
			return started.Add(s.Duration())
		}
		host, _ := f.Host(s)
		return measurement.HostTime(*f, host)
	}
	return job.Span{From: at(r.From), To: at(r.To)}
}
