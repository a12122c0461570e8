package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"wattmark/hostagent/measurement"
)

// asked is why a program ends: a signal.
type asked struct{ signal os.Signal }

func (a asked) Error() string { return a.name() + " received" }

func (a asked) name() string {
	switch a.signal {
	case os.Interrupt:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	case syscall.SIGPIPE:
		return "SIGPIPE"
	}
	return a.signal.String()
}

// code is the exit code of what a signal ended, as a shell has it.
func (a asked) code() int {
	if s, ok := a.signal.(syscall.Signal); ok {
		return signalled + int(s)
	}
	return exitFailed
}

// Is lets a cause that is a signal pass for a cancellation, which it is.
func (asked) Is(target error) bool { return target == context.Canceled }

// hangups says whether a service takes SIGHUP for a reload; the context of main holds it.
type hangups struct{ reload atomic.Bool }

type hangupsKey struct{}

// untilAsked ends a context with the first SIGINT, SIGTERM or SIGHUP, and keeps the
// signal as its cause; so does a SIGPIPE, once nobody reads the standard output or error
// any more, as behind a pipe into head. A SIGHUP or SIGPIPE that the parent process has
// ignored, as nohup does, stays ignored, and a SIGHUP that a service takes for a reload
// (onHangups) ends nothing.
func untilAsked(parent context.Context) (context.Context, func()) {
	h := new(hangups)
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, hangupsKey{}, h))
	c := make(chan os.Signal, 4)
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGPIPE} {
		if !signal.Ignored(s) {
			signals = append(signals, s)
		}
	}
	signal.Notify(c, signals...)
	go func() {
		for {
			select {
			case s := <-c:
				if s == syscall.SIGHUP && h.reload.Load() || s == syscall.SIGPIPE && !unread() {
					continue // a SIGPIPE may also be a connection's that broke: its error says so
				}
				cancel(asked{s})
			case <-ctx.Done():
			}
			return
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

// interrupted is the error of a command that a signal ended: one line with what was kept,
// and the exit code of the signal. Errors that say no more than that are left out; nil
// where ctx ended for another reason, or not.
func interrupted(ctx context.Context, kept string) error {
	var a asked
	if !errors.As(context.Cause(ctx), &a) {
		return nil
	}
	return withCode(a.code(), interruption{a, kept})
}

// interruption is what interrupted says.
type interruption struct {
	asked
	kept string
}

func (i interruption) Error() string {
	if i.kept == "" {
		return fmt.Sprintf("interrupted by %s", i.name())
	}
	return fmt.Sprintf("interrupted by %s: %s", i.name(), i.kept)
}

// silently tells an error that nobody wants to read: all that went wrong is that nobody
// reads the output any more.
func silently(err error) bool {
	var i interruption
	return errors.As(err, &i) && i.signal == syscall.SIGPIPE && i.kept == ""
}

// said makes an error of a command what the user is told: of one that is no more than a
// signal, that alone. That nobody reads the standard output is SIGPIPE, as a shell has it.
func said(ctx context.Context, err error) error {
	var told interruption
	var out *fs.PathError
	if errors.As(err, &out) && out.Path == os.Stdout.Name() && errors.Is(out, syscall.EPIPE) {
		var program *measurement.ProgramError
		if errors.As(err, &program) {
			return program
		}
		gone := asked{syscall.SIGPIPE}
		return withCode(gone.code(), interruption{asked: gone})
	}
	if err == nil || errors.As(err, &told) || !errors.Is(err, context.Canceled) {
		return err
	}
	if i := interrupted(ctx, ""); i != nil {
		return i
	}
	return err
}
