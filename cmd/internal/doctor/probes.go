package doctor

import (
	"cmp"
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
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/run"
	sessioncmd "github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/amdsmi"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/hostagent/machine"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/discover"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sys/unix"
)

// probes are all accesses of the doctor to the machine and the network; tests
// replace them.
type probes struct {
	askBench     func(ctx context.Context, address string) (session.Bench, error)
	askRails     func(ctx context.Context, address string) ([]session.RailValue, error)
	askHost      func(ctx context.Context, address string) (version string, err error)
	bindable     func(address string) error // nil, errInUse, errNotLocal, or another
	ports        func() ([]discover.Port, error)
	tryBench     func(context.Context, sessioncmd.BenchFlags) (found string, notes []string, err error)
	serviceBench func() error // the fault of the bench file of the installed monitor, or nil
	cards        func() ([]nvml.Card, error)
	nvmlVersion  func() string
	amdCards     func() ([]amdsmi.Card, error)
	amdVersion   func() string
	gpus         func() ([]gpu.Info, error)
	loadable     func(library string) bool
	library      func() string
	processes    func() []string
	getenv       func(string) string
	glob         func(string) ([]string, error)
	exists       func(string) bool
	nearest      func(dir string) string // the directory, or the nearest above it that is there
	tryDisk      func(ctx context.Context, dir string) (diskState, error)
	readDatabase func(ctx context.Context, path string) (databaseState, error)
	readClock    func() (machine.ClockState, error)
	stepWatch    func() (moved func() time.Duration)
	readLimits   func() (limitState, error)
}

// Errors of bindable.
var (
	errInUse    = errors.New("another program listens there")
	errNotLocal = errors.New("not an address of this machine")
)

// askFor bounds a call to a peer.
const askFor = 5 * time.Second

// systemProbes returns the probes of the real machine.
func systemProbes() probes {
	return probes{
		askBench: askBenchOnce, askRails: askRailsOnce, askHost: askHostOnce, bindable: bindable, tryBench: OpenOnce,
		ports:    func() ([]discover.Port, error) { return discover.Ports(os.DirFS("/")) },
		amdCards: amdsmi.List, amdVersion: amdsmi.Version,
		cards: nvml.List, nvmlVersion: nvml.LibraryVersion, gpus: cuda.List, loadable: loadable,
		library:      run.FindLibrary,
		serviceBench: func() error { return serviceBench(daemon.ConfigDir + roleMonitor + ".yaml") },
		processes:    processNames, getenv: os.Getenv, glob: filepath.Glob,
		exists:  func(path string) bool { _, err := os.Stat(path); return err == nil },
		nearest: nearest, tryDisk: tryDisk, readDatabase: readDatabase,
		readClock: machine.ReadClock, stepWatch: stepWatch,
		readLimits: readLimits,
	}
}

// askBenchOnce connects to a monitor, requests its bench, and closes the
// connection.
func askBenchOnce(ctx context.Context, address string) (session.Bench, error) {
	c, err := cli.DialMeter(ctx, address, monitorclient.Options{Version: cli.Version(), Call: 2 * askFor})
	if err != nil {
		return session.Bench{}, err
	}
	b, err := c.AskBench(ctx)
	return b, errors.Join(err, c.Close())
}

