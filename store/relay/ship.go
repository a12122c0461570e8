package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/store"
)

// Shipper publishes all tasks of a database, present and future.
type Shipper struct {
	*Publisher
	// Release lets a monitor remove a capture; nil where others release captures.
	Release func(ctx context.Context, monitor, capture string) error
	// Every is the time between two looks for tasks; 2 s when zero.
	Every time.Duration
	// Shipped is called with each task; it may be nil.
	Shipped func(Published)
	Log     *slog.Logger

	given   map[store.TaskID]time.Time // up, until then: not readable
	release time.Time                  // not before
}

// Pauses after a task that cannot be read and a monitor that does not answer, and the bound of
// one request to a monitor.
const (
	givenUpFor  = 10 * time.Minute
	awayFor     = time.Minute
	askMonitors = 10 * time.Second
)

// Run publishes until the context ends.
func (s *Shipper) Run(ctx context.Context) error {
	for {
		if err := s.All(ctx); err != nil && ctx.Err() == nil {
			cmp.Or(s.Log, slog.New(slog.DiscardHandler)).Warn("could not publish all tasks", "error", err)
		}
		if backoff.Sleep(ctx, max(s.Every, 2*time.Second)) != nil {
			return nil
		}
	}
}

// atOnce is the number of tasks looked up at a time.
const atOnce = 256

// All publishes the tasks that are there, and releases the captures that were kept for them. A
// task that cannot be read is among the errors, and passed over for givenUpFor.
func (s *Shipper) All(ctx context.Context) error {
	if s.given == nil {
		s.given = map[store.TaskID]time.Time{}
	}
	maps.DeleteFunc(s.given, func(_ store.TaskID, until time.Time) bool { return time.Now().After(until) })
	var errs []error
	for {
		// As many more as are given up: those come back in the answer and are left out.
		ids, err := s.DB.Untagged(ctx, TagReplicated, atOnce+len(s.given))
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		ids = slices.DeleteFunc(ids, func(id store.TaskID) bool { return !s.given[id].IsZero() })
		if len(ids) == 0 {
			break
		}
		for _, id := range ids {
			p, err := s.Replicate(ctx, id)
			if err == nil && s.Shipped != nil {
				s.Shipped(p)
			}
			if err != nil {
				if ctx.Err() != nil {
					return errors.Join(append(errs, err)...)
				}
				// A task that cannot be read must not keep all others back.
				s.given[id] = time.Now().Add(givenUpFor)
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(append(errs, s.letGo(ctx))...)
}

// Hold notes that a monitor keeps a task's capture until the streams have the task.
// letGo releases the capture and removes the tag.
func (p *Publisher) Hold(ctx context.Context, id store.TaskID, monitor string) error {
	return p.DB.SetTags(ctx, id, map[string]string{TagHeld: monitor}, nil)
}

// LetGo notes that it no longer does.
func (p *Publisher) LetGo(ctx context.Context, id store.TaskID) error {
	return p.DB.SetTags(ctx, id, nil, []string{TagHeld})
}

// letGo releases the captures of tasks that the streams have.
func (s *Shipper) letGo(ctx context.Context) error {
	// A monitor that is away is not asked again for awayFor.
	if s.Release == nil || time.Now().Before(s.release) {
		return nil
	}
	held, err := s.DB.Tagged(ctx, TagHeld)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(held)) {
		t, err := s.DB.Task(ctx, id)
		if err == nil && t.Tags[TagReplicated] == "" {
			// Not in the streams yet: its capture stays at the monitor.
			continue
		}
		if err == nil {
			asking, cancel := context.WithTimeout(ctx, askMonitors)
			err = s.Release(asking, held[id], t.CaptureID)
			cancel()
		}
		if err == nil {
			err = s.LetGo(ctx, id)
		}
		if err != nil {
			s.release = time.Now().Add(awayFor)
			errs = append(errs, fmt.Errorf("release the capture of task %d at %s: %w", id, held[id], err))
		}
	}
	return errors.Join(errs...)
}
