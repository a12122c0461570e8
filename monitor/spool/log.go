package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/marker"
)

const (
	headerName  = "header.json"
	logName     = "log"
	reserveName = "reserve"
	lockName    = ".lock"
	// reserveSize is room for the last words of a capture on a full disk.
	reserveSize = 64 << 10
)

// ErrClosed is returned by a log that takes no more records.
var ErrClosed = errors.New("spool log is closed")

// Options are a spool's knobs; zeros mean the defaults.
type Options struct {
	// SyncEvery and SyncBytes say when written records are made durable in the
	// background: after 250 ms or 8 MiB, whichever comes first.
	SyncEvery time.Duration
	SyncBytes int64
	// Buffer is how many bytes of records may wait for the disk before an append
	// waits too: 16 MiB. It is what a meter's stream survives of a slow disk.
	Buffer int
	// OpenFile opens a log for appending; os.OpenFile when nil. Tests make disks
	// that are full with it.
	OpenFile func(name string) (File, error)
	// Free tells what may still be written on a directory's disk; what the system
	// says when nil.
	Free func(dir string) (int64, error)
	// Log takes a record of every directory that is removed when the spool is read;
	// nil for none.
	Log *slog.Logger
}

// File is what a log writes to. Writes go to its end.
type File interface {
	Write(p []byte) (int, error)
	Truncate(size int64) error
	// Datasync returns when all that was written survives a power cut.
	Datasync() error
	Close() error
}

func (o Options) withDefaults() Options {
	if o.SyncEvery <= 0 {
		o.SyncEvery = 250 * time.Millisecond
	}
	if o.SyncBytes <= 0 {
		o.SyncBytes = 8 << 20
	}
	if o.Buffer <= 0 {
		o.Buffer = 16 << 20
	}
	if o.OpenFile == nil {
		o.OpenFile = openFile
	}
	if o.Free == nil {
		o.Free = freeBytes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

type osFile struct{ *os.File }

func (f osFile) Datasync() error { return datasync(f.File) }

func openFile(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND|noFollow, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Log is one capture's records. One goroutine at a time appends (a lock makes
// others safe, not ordered); any number of Readers read meanwhile. Appending
// copies and returns; a goroutine of the log's own writes, another syncs.
type Log struct {
	header Header
	dir    string
	opt    Options
	file   File // nil in a log that was opened sealed

	size    atomic.Int64                  // bytes of whole records that readers may see
	changed atomic.Pointer[chan struct{}] // closed and replaced when size grows or the log ends

	mu       sync.Mutex
	cond     *sync.Cond // any of the fields below changed
	pending  []byte     // records that wait for the writer
	spare    []byte     // the writer's other buffer
	lender   *Store     // whose buffers these are; nil in a log that was restored
	accepted int64      // bytes appended since the log was created
	written  int64
	synced   int64
	err      error
	closing  bool
	kick     chan struct{} // asks the syncer not to wait for its interval
	stop     chan struct{} // ends the syncer
	tasks    sync.WaitGroup
}

func newLog(dir string, h Header, opt Options, size int64) *Log {
	l := &Log{header: h, dir: dir, opt: opt, accepted: size, written: size, synced: size}
	l.cond = sync.NewCond(&l.mu)
	l.size.Store(size)
	c := make(chan struct{})
	l.changed.Store(&c)
	return l
}

// start opens the log's file for appending and begins to write.
func (l *Log) start() error {
	f, err := l.opt.OpenFile(l.path())
	if err != nil {
		return fmt.Errorf("spool %s: %w", l.header.CaptureID, err)
	}
	l.file, l.kick, l.stop = f, make(chan struct{}, 1), make(chan struct{})
	l.tasks.Go(l.writeLoop)
	l.tasks.Go(l.syncLoop)
	return nil
}

func (l *Log) path() string { return filepath.Join(l.dir, logName) }

// Header returns what was known before the first sample.
func (l *Log) Header() Header { return l.header }

// Size returns the bytes of whole records that were written.
func (l *Log) Size() int64 { return l.size.Load() }

// Changed returns a channel that is closed when there is more to read. Take it
// before looking, so that nothing is missed in between.
func (l *Log) Changed() <-chan struct{} { return *l.changed.Load() }

// Chunk appends a chunk; its columns are copied.
func (l *Log) Chunk(c *chunk.Chunk) error {
	return l.put(chunkRecordSize(c), func(dst []byte) []byte { return appendChunk(dst, c) })
}

// Event appends an event.
func (l *Log) Event(e measure.Event) error { return l.putJSON(RecordEvent, e) }

// Marker appends a marker that was found.
func (l *Log) Marker(f marker.Found) error { return l.putJSON(RecordMarker, finite(f)) }

// State appends a step of the capture's life.
func (l *Log) State(s State) error { return l.putJSON(RecordState, s) }

func (l *Log) putJSON(t RecordType, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("spool %s: %w", l.header.CaptureID, err)
	}
	return l.put(frameSize+len(body), func(dst []byte) []byte { return appendRecord(dst, t, body) })
}

// finite replaces what JSON cannot say: a ratio to nothing is the largest
// number, and what is not known is zero.
func finite(f marker.Found) marker.Found {
	fix := func(v *float64) {
		switch {
		case math.IsNaN(*v):
			*v = 0
		case math.IsInf(*v, 0):
			*v = math.Copysign(math.MaxFloat64, *v)
		}
	}
	for _, v := range []*float64{
		(*float64)(&f.T), (*float64)(&f.U), (*float64)(&f.Begin), (*float64)(&f.End), &f.Correlation,
		(*float64)(&f.PSLR), (*float64)(&f.Step), (*float64)(&f.Tau),
	} {
		fix(v)
	}
	f.Edges = slices.Clone(f.Edges)
	for i := range f.Edges {
		fix((*float64)(&f.Edges[i].T))
		fix((*float64)(&f.Edges[i].U))
	}
	return f
}

// put appends one record of the given size, waiting while the disk is behind.
func (l *Log) put(size int, fill func(dst []byte) []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && !l.closing && len(l.pending) > 0 && len(l.pending)+size > l.opt.Buffer {
		l.cond.Wait()
	}
	if l.err != nil {
		return l.err
	}
	if l.closing || l.file == nil {
		return fmt.Errorf("spool %s: %w", l.header.CaptureID, ErrClosed)
	}
	before := len(l.pending)
	l.pending = fill(slices.Grow(l.pending, size))
	l.accepted += int64(len(l.pending) - before)
	l.cond.Broadcast()
	return nil
}

// Err returns why the log takes no more records, nil while it does.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