// askRailsOnce returns an average of each rail, of a free bench too. It waits for askFor at most.
func askRailsOnce(ctx context.Context, address string) (rails []session.RailValue, err error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	c, err := cli.DialMeter(ctx, address, monitorclient.Options{Version: cli.Version()})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	enough := errors.New("enough")
	err = c.Watch(ctx, session.WatchOptions{Every: askFor / 100, Idle: true}, func(m session.Moment) error {
		rails = m.Rails
		return enough
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return rails, err
}

// askHostOnce returns a host's version, "" if it does not send one.
func askHostOnce(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	more, err := cli.Trust(ctx, address)
	if err != nil {
		return "", err
	}
	return daemon.AskVersion(ctx, address, "wattmark.v1.TaskService", more...)
}

// bindable tries to listen at an address and returns nil, errInUse, errNotLocal or
// the error.
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

// OpenOnce opens a bench's instrument, reads its identity and setup, and
// closes it.
func OpenOnce(ctx context.Context, f sessioncmd.BenchFlags) (found string, notes []string, err error) {
	b, closeBench, err := sessioncmd.OpenBench(f)
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
	return strings.TrimSpace(cmp.Or(id.Model, id.Kind)+" "+id.Serial) + " opens, " + sessioncmd.RecordsText(&setup),
		notes, closeBench()
}

// serviceBench reads the bench file that a monitor's configuration file names. It returns the file's
// fault; nil where there is no such file, or none that this user may read.
func serviceBench(file string) error {
	name := config.Value(file, "bench")
	if name == "" {
		return nil
	}
	_, err := bench.Load(name)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// loadable reports whether a library exists: an absolute path by its file, a bare
// name through the dynamic linker's search.
func loadable(name string) bool {
	if filepath.IsAbs(name) {
		return run.IsFile(name)
	}
	h, err := purego.Dlopen(name, purego.RTLD_LAZY|purego.RTLD_LOCAL)
	if err != nil {
		return false
	}
	_ = purego.Dlclose(h)
	return true
}

// processNames returns the names of all visible processes, sorted, each once.
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

// nearest returns dir, or its nearest existing parent.
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

// diskTrial is the size of the file that tryDisk writes.
const diskTrial = 16 << 20

// tryDisk measures a disk with a temporary file, which it removes. Without room
// for the file four times over only fsync is measured.
func tryDisk(ctx context.Context, dir string) (s diskState, err error) {
	s.Kind = out.FileSystem(dir)
	var fs unix.Statfs_t
	if err = unix.Statfs(dir, &fs); err != nil {
		return s, err
	}
	s.Free = fs.Bavail * uint64(fs.Bsize)
	f, err := os.CreateTemp(dir, ".wattmark-doctor-*")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	var took []time.Duration
	for range 9 {
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
	// Do not fill a disk that is nearly full.
	if s.Free < 4*diskTrial {
		return s, nil
	}
	buf := make([]byte, 1<<20)
	for i := range buf { // not all zeros, which some disks compress
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

// readDatabase opens a database read-only and returns its state: of one on a server or a host the number of tasks
// alone. An empty file is as absent.
func readDatabase(ctx context.Context, path string) (s databaseState, err error) {
	if store.OnServer(path) {
		users, err := (&cli.App{DB: path}).Users(ctx)
		return databaseState{Tasks: tasksOf(users)}, err
	}
	i, err := os.Stat(path)
	if err != nil {
		return s, err
	}
	s.Size = i.Size()
	// SQLite would report an empty file as a valid database without tables.
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
	if s.Size <= 512<<20 { // bytes: the check reads every page
		if err := db.SQL().QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&s.Check); err != nil {
			return s, err
		}
	}
	users, err := db.Users(ctx)
	if err != nil {
		return s, err
	}
	s.Tasks = tasksOf(users)
	open, err := db.Unfinished(ctx)
	s.Unfinished = len(open)
	return s, err
}

func tasksOf(users []store.UserTasks) (n int) {
	for _, u := range users {
		n += int(u.Tasks)
	}
	return n
}

// stepWatch starts to compare CLOCK_REALTIME with CLOCK_MONOTONIC; the returned
// function gives the movement of the former against the latter since then.
func stepWatch() func() time.Duration {
	apart := func() time.Duration {
		var best, least time.Duration = 0, time.Hour
		// Of five readings the shortest bounds the error best: the real time lies between
		// two monotonic ones.
		for range 5 {
			var m1, r, m2 unix.Timespec
			if unix.ClockGettime(unix.CLOCK_MONOTONIC, &m1) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &r) != nil ||
				unix.ClockGettime(unix.CLOCK_MONOTONIC, &m2) != nil {
				return 0
			}
			if took := time.Duration(m2.Nano() - m1.Nano()); took < least {
				least, best = took, time.Duration(r.Nano()-(m1.Nano()+m2.Nano())/2)
			}
		}
		return best
	}
	before := apart()
	return func() time.Duration { return apart() - before }
}

// readLimits returns the soft limits.
func readLimits() (limitState, error) {
	var files, locked unix.Rlimit
	if err := errors.Join(unix.Getrlimit(unix.RLIMIT_NOFILE, &files),
		unix.Getrlimit(unix.RLIMIT_MEMLOCK, &locked)); err != nil {
		return limitState{}, err
	}
	return limitState{Files: files.Cur, Locked: locked.Cur}, nil
}
