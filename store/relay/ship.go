package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"wattmark/store"
)

// Shipper publishes all tasks of a database, those that are there and those that come.
type Shipper struct {
	*Publisher
	// Release tells a monitor that a capture need not be kept; nil where captures are
	// released by others.
	Release func(ctx context.Context, monitor, capture string) error
	// Every is how often to look for tasks; 2 s when zero.
	Every time.Duration
	// Shipped is told of each task; nil for silence.
	Shipped func(Published)
	Log     *slog.Logger

	given   map[store.TaskID]time.Time // up, until then: they could not be read
	release time.Time                  // not before
}

// How long a task that cannot be read, and a monitor that does not answer, are left alone.
const (
	givenUpFor  = 10 * time.Minute
	awayFor     = time.Minute
	askMonitors = 10 * time.Second
)

// Run publishes until the context ends.
func (s *Shipper) Run(ctx context.Context) error {
	for {
		if err := s.All(ctx); err != nil && ctx.Err() == nil {
			s.log().Warn("could not publish all tasks", "error", err)
		}
		if pause(ctx, max(s.Every, 2*time.Second)) != nil {
			return nil
		}
	}
}

func (s *Shipper) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}

// atOnce is how many tasks are looked up at a time.
const atOnce = 256

// All publishes what there is, and lets go of the captures that were kept for it. A task
// that cannot be read is told of and passed over for a while.
func (s *Shipper) All(ctx context.Context) error {
	if s.given == nil {
		s.given = map[store.TaskID]time.Time{}
	}
	maps.DeleteFunc(s.given, func(_ store.TaskID, until time.Time) bool { return time.Now().After(until) })
	var errs []error
	for {
		ids, err := s.DB.Untagged(ctx, TagReplicated, atOnce+len(s.given))
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		ids = slices.DeleteFunc(ids, func(id store.TaskID) bool { return !s.given[id].IsZero() })
		if len(ids) == 0 {
			break
		}
		for _, id := range ids {
			if err := s.one(ctx, id); err != nil {
				if ctx.Err() != nil {
					return errors.Join(append(errs, err)...)
				}
				s.given[id] = time.Now().Add(givenUpFor)
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(append(errs, s.letGo(ctx))...)
}

func (s *Shipper) one(ctx context.Context, id store.TaskID) error {
	p, err := s.Replicate(ctx, id)
	if err == nil && s.Shipped != nil {
		s.Shipped(p)
	}
	return err
}

// Hold notes that a monitor keeps a task's capture until the streams have the task.
func (p *Publisher) Hold(ctx context.Context, id store.TaskID, monitor string) error {
	return p.DB.SetTags(ctx, id, map[string]string{TagHeld: monitor}, nil)
}

// LetGo notes that it need not any more.
func (p *Publisher) LetGo(ctx context.Context, id store.TaskID) error {
	return p.DB.SetTags(ctx, id, nil, []string{TagHeld})
}

// letGo releases the captures of tasks that the streams have.
func (s *Shipper) letGo(ctx context.Context) error {
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
			continue
		}
		if err == nil {
			err = s.releaseOne(ctx, held[id], t.CaptureID)
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

func (s *Shipper) releaseOne(ctx context.Context, monitor, capture string) error {
	ctx, cancel := context.WithTimeout(ctx, askMonitors)
	defer cancel()
	return s.Release(ctx, monitor, capture)
}
