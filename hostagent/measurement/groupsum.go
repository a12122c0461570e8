package measurement

import (
	"context"
	"errors"

	"wattmark/measure/group"
	"wattmark/store"
)

// GroupReader is what reading a group asks of the task database. *store.DB is one.
type GroupReader interface {
	Group(ctx context.Context, id store.GroupID) (store.Group, error)
	Task(ctx context.Context, id store.TaskID) (store.Task, error)
}

// GroupResult is a group with its tasks as they stand now.
type GroupResult struct {
	store.Group
	// Tasks has one entry a member, nil where it has no task.
	Tasks []*store.Task
	// State is Complete where all members are measured completely, Running while
	// one runs, Failed where the work of one failed, else Incomplete.
	State store.State
	// Summed are the members that Sum holds: those with a result.
	Summed []int
	Sum    group.Sum
}

// ReadGroup reads a group with its tasks, and adds up the results in use.
func ReadGroup(ctx context.Context, db GroupReader, id store.GroupID) (GroupResult, error) {
	g, err := db.Group(ctx, id)
	if err != nil {
		return GroupResult{}, err
	}
	r := GroupResult{Group: g, Tasks: make([]*store.Task, len(g.Members)), State: store.Complete}
	var parts []group.Part
	for i, m := range g.Members {
		if m.Task == 0 {
			r.worsen(store.Incomplete)
			continue
		}
		t, err := db.Task(ctx, m.Task)
		if errors.Is(err, store.ErrNotFound) { // deleted just now
			r.worsen(store.Incomplete)
			continue
		}
		if err != nil {
			return GroupResult{}, err
		}
		r.Tasks[i] = &t
		switch t.State {
		case store.Complete:
		case store.Running:
			r.State = store.Running
		case store.Failed:
			r.worsen(store.Failed)
		default:
			r.worsen(store.Incomplete)
		}
		if t.Result != nil {
			r.Summed = append(r.Summed, i)
			parts = append(parts, group.Part{Instrument: t.Instrument, Setup: &t.Setup, Result: t.Result})
		}
	}
	r.Sum = group.Of(parts)
	return r, nil
}

// worsen never hides that a member still runs, or that its work failed.
func (r *GroupResult) worsen(s store.State) {
	if r.State != store.Running && r.State != store.Failed {
		r.State = s
	}
}
