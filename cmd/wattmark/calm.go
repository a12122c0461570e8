package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// mostTold is how many lines a second strangers may cause in a log.
const mostTold = 5

// calm returns a log for trouble that strangers cause: who connects over and over and
// says nothing sensible cannot fill the disk with it. How many lines were left out is
// told with the next.
func calm(log *slog.Logger) *slog.Logger {
	return slog.New(calmed{log.Handler(), &calmness{}})
}

type calmness struct {
	mu    sync.Mutex
	since time.Time
	told  int
	left  int
}

type calmed struct {
	slog.Handler
	c *calmness
}

// Handle is part of slog.Handler.
func (h calmed) Handle(ctx context.Context, r slog.Record) error {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if r.Time.Sub(h.c.since) >= time.Second {
		h.c.since, h.c.told = r.Time, 0
	}
	if h.c.told == mostTold {
		h.c.left++
		return nil
	}
	h.c.told++
	if h.c.left > 0 {
		r.AddAttrs(slog.Int("lines_left_out", h.c.left))
		h.c.left = 0
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs is part of slog.Handler.
func (h calmed) WithAttrs(attrs []slog.Attr) slog.Handler {
	return calmed{h.Handler.WithAttrs(attrs), h.c}
}

// WithGroup is part of slog.Handler.
func (h calmed) WithGroup(name string) slog.Handler { return calmed{h.Handler.WithGroup(name), h.c} }
