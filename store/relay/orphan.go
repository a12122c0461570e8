package relay

import (
	"context"
	"errors"

	"wattmark/store"
)

// A capture has one task in a store: its host's, or the one that its monitor filed while
// no host had said more. Both may come, in any order, also at once to two programs of one
// store; so each looks for the other once it has stored its own.

// here reports whether a task need not be stored: it is here whole, or it is a monitor's
// and its host's has all of its samples.
func (t *taker) here(ctx context.Context, end *End) (id store.TaskID, known bool, err error) {
	id, known, err = t.DB.Whole(ctx, end.Identity.stored())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return 0, false, err
	}
	if known || !end.Orphan {
		return id, known, nil
	}
	of, err := t.DB.OfBenchCapture(ctx, end.Bench, end.Capture)
	for _, x := range of {
		if x.Tags[TagOrphan] == "" && x.State != store.Running && x.Chunks >= end.Chunks {
			return x.ID, true, err
		}
	}
	return 0, false, err
}

// settle removes a monitor's task of a capture of which the host's is here, and has no
// fewer samples: a host that lost some must not take away what the monitor kept.
func (t *taker) settle(ctx context.Context, end *End) error {
	if end.Capture == "" {
		return nil
	}
	of, err := t.DB.OfBenchCapture(ctx, end.Bench, end.Capture)
	if err != nil {
		return err
	}
	var most uint64
	hosts := false
	for _, x := range of {
		if x.Tags[TagOrphan] == "" {
			hosts, most = true, max(most, x.Chunks)
		}
	}
	for _, x := range of {
		if !hosts || x.Tags[TagOrphan] == "" || x.Chunks > most {
			continue
		}
		if end.by != anyone && x.User != end.User { // of another user's capture
			continue
		}
		switch err := t.DB.DeleteTask(ctx, x.ID); {
		case errors.Is(err, store.ErrPinned):
			continue // somebody wants to keep it
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return err
		}
		t.log.Info("a capture's host has said what it is of: the task that its monitor filed is removed", "task", int64(x.ID), "capture", end.Capture)
	}
	return nil
}
