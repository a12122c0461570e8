//go:build cgo

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/hostagent/daemon"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/store"
)

// The default places; those of the program wattmark.
const (
	defaultMonitor = "127.0.0.1:" + wire.MonitorPort
	defaultDB      = "power.db"
	leastLease     = time.Second
)

// request is a measurement as a program asks for it.
type request struct {
	user, name                      string
	host, monitor, database, device string
	socket                          string // of the daemon that host means; empty for none
	streams                         []uintptr
	warmUp, wait, lease             time.Duration
	noSensor                        bool
	config                          *config.Client // of the client
}

// fill takes unset fields from the environment. The client configuration's monitor and
// database are for programs without a daemon: a daemon has its own.
func (q *request) fill() error {
	if q.name == "" {
		return fmt.Errorf("%w: a measurement needs a name", errArgument)
	}
	if q.lease != 0 && q.lease < leastLease {
		return fmt.Errorf("%w: a lease of %v: at least %v, or a busy moment loses the bench", errArgument, q.lease,
			leastLease)
	}
	var err error
	if q.config, err = config.OpenClient(""); err != nil {
		return fmt.Errorf("%w: %w", errArgument, err)
	}
	// A simulated GPU may be named by WATTMARK_GPU or the client configuration, too: "sim:" before the socket of
	// wattmark emulate --gpu. Empty means the context that is current, else the first GPU.
	if s := q.setting("gpu"); q.device == "" && strings.HasPrefix(s, sim.Prefix) {
		q.device = s
	}
	if q.device != "" && len(q.streams) > 0 {
		return fmt.Errorf("%w: streams belong to the current context: leave device out", errArgument)
	}
	q.monitor = cmp.Or(q.monitor, os.Getenv("WATTMARK_MONITOR"))
	q.database = cmp.Or(q.database, os.Getenv("WATTMARK_DB"))
	q.user = cmp.Or(q.user, q.setting("user"))
	if u, err := user.Current(); q.user == "" && err == nil {
		q.user = u.Username
	}
	q.user = cmp.Or(q.user, "unknown")
	q.socket, err = daemon.FindSocket(q.host)
	return err
}

// setting returns a value of the environment or of the client configuration; empty for none.
func (q *request) setting(key string) string {
	v, _ := q.config.Value(key)
	return v
}

func program() string { return filepath.Base(os.Args[0]) }

// session is a measurement with all that it needs. Without a daemon database and
// monitor are the library's own.
type session struct {
	m      *measurement.Bracket
	dev    device
	device string // as it was asked for
	// simulated is the sensor of a simulated GPU, else nil.
	simulated gpu.PowerSensor
	path      string // of the database
	task      func(context.Context, store.TaskID) (store.Brief, error)
	closes    []func() error
}

// device is a GPU with or without a context: *cuda.Device, or sim.RemoteDevice.
type device interface {
	gpu.Device
	gpu.Opener
}

// findDevice finds the GPU, and does nothing there yet. It must run on the thread whose
// context is meant. simulated is the sensor of a simulated GPU, else nil.
func findDevice(selector string, streams []uintptr) (dev device, simulated gpu.PowerSensor, err error) {
	if socket, ok := strings.CutPrefix(selector, sim.Prefix); ok {
		d, sensor, err := sim.FindRemote(socket, nil)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", cuda.ErrNoDevice, err)
		}
		return d, sensor, nil
	}
	var current uintptr
	if selector == "" {
		current, err = cuda.CurrentContext()
	}
	var d *cuda.Device
	switch {
	case err != nil:
	case current != 0:
		d, err = cuda.FindCaller(cuda.Caller{Context: current, Streams: streams})
	case selector == "" && len(streams) > 0:
		err = fmt.Errorf("%w: streams are named, and no context is current on this thread", errArgument)
	default:
		d, err = findOwn(selector)
	}
	if err != nil {
		return nil, nil, err // d may be a nil pointer
	}
	return d, nil, nil
}

