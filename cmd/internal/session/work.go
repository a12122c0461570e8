package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/store"
)

// BenchmarkWork returns work that runs a built-in kernel for a time.
func BenchmarkWork(d gpu.Device, b gpu.Benchmark, length time.Duration) measurement.Work {
	return func(ctx context.Context) ([]gpu.Kernel, error) { return d.RunBenchmark(ctx, b, length) }
}

// PulseWork returns work that alternates a kernel (on) with rest (off) for length, the
// pattern that a sensor which averages over a quarter of the time misreads. The error depends
// on the phase between pulses and sensor, so pulses begin at whole periods of the wall clock
// to make runs repeatable. The work ends with the last pulse.
func PulseWork(d gpu.Device, b gpu.Benchmark, on, off, length time.Duration) measurement.Work {
	return func(ctx context.Context) ([]gpu.Kernel, error) {
		var out []gpu.Kernel
		now := time.Now()
		// next keeps now's monotonic reading: setting the wall clock does not move the pulses.
		next := now.Add(on + off - now.Sub(now.Truncate(on+off)))
		for end := next.Add(length); next.Before(end); next = next.Add(on + off) {
			if err := PauseUntil(ctx, next); err != nil {
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

// PauseUntil blocks until t, or until ctx ends and then returns its cause.
func PauseUntil(ctx context.Context, t time.Time) error {
	if !cli.SleepUntil(ctx, t) {
		return context.Cause(ctx)
	}
	return nil
}

// PTXWork returns work that launches a kernel from a PTX file; an error on a simulated GPU.
func PTXWork(d gpu.Device, launch gpu.PTXLaunch) (measurement.Work, error) {
	r, ok := d.(gpu.PTXRunner)
	if !ok {
		return nil, errors.New("a PTX file needs a real GPU; the simulated one runs the built-in benchmarks")
	}
	return func(ctx context.Context) ([]gpu.Kernel, error) { return r.RunPTX(ctx, launch) }, nil
}

// CommandWork returns work that runs a program. It has our standard streams, except that with
// --json its output goes to standard error. env is added to its environment; tokens and
// passwords of this program are removed from it. When ctx ends, the program gets SIGTERM and
// 5 s later SIGKILL. Its failure is a *measurement.ProgramError with a shell's exit code: the
// program's own, or 128 plus the number of the signal.
func CommandWork(a *cli.App, args []string, env ...string) measurement.Work {
	return func(ctx context.Context) ([]gpu.Kernel, error) {
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Stdin, c.Stdout, c.Stderr = a.In, cli.Raw(a.Out), a.Err
		if a.JSON {
			c.Stdout = a.Err
		}
		c.Env = append(withoutSecrets(os.Environ(), a.DB), append(env, measurement.EnvWork+"="+strconv.Itoa(os.Getpid()))...)
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
		c.WaitDelay = 5 * time.Second
		start := time.Now()
		err := c.Run()
		k := gpu.Kernel{Name: strings.Join(args, " "), Span: gpu.Span{Start: start, End: time.Now()}}
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return []gpu.Kernel{k}, err
		}
		code := exit.ExitCode()
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			code = cli.Signalled + int(s.Signal())
			// The same signal may come here: a terminal sends Ctrl-C to both processes.
			cli.SleepUntil(ctx, time.Now().Add(50*time.Millisecond))
		}
		return []gpu.Kernel{k}, &measurement.ProgramError{Program: args[0], How: exit.String(), Code: code}
	}
}

// withoutSecrets returns env without the user's token for wattmark's services and without the
// password of the task database db. The program's libraries need neither to connect to the
// host agent.
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

// ParseDims parses one to three positive sizes, "16" or "16,4,1"; those missing are 1.
func ParseDims(flag, s string) ([3]uint32, error) {
	out := [3]uint32{1, 1, 1}
	parts := strings.Split(s, ",")
	if len(parts) > 3 {
		return out, cli.Usagef("--%s %q: at most three sizes, as in 16,4,1", flag, s)
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(strings.TrimSpace(p), 10, 32)
		if err != nil || n == 0 {
			return out, cli.Usagef("--%s %q: %q is not a positive whole number", flag, s, p)
		}
		out[i] = uint32(n)
	}
	return out, nil
}

// CountTrue returns the number of flags that are true.
func CountTrue(flags ...bool) int {
	n := 0
	for _, f := range flags {
		if f {
			n++
		}
	}
	return n
}

// BaseName returns the last element of a path.
func BaseName(path string) string { return filepath.Base(path) }

// Span is a flag of a duration, for NotNegative and Positive.
type Span struct {
	Flag  string
	Value time.Duration
}

// NotNegative returns a usage error that names the first negative duration.
func NotNegative(spans ...Span) error {
	for _, s := range spans {
		if s.Value < 0 {
			return cli.Usagef("%s %v: want a time that is not negative", s.Flag, s.Value)
		}
	}
	return nil
}

// Positive returns a usage error that names the first duration that is zero or negative.
func Positive(spans ...Span) error {
	for _, s := range spans {
		if s.Value <= 0 {
			return cli.Usagef("%s %v: want a positive time", s.Flag, s.Value)
		}
	}
	return nil
}

// FiniteFlag returns a usage error for NaN and infinity, which pflag's numbers accept.
func FiniteFlag(flag string, v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return cli.Usagef("%s %v: want a finite number", flag, v)
	}
	return nil
}

// CheckBenchmark returns a usage error unless name is a built-in benchmark.
func CheckBenchmark(flag, name string) error {
	if slices.Contains([]gpu.Benchmark{gpu.BenchHalf, gpu.BenchCompute, gpu.BenchMemory}, gpu.Benchmark(name)) {
		return nil
	}
	return cli.Usagef("%s %q: want half, compute or memory", flag, name)
}

// FindProgram returns an error, with a shell's exit code, if a program cannot be started.
func FindProgram(name string) error {
	_, err := exec.LookPath(name)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return cli.WithCode(cli.ExitNoProgram, fmt.Errorf("%s: no such program; nothing was measured", name))
	}
	return cli.WithCode(cli.ExitNoExec, fmt.Errorf("%s cannot be run: %w; nothing was measured", name, cause(err)))
}

// cause returns the innermost error of a system call, without its name and path.
func cause(err error) error {
	if call, ok := errors.AsType[*exec.Error](err); ok {
		return call.Err
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// Free returns a usage error for an output file that exists or whose folder is missing or not
// writable, so that a command fails before its measurement. Empty names are skipped.
func Free(files ...string) error {
	for _, path := range files {
		if path == "" {
			continue
		}
		if _, err := os.Lstat(path); err == nil {
			return cli.Usagef("%s exists: remove it first or name another file", path)
		}
		folder := filepath.Dir(path)
		if i, err := os.Stat(folder); err != nil || !i.IsDir() {
			return cli.Usagef("%s cannot be written: there is no folder %s", path, folder)
		}
		if err := Writable(folder); err != nil {
			return cli.Usagef("%s cannot be written: %w", path, err)
		}
	}
	return nil
}

// Writable returns an error if a folder is not writable. It creates a file there and removes it.
func Writable(folder string) error {
	f, err := os.CreateTemp(folder, ".wattmark-*")
	if err != nil {
		return cause(err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Appendable returns a usage error for a file that exists and is not writable, or cannot be
// created. An empty name is skipped.
func Appendable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrNotExist):
		return Free(path)
	}
	return cli.Usagef("%s cannot be written: %w", path, cause(err))
}
