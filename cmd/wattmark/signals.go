package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// asked is why a program ends: a signal.
type asked struct{ signal os.Signal }

func (a asked) Error() string { return a.signal.String() + " signal received" }

// Is lets a cause that is a signal pass for a cancellation, which it is.
func (asked) Is(target error) bool { return target == context.Canceled }

// untilAsked ends a context with the first SIGINT or SIGTERM, and keeps the
// signal as its cause.
func untilAsked(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-c:
			cancel(asked{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(c)
		cancel(nil)
	}
}

// askedPolitely tells whether a context ended with SIGTERM, as a service manager
// sends it: what runs may come to its end.
func askedPolitely(ctx context.Context) bool {
	a, ok := context.Cause(ctx).(asked)
	return ok && a.signal == syscall.SIGTERM
}