// findOwn finds a GPU for a context of the library's own. Where NVML does not identify which one
// is meant, its identity is known when it is open.
func findOwn(selector string) (*cuda.Device, error) {
	info := gpu.Info{}
	found, ok, err := measurement.LocateGPUs(cmp.Or(selector, "0"))
	if err != nil {
		return nil, fmt.Errorf("device: %w", err)
	}
	if ok && len(found) == 1 {
		info, selector = found[0], found[0].UUID
	}
	return cuda.Find(selector, info), cuda.Loads()
}

// open gets all that is needed and starts the capture; once the bench is held, the GPU is
// made ready, and the work that is queued already is waited for.
func open(q request) (*session, error) {
	if err := q.fill(); err != nil {
		return nil, err
	}
	ctx, s := context.Background(), &session{device: q.device}
	var err error
	if s.dev, s.simulated, err = findDevice(q.device, q.streams); err != nil {
		return nil, err
	}
	s.closes = append(s.closes, s.dev.Close)
	host, _ := os.Hostname()
	cfg := measurement.Config{
		Device: s.dev, Name: q.name, User: q.user, Holder: q.user + "@" + cmp.Or(host, "unknown"), // for others' eyes
		WarmUp: q.warmUp, Wait: q.wait, Lease: q.lease, Provenance: whence(ctx), Owner: store.Owner(),
	}
	cfg.Open = func(ctx context.Context) (gpu.PowerSensor, error) { return nil, s.openDevice(ctx) }
	if q.socket != "" {
		err = s.through(ctx, q, cfg)
	} else {
		err = s.embed(ctx, q, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// openDevice gets the GPU ready, and waits for the work that the program has queued there.
func (s *session) openDevice(ctx context.Context) error {
	if err := s.dev.Open(ctx); err != nil {
		return err
	}
	t, ok := s.dev.(measurement.Timer)
	if !ok {
		return nil // a simulated GPU has no queue
	}
	_, err := t.Settle()
	return err
}

// embed measures here.
func (s *session) embed(ctx context.Context, q request, cfg measurement.Config) error {
	db, err := openDatabase(ctx, cmp.Or(q.database, q.setting("db"), defaultDB))
	if err != nil {
		return err
	}
	s.path, s.task = db.Path(), func(ctx context.Context, id store.TaskID) (store.Brief, error) {
		t, err := db.Task(ctx, id)
		return t.Brief(), err
	}
	s.closes = append(s.closes, db.Close)
	address := wire.WithPort(cmp.Or(q.monitor, q.setting("monitor"), defaultMonitor), wire.MonitorPort)
	trust := auth.Client{
		CA: q.setting("tls_ca"), Cert: q.setting("tls_cert"), Key: q.setting("tls_key"), TokenFile: q.setting("token_file"),
	}
	known, err := trust.FromEnv().DialOptions(address)
	if err != nil {
		return err
	}
	mon, err := monitorclient.Dial(address, monitorclient.Options{Dial: known})
	if err != nil {
		return err
	}
	s.closes = append(s.closes, mon.Close)
	cfg.DB, cfg.Monitor = db, mon
	cfg.Open = func(ctx context.Context) (gpu.PowerSensor, error) {
		if err := s.openDevice(ctx); err != nil {
			return nil, err
		}
		if s.dev.Info().Simulated {
			return s.sensor(q), nil
		}
		return s.sensor(q), measurement.WholeGPU(s.dev.Info())
	}
	if c := os.Getenv("WATTMARK_CLUSTER"); c != "" && c != "none" { // the library cannot publish; who can, releases
		cfg.Monitor = measurement.Held{Monitor: mon, DB: db}
	}
	s.m, err = measurement.StartBracket(ctx, cfg, measurement.Measure)
	return err
}

// through measures through the host daemon.
func (s *session) through(ctx context.Context, q request, cfg measurement.Config) error {
	host, err := daemon.Dial(q.socket)
	if err != nil {
		return err
	}
	s.closes = append(s.closes, host.Close)
	d, err := host.Describe(ctx)
	if err != nil {
		return err
	}
	if err := agree(q, d); err != nil {
		return err
	}
	link := host.Measurement(q.noSensor)
	s.path, s.task = d.Database, func(context.Context, store.TaskID) (store.Brief, error) { return link.Task(), nil }
	s.m, err = measurement.StartBracket(ctx, cfg, link.Measure)
	return err
}

// agree refuses a program that wants another monitor or database than the daemon's:
// its results would not be where it looks for them.
func agree(q request, d daemon.Description) error {
	const remedy = "leave it out, or measure without the daemon (WATTMARK_HOST=none)"
	if q.monitor != "" && q.monitor != d.Monitor {
		return fmt.Errorf("%w: monitor %s is asked for, and wattmark host at %s measures with %s: %s", errArgument,
			q.monitor, q.socket, d.Monitor, remedy)
	}
	if q.database != "" && !sameFile(q.database, d.Database) {
		return fmt.Errorf("%w: database %s is asked for, and wattmark host at %s writes to %s: %s", errArgument,
			q.database, q.socket, d.Database, remedy)
	}
	return nil
}

// sameFile compares the files or, where one does not exist yet, the paths; b is absolute.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX == nil && errY == nil {
		return os.SameFile(x, y)
	}
	abs, err := filepath.Abs(a)
	return err == nil && abs == b
}

// opening lets the threads of a program open the database one after another:
// the first may have to make it.
var opening sync.Mutex

// openDatabase opens a task database for writing and makes one that does not exist; errors
// wrap errDatabase.
func openDatabase(ctx context.Context, path string) (*store.DB, error) {
	opening.Lock()
	defer opening.Unlock()
	db, err := store.Open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDatabase, err)
	}
	return db, nil
}

