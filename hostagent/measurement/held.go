package measurement

import (
	"context"
	"errors"

	"wattmark/store"
)

// Held is a monitor whose captures are not released here: each is noted with its task,
// whose database's daemon or relay publishes it to a cluster, and releases it then.
type Held struct {
	Monitor
	DB HeldStore
}

// HeldStore is what Held asks of the task database. *store.DB is one.
type HeldStore interface {
	OfCapture(ctx context.Context, monitor, capture string) (store.TaskID, error)
	SetTags(ctx context.Context, id store.TaskID, set map[string]string, remove []string) error
}

// Release notes that the monitor keeps a capture. One that became no task is released.
func (h Held) Release(ctx context.Context, capture string) error {
	id, err := h.DB.OfCapture(ctx, h.Address(), capture)
	if errors.Is(err, store.ErrNotFound) {
		return h.Monitor.Release(ctx, capture)
	}
	if err != nil {
		return err
	}
	return h.DB.SetTags(ctx, id, map[string]string{store.TagHeld: h.Address()}, nil)
}
