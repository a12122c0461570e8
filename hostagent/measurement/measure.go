package measurement

import (
	"context"
	"errors"

	"wattmark/measure"
	"wattmark/store"
)

var errNotYet = errors.New("measurement: not built yet")

// Measure makes one measurement and returns its task. The task exists, with a
// state and a reason, also when an error is returned, unless its id is zero.
func Measure(ctx context.Context, cfg Config, work Work) (store.TaskID, error) {
	return 0, errNotYet
}

// Recover finishes the tasks that an earlier run of this host left unfinished:
// the rest of their samples is fetched where their monitor still has it; else
// they end incomplete with the reason. It returns the tasks that it ended.
func Recover(ctx context.Context, db Store, dial Dial) ([]store.TaskID, error) {
	return nil, errNotYet
}

// Retrim gives a task a window by hand, in device time, and computes its result anew.
func Retrim(ctx context.Context, db Store, id store.TaskID, w Window) error { return errNotYet }

var _ measure.Seconds