// sensor is the GPU's own; without one the meter measures all the same.
func (s *session) sensor(q request) gpu.PowerSensor {
	if q.noSensor {
		return nil
	}
	if s.simulated != nil {
		return s.simulated
	}
	d, err := nvml.Open(s.dev.Info().PCIBusID)
	if err != nil {
		return nil
	}
	s.closes = append(s.closes, d.Close)
	return d
}

// close closes all that was opened, the last first.
func (s *session) close() error {
	var err error
	for _, c := range slices.Backward(s.closes) {
		err = errors.Join(err, c())
	}
	s.closes = nil
	return err
}

// finish ends the work and waits for the result.
func (s *session) finish() (store.Brief, error) {
	first := s.m.End()
	t, then := s.result()
	// The consequence of an error often repeats it.
	if first != nil && then != nil && strings.Contains(first.Error(), then.Error()) {
		return t, first
	}
	return t, errors.Join(first, then)
}

// result waits for the task and closes all. A task that lacks something is an
// error beside it.
func (s *session) result() (store.Brief, error) {
	id, err := s.m.Wait()
	var t store.Brief
	if id != 0 {
		var readErr error
		if t, readErr = s.task(context.Background(), id); readErr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", errDatabase, readErr))
		}
	}
	if err == nil && t.State != store.Complete {
		err = fmt.Errorf("%w: task %d: %s", errIncomplete, t.ID, t.Reason)
	}
	return t, errors.Join(err, s.close())
}

// abandon gives a measurement up.
func (s *session) abandon() error {
	_, err := s.m.Cancel()
	return errors.Join(err, s.close())
}

// whence is where the program runs. It is found out once for each directory that the
// program measures in, before a capture: asking git takes milliseconds.
// WATTMARK_PROVENANCE=none keeps nothing, =redact of the command line only the
// program's name.
func whence(ctx context.Context) *store.Provenance {
	how := os.Getenv("WATTMARK_PROVENANCE")
	if how == "none" {
		return nil
	}
	dir, _ := os.Getwd()
	found.Lock()
	defer found.Unlock()
	p, known := found.by[dir]
	if !known {
		p = measurement.CollectProvenance(ctx, measurement.WithRevision("libwattmark"), measurement.CommandLine(how == "redact"))
		found.by[dir] = p
	}
	return p
}

var found = struct {
	sync.Mutex
	by map[string]*store.Provenance
}{by: map[string]*store.Provenance{}}
