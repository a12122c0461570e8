package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/kernels"
)

// check refuses work that cannot be done as asked, before a bench is taken for it: of the
// flags that commands which measure have in common, and the program that args names.
func (f *runFlags) check(args []string) error {
	if err := notNegative(span{"--warm-up", f.warmUp}, span{"--wait", f.wait}, span{"--pulse", f.pulse}); err != nil {
		return err
	}
	if f.lease != 0 && (f.lease < time.Second || f.lease > 24*time.Hour) {
		return withCode(exitUsage, fmt.Errorf("--lease %v: want 1s to 24h", f.lease))
	}
	switch {
	case len(args) > 0:
		return findProgram(args[0])
	case f.benchmark != "":
		return checkBenchmark("--benchmark", f.benchmark)
	case f.ptx != "":
		return f.checkPTX()
	}
	return nil
}

// span is a flag that holds a time.
type span struct {
	flag  string
	value time.Duration
}

func notNegative(spans ...span) error {
	for _, s := range spans {
		if s.value < 0 {
			return withCode(exitUsage, fmt.Errorf("%s %v: want a time that is not negative", s.flag, s.value))
		}
	}
	return nil
}

func positive(spans ...span) error {
	for _, s := range spans {
		if s.value <= 0 {
			return withCode(exitUsage, fmt.Errorf("%s %v: want a positive time", s.flag, s.value))
		}
	}
	return nil
}

// finiteFlag refuses NaN and infinity, which flags of numbers take.
func finiteFlag(flag string, v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return withCode(exitUsage, fmt.Errorf("%s %v: want a finite number", flag, v))
	}
	return nil
}

func checkBenchmark(flag, name string) error {
	if slices.Contains([]hostagent.Benchmark{hostagent.BenchHalf, hostagent.BenchCompute, hostagent.BenchMemory}, hostagent.Benchmark(name)) {
		return nil
	}
	return withCode(exitUsage, fmt.Errorf("%s %q: want half, compute or memory", flag, name))
}

// checkPTX reads the file, and looks for the kernel and its parameters in it.
func (f *runFlags) checkPTX() error {
	if strings.HasPrefix(f.gpu, simPrefix) || strings.HasPrefix(f.gpus, simPrefix) {
		return withCode(exitUsage, errors.New("--ptx needs a real GPU; the simulated one runs the built-in benchmarks"))
	}
	if f.repeat < 1 {
		return withCode(exitUsage, fmt.Errorf("--repeat %d: want 1 at least", f.repeat))
	}
	l, err := f.ptxLaunch()
	if err != nil {
		return err
	}
	e, err := kernels.Find(l.Source, l.Entry)
	if err == nil {
		err = e.CheckLaunch(len(l.Buffers), len(l.Scalars))
	}
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("--ptx %s: %w", f.ptx, err))
	}
	return nil
}

// findProgram refuses a program that cannot be started.
func findProgram(name string) error {
	_, err := exec.LookPath(name)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return withCode(exitNoProgram, fmt.Errorf("%s: no such program; nothing was measured", name))
	}
	return withCode(exitNoExec, fmt.Errorf("%s cannot be run: %w; nothing was measured", name, cause(err)))
}

// cause is what went wrong, without the call and the path.
func cause(err error) error {
	var call *exec.Error
	if errors.As(err, &call) {
		return call.Err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// free refuses files that are there already or cannot be made, before anything is
// measured for them; empty names are no files.
func free(files ...string) error {
	for _, path := range files {
		if path == "" {
			continue
		}
		if _, err := os.Lstat(path); err == nil {
			return withCode(exitUsage, fmt.Errorf("%s exists: remove it first or name another file", path))
		}
		folder := filepath.Dir(path)
		if i, err := os.Stat(folder); err != nil || !i.IsDir() {
			return withCode(exitUsage, fmt.Errorf("%s cannot be written: there is no folder %s", path, folder))
		}
		if err := writable(folder); err != nil {
			return withCode(exitUsage, fmt.Errorf("%s cannot be written: %w", path, err))
		}
	}
	return nil
}

// writable makes a file in a folder and removes it.
func writable(folder string) error {
	f, err := os.CreateTemp(folder, ".wattmark-*")
	if err != nil {
		return cause(err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// appendable refuses a file that cannot be added to; it need not be there.
func appendable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrNotExist):
		return free(path)
	}
	return withCode(exitUsage, fmt.Errorf("%s cannot be written: %w", path, cause(err)))
}
