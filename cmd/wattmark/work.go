package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/store"
)

// benchmarkWork runs a built-in kernel for a time.
func benchmarkWork(d hostagent.Device, b hostagent.Benchmark, length time.Duration) measurement.Work {
	return func(ctx context.Context) ([]hostagent.Kernel, error) { return d.RunBenchmark(ctx, b, length) }
}

// pulseWork alternates a kernel with rest, the pattern that a sensor which sees
// a quarter of the time gets wrong. How wrong depends on when it looks, so the
// pulses begin at whole periods of the clock: a run can be repeated. It ends with
// the last pulse.
func pulseWork(d hostagent.Device, b hostagent.Benchmark, on, off, length time.Duration) measurement.Work {
	return func(ctx context.Context) ([]hostagent.Kernel, error) {
		var out []hostagent.Kernel
		now := time.Now()
		// On the monotonic clock, or a wall clock that is set would move the pulses.
		next := now.Add(on + off - now.Sub(now.Truncate(on+off)))
		for end := next.Add(length); next.Before(end); next = next.Add(on + off) {
			if err := pauseUntil(ctx, next); err != nil {
				return out, err
			}
			k, err := d.RunBenchmark(ctx, b, on)
			out = append(out, k...)
			if err != nil {
				return out, err
			}
		}
		return out, nil
	}
}

func pauseUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// ptxWork launches a kernel from a PTX file.
func ptxWork(d hostagent.Device, launch hostagent.PTXLaunch) (measurement.Work, error) {
	r, ok := d.(hostagent.PTXRunner)
	if !ok {
		return nil, errors.New("a PTX file needs a real GPU; the simulated one runs the built-in benchmarks")
	}
	return func(ctx context.Context) ([]hostagent.Kernel, error) { return r.RunPTX(ctx, launch) }, nil
}

// commandWork runs a program between the markers. Its output goes where ours
// goes, except that with --json standard output is kept clean. env is added to
// its environment, and this program's own secrets are taken out of it.
func (a *app) commandWork(args []string, env ...string) measurement.Work {
	return func(ctx context.Context) ([]hostagent.Kernel, error) {
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Stdin, c.Stdout, c.Stderr = a.in, a.out, a.err
		if a.json {
			c.Stdout = a.err
		}
		c.Env = append(withoutSecrets(os.Environ(), a.db), append(env, measurement.EnvWork+"="+strconv.Itoa(os.Getpid()))...)
		// The program gets time to end by itself before it is killed.
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
		c.WaitDelay = 5 * time.Second
		start := time.Now()
		err := c.Run()
		k := hostagent.Kernel{Name: strings.Join(args, " "), Span: hostagent.Span{Start: start, End: time.Now()}}
		return []hostagent.Kernel{k}, howItEnded(ctx, args[0], err)
	}
}

// withoutSecrets is an environment for a program that is measured: without the token that
// says who the user is to wattmark's services, and without the password of the task
// database db. The libraries of the program need neither to reach the host agent.
func withoutSecrets(env []string, db string) []string {
	var out []string
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case name == "WATTMARK_TOKEN", name == "PGPASSWORD" && store.OnServer(db):
		case name == "WATTMARK_DB":
			out = append(out, name+"="+store.Conceal(value))
		default:
			out = append(out, entry)
		}
	}
	return out
}

// sameSignal is how long this process waits for a signal that ended its program, which
// a terminal sends to both.
const sameSignal = 50 * time.Millisecond

// howItEnded says how a program ended that did not end well.
func howItEnded(ctx context.Context, program string, err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	code := exit.ExitCode()
	if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		code = signalled + int(s.Signal())
		select {
		case <-ctx.Done():
		case <-time.After(sameSignal):
		}
	}
	return &measurement.ProgramError{Program: program, How: exit.String(), Code: code}
}

// parseDims reads 1 to 3 sizes, "16" or "16,4,1".
func parseDims(flag, s string) ([3]uint32, error) {
	out := [3]uint32{1, 1, 1}
	parts := strings.Split(s, ",")
	if len(parts) > 3 {
		return out, withCode(exitUsage, fmt.Errorf("--%s %q: at most three sizes, as in 16,4,1", flag, s))
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(strings.TrimSpace(p), 10, 32)
		if err != nil || n == 0 {
			return out, withCode(exitUsage, fmt.Errorf("--%s %q: %q is not a positive whole number", flag, s, p))
		}
		out[i] = uint32(n)
	}
	return out, nil
}

// whoami is the login name, and the holder shown to others: user@host.
func whoami() (login, holder string) {
	login = "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		login = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return login, login + "@" + host
}

func countTrue(flags ...bool) int {
	n := 0
	for _, f := range flags {
		if f {
			n++
		}
	}
	return n
}

// firstOf returns the first string that is not empty.
func firstOf(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}

func baseName(path string) string { return filepath.Base(path) }
