package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ebitengine/purego"

	"wattmark/hostagent"
	"wattmark/hostagent/cuda"
	"wattmark/hostagent/monitorclient"
	"wattmark/hostagent/nvml"
	"wattmark/monitor/discover"
	"wattmark/store"
)

// probes are all that the doctor sees of the world, so that tests can hold it.
type probes struct {
	askBench     func(ctx context.Context, address string) (monitorclient.Bench, error)
	askHost      func(ctx context.Context, address string) (version string, err error)
	bindable     func(address string) error // nil, errInUse, errNotLocal, or another
	ports        func() ([]discover.Port, error)
	tryBench     func(ctx context.Context, file string) (found string, notes []string, err error)
	cards        func() ([]nvml.Card, error)
	nvmlVersion  func() string
	gpus         func() ([]hostagent.Info, error)
	loadable     func(library string) bool
	library      func() string
	processes    func() []string
	getenv       func(string) string
	glob         func(string) ([]string, error)
	exists       func(string) bool
	nearest      func(dir string) string // the directory, or the nearest above it that is there
	tryDisk      func(ctx context.Context, dir string) (diskState, error)
	readDatabase func(ctx context.Context, path string) (databaseState, error)
	readClock    func() (clockState, error)
	stepWatch    func() (moved func() time.Duration)
	readLimits   func() (limitState, error)
}

var (
	errInUse    = errors.New("another program listens there")
	errNotLocal = errors.New("not an address of this machine")
)

// askFor is how long a peer may take to answer.
const askFor = 5 * time.Second

func systemProbes() probes {
	return probes{
		askBench: askBenchOnce, askHost: askHostOnce, bindable: bindable, tryBench: openOnce,
		ports: func() ([]discover.Port, error) { return discover.Ports(os.DirFS("/")) },
		cards: nvml.List, nvmlVersion: nvml.LibraryVersion, gpus: cuda.List, loadable: loadable, library: findLibrary,
		processes: processNames, getenv: os.Getenv, glob: filepath.Glob,
		exists:  func(path string) bool { _, err := os.Stat(path); return err == nil },
		nearest: nearest, tryDisk: tryDisk, readDatabase: readDatabase, readClock: readClock, stepWatch: stepWatch, readLimits: readLimits,
	}
}

func askBenchOnce(ctx context.Context, address string) (monitorclient.Bench, error) {
	c, err := dialMeter(ctx, address, monitorclient.Options{Version: version(), Call: 2 * askFor})
	if err != nil {
		return monitorclient.Bench{}, err
	}
	b, err := c.AskBench(ctx)
	return b, errors.Join(err, c.Close())
}

func askHostOnce(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	more, err := trust(ctx, address)
	if err != nil {
		return "", err
	}
	return askVersion(ctx, address, "wattmark.v1.TaskService", more...)
}

// bindable tells whether a service could listen at an address.
func bindable(address string) error {
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, syscall.EADDRINUSE):
		return errInUse
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return errNotLocal
	}
	return err
}

// openOnce opens a bench file's instrument and closes it again.
func openOnce(ctx context.Context, file string) (found string, notes []string, err error) {
	b, closeBench, err := openBench(benchFlags{file: file})
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*askFor)
	defer cancel()
	setup, notes, err := b.Open(ctx)
	if err != nil {
		return "", nil, errors.Join(err, closeBench())
	}
	id := b.Instrument.Identity()
	return strings.TrimSpace(firstOf(id.Model, id.Kind)+" "+id.Serial) + " opens, " + recordsText(&setup), notes, closeBench()
}

// loadable tells whether a library is there: a path by its file, a name by the
// linker's own search.
func loadable(name string) bool {
	if filepath.IsAbs(name) {
		return isFile(name)
	}
	h, err := purego.Dlopen(name, purego.RTLD_LAZY|purego.RTLD_LOCAL)
	if err != nil {
		return false
	}
	_ = purego.Dlclose(h)
	return true
}

// processNames are the names of all processes that can be seen.
func processNames() (names []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil {
			names = append(names, strings.TrimSpace(string(text)))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func nearest(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	for {
		if i, err := os.Stat(abs); err == nil && i.IsDir() || abs == filepath.Dir(abs) {
			return abs
		}
		abs = filepath.Dir(abs)
	}
}

const (
	diskTrial = 16 << 20
	fsyncs    = 9
)

// tryDisk writes a file, and removes it.
func tryDisk(ctx context.Context, dir string) (s diskState, err error) {
	s.Kind = fileSystem(dir)
	if s.Free, err = diskFree(dir); err != nil {
		return s, err
	}
	f, err := os.CreateTemp(dir, ".wattmark-doctor-*")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	var took []time.Duration
	for range fsyncs {
		begun := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return s, err
		}
		if err := f.Sync(); err != nil {
			return s, err
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	s.Fsync = took[len(took)/2]
	if s.Free < 4*diskTrial {
		return s, nil
	}
	buf := make([]byte, 1<<20)
	for i := range buf { // what a disk cannot compress away
		buf[i] = byte(i * i >> 7)
	}
	begun := time.Now()
	for range diskTrial / len(buf) {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		if _, err := f.Write(buf); err != nil {
			return s, err
		}
	}
	if err := f.Sync(); err != nil {
		return s, err
	}
	s.Speed = diskTrial / max(time.Since(begun).Seconds(), 1e-9)
	return s, nil
}

// checkAtMost bounds the databases that SQLite's own check reads through.
const checkAtMost = 512 << 20

func readDatabase(ctx context.Context, path string) (s databaseState, err error) {
	i, err := os.Stat(path)
	if err != nil {
		return s, err
	}
	s.Size = i.Size()
	if s.Size == 0 {
		return s, fmt.Errorf("%s is empty: %w", path, fs.ErrNotExist)
	}
	if w, err := os.Stat(path + "-wal"); err == nil {
		s.WAL = w.Size()
	}
	db, err := store.OpenReadOnly(ctx, path)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, io.Closer(db).Close()) }()
	if err := db.SQL().QueryRowContext(ctx, "PRAGMA user_version").Scan(&s.Schema); err != nil {
		return s, err
	}
	if s.Size <= checkAtMost {
		if err := db.SQL().QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&s.Check); err != nil {
			return s, err
		}
	}
	users, err := db.Users(ctx)
	if err != nil {
		return s, err
	}
	for _, u := range users {
		s.Tasks += int(u.Tasks)
	}
	open, err := db.Unfinished(ctx)
	s.Unfinished = len(open)
	return s, err
}
