package api

import (
	"context"
	"errors"
	"fmt"

	"wattmark/api/auth"
	"wattmark/store"
)

// mine refuses to change a task of somebody else to all who are less than over.
func (s *Service) mine(ctx context.Context, id store.TaskID, over auth.Role) error {
	if auth.May(ctx, over) == nil {
		return nil
	}
	t, err := s.db.TaskResult(ctx, id, 0)
	if err != nil {
		return err
	}
	return auth.Own(ctx, fmt.Sprintf("task %d", id), t.User, over)
}

// deleteOf deletes all tasks of a user, who must be the caller.
func (s *Service) deleteOf(ctx context.Context, user string, o store.DeleteOptions) (store.Deleted, error) {
	if err := auth.Own(ctx, "what "+user+" measured", user, auth.Admin); err != nil {
		return store.Deleted{}, err
	}
	return s.db.DeleteByUser(ctx, user, o)
}

// deleteNamed deletes the tasks of a name: all of them, or the caller's. One after
// another, as others may measure under that name meanwhile.
func (s *Service) deleteNamed(ctx context.Context, name string, o store.DeleteOptions) (out store.Deleted, err error) {
	if auth.May(ctx, auth.Admin) == nil {
		return s.db.DeleteByName(ctx, name, o)
	}
	if err := auth.May(ctx, auth.Measurer); err != nil {
		return out, err
	}
	who, _ := auth.From(ctx)
	q := store.ListQuery{Filter: store.Filter{User: who.Name}, Limit: 1000}
	for more := true; more; more = q.After != nil {
		page, err := s.db.List(ctx, q)
		if err != nil {
			return out, err
		}
		for _, t := range page.Tasks {
			if t.Name != name || t.User != who.Name {
				continue
			}
			switch err := s.db.DeleteTasks(ctx, []store.TaskID{t.ID}, o); {
			case errors.Is(err, store.ErrPinned):
				out.Pinned = append(out.Pinned, t.ID)
			case err != nil:
				return out, err
			default:
				out.Tasks++
			}
		}
		q.After = page.Next
	}
	if out.Tasks == 0 && len(out.Pinned) == 0 {
		return out, fmt.Errorf("%w: %s has no task of this name; those of others need the role %v", auth.ErrDenied, who.Name, auth.Admin)
	}
	return out, nil
}
