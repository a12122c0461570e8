package spool

import (
	"cmp"
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

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"golang.org/x/sys/unix"
)

// ErrClosed is returned by a log that takes no more records.
var ErrClosed = errors.New("spool log is closed")

// Options tune a spool; zeros mean the defaults.
type Options struct {
	// SyncEvery and SyncBytes bound the records that a power cut can lose: after 250 ms
	// or 8 MiB, whichever comes first, they are synced in the background.
	SyncEvery time.Duration
	SyncBytes int64
	// Buffer is the bytes of records that may wait for the disk before an append waits
	// too: 16 MiB. A meter's stream survives a slow disk for as long.
	Buffer int
	// OpenFile opens a log for appending; nil for os.OpenFile. Tests simulate full
	// disks with it.
	OpenFile func(name string) (File, error)
	// Free returns the bytes that may still be written on a directory's disk; nil for
	// the system's answer.
	Free func(dir string) (int64, error)
	// Log records each directory that is removed when the spool is read; nil for none.
	Log *slog.Logger
}

// File is the file under a log. Writes go to its end.
type File interface {
	Write(p []byte) (int, error)
	Truncate(size int64) error
	// Datasync returns when everything written survives a power cut.
	Datasync() error
	Close() error
}

func (o Options) withDefaults() Options {
	o.SyncEvery = cmp.Or(max(o.SyncEvery, 0), 250*time.Millisecond)
	o.SyncBytes, o.Buffer = cmp.Or(max(o.SyncBytes, 0), 8<<20), cmp.Or(max(o.Buffer, 0), 16<<20)
	if o.OpenFile == nil {
		o.OpenFile = openFile
	}
	if o.Free == nil {
		o.Free = freeBytes
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

type osFile struct{ *os.File }

// Datasync makes the file's bytes and length durable, without its times.
func (f osFile) Datasync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

func openFile(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND|noFollow, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// buffers are a log's two: records gather in one while the other is written.
type buffers struct{ pending, spare []byte }

// newBuffers returns two of the given capacity, in memory already: a buffer that grew
// with the need would grow while the disk stalls, when copying it holds up the meter,
// and leave several times its size behind.
func newBuffers(size int) buffers {
	const page = 4096
	touched := func() []byte {
		b := make([]byte, size)
		for i := 0; i < size; i += page {
			b[i] = 0 // the system maps a page at its first write
		}
		return b[:0]
	}
	return buffers{touched(), touched()}
}

// Log is one capture's records. Appending copies and returns; one goroutine of the log
// writes, another syncs. A lock makes concurrent appends safe, not ordered. Any number
// of Readers read meanwhile.
type Log struct {
	header session.Header
	dir    string
	opt    Options
	file   File // nil in a log that was opened sealed

	size    atomic.Int64                  // bytes of whole records that readers may see
	changed atomic.Pointer[chan struct{}] // closed and replaced when size grows or the log ends
	prefix  *prefix

	mu       sync.Mutex
	cond     *sync.Cond // any of the fields below changed
	buffers             // pending waits for the writer
	lender   *Store     // of the buffers; nil in a log that was restored
	accepted int64      // bytes appended since the log was created
	written  int64
	synced   int64
	err      error
	closing  bool
	kick     chan struct{} // asks the syncer not to wait for its interval
	stop     chan struct{} // ends the syncer
	tasks    sync.WaitGroup
}

// newLog returns a log of size bytes that is not yet open for appending.
func newLog(dir string, h session.Header, opt Options, size int64) *Log {
	l := &Log{header: h, dir: dir, opt: opt, prefix: &prefix{}, accepted: size, written: size, synced: size}
	l.prefix.now.Store(&place{})
	l.cond = sync.NewCond(&l.mu)
	l.size.Store(size)
	l.changed.Store(new(make(chan struct{})))
	return l
}

// borrow takes the buffers of a log that was closed, or new ones.
func (l *Log) borrow(s *Store) {
	l.lender = s
	select {
	case l.buffers = <-s.idle:
	default:
		l.buffers = newBuffers(s.opt.Buffer)
	}
}

// giveBack returns the buffers. One pair is kept: a bench takes one capture at a time.
func (l *Log) giveBack() {
	l.mu.Lock()
	b, s := buffers{l.pending[:0], l.spare[:0]}, l.lender
	l.buffers, l.lender = buffers{}, nil
	l.mu.Unlock()
	if s == nil {
		return
	}
	select {
	case s.idle <- b:
	default:
	}
}

// start opens the log's file for appending and begins to write.
func (l *Log) start() error {
	f, err := l.opt.OpenFile(l.path())
	if err != nil {
		return l.fault(err)
	}
	l.file, l.kick, l.stop = f, make(chan struct{}, 1), make(chan struct{})
	l.tasks.Go(l.writeLoop)
	l.tasks.Go(l.syncLoop)
	return nil
}

func (l *Log) path() string { return filepath.Join(l.dir, logName) }

// fault names the capture in an error.
func (l *Log) fault(err error) error { return fmt.Errorf("spool %s: %w", l.header.CaptureID, err) }

// Header returns the header, known before the first sample.
func (l *Log) Header() session.Header { return l.header }

// Size returns the bytes of whole records that were written.
func (l *Log) Size() int64 { return l.size.Load() }

// Changed returns a channel that is closed when there is more to read. Take it before
// reading, so that no change is missed in between.
func (l *Log) Changed() <-chan struct{} { return *l.changed.Load() }

// Chunk appends a chunk; its columns are copied. It blocks while the buffer is full.
func (l *Log) Chunk(c *chunk.Chunk) error {
	return l.put(chunkRecordSize(c), func(dst []byte) []byte { return appendChunk(dst, c) })
}

// Event appends an event.
func (l *Log) Event(e measure.Event) error { return l.putJSON(RecordEvent, e) }

// Marker appends a marker that was found.
func (l *Log) Marker(f marker.Found) error { return l.putJSON(RecordMarker, finite(f)) }

// State appends a step of the capture's life.
func (l *Log) State(s State) error { return l.putJSON(RecordState, s) }

// putJSON appends a record whose body is v as JSON.
func (l *Log) putJSON(t RecordType, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return l.fault(err)
	}
	return l.put(frameSize+len(body), func(dst []byte) []byte { return appendRecord(dst, t, body) })
}

// finite replaces values that JSON lacks: ±Inf, a ratio to nothing, becomes the largest
// number, and NaN, unknown, becomes zero.
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
		return l.fault(ErrClosed)
	}
	before := len(l.pending)
	l.pending = fill(slices.Grow(l.pending, size))
	l.accepted += int64(len(l.pending) - before)
	l.cond.Broadcast()
	return nil
}

// Err returns the reason why the log takes no more records, nil while it does.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// writeLoop writes appended records, as many at once as have gathered.
func (l *Log) writeLoop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.pending) == 0 && !l.closing {
			l.cond.Wait()
		}
		if len(l.pending) == 0 {
			return
		}
		batch := l.pending
		l.pending = l.spare[:0]
		l.mu.Unlock()
		n, err := l.file.Write(batch)
		l.mu.Lock()
		l.spare = batch[:0]
		if err != nil {
			l.fail(batch[:n], err)
			continue
		}
		l.publish(n)
		if l.written-l.synced >= l.opt.SyncBytes {
			l.Hurry()
		}
	}
}

// publish lets readers see n more bytes. The lock is held.
func (l *Log) publish(n int) {
	l.written += int64(n)
	l.size.Store(l.written)
	l.cond.Broadcast()
	l.wake()
}

// wake wakes the readers that wait on Changed.
func (l *Log) wake() {
	close(*l.changed.Swap(new(make(chan struct{}))))
}

// fail notes a write that failed after some bytes: whole records among them stay, the
// torn one is cut off, pending ones are lost. The lock is held.
func (l *Log) fail(partial []byte, err error) {
	whole := wholeRecords(partial)
	if terr := l.file.Truncate(l.written + int64(whole)); terr != nil {
		// The torn tail stays behind the bytes that readers see; opening the log cuts it.
		err = fmt.Errorf("%w (and the torn record could not be cut off: %w)", err, terr)
	}
	l.err = l.fault(err)
	l.pending = l.pending[:0]
	l.publish(whole)
	l.accepted = l.written
}

// wholeRecords returns the length of the whole records at the head of b.
func wholeRecords(b []byte) (n int) {
	for {
		f, err := ParseFrame(b[n:])
		if err != nil || len(b)-n < frameSize+f.Body {
			return n
		}
		n += frameSize + f.Body
	}
}

// Rescue makes a log that failed take records again, for the last ones of its capture:
// the reserve is given back to the disk.
func (l *Log) Rescue() error {
	if err := removeIfThere(filepath.Join(l.dir, reserveName)); err != nil {
		return l.fault(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = nil
	return nil
}

// syncLoop makes records durable in the background. An error stays in the log, and the
// next append returns it.
func (l *Log) syncLoop() {
	tick := time.NewTicker(l.opt.SyncEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		case <-l.kick:
		}
		l.mu.Lock()
		behind := l.written > l.synced && l.err == nil
		l.mu.Unlock()
		if behind {
			_ = l.datasync()
		}
	}
}

// datasync makes the bytes written until now durable.
func (l *Log) datasync() error {
	upTo := l.size.Load()
	err := l.file.Datasync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.err == nil {
			l.err = l.fault(fmt.Errorf("sync: %w", err))
		}
		return l.err
	}
	l.synced = max(l.synced, upTo)
	l.cond.Broadcast()
	return nil
}

// Hurry asks for a sync soon, without waiting for it: a Sync that follows then finds
// less to do.
func (l *Log) Hurry() { backoff.Nudge(l.kick) }

// Sync returns when all records appended before are written and survive a power cut, or
// with the error that prevents it.
func (l *Log) Sync() error {
	l.mu.Lock()
	target := l.accepted
	for l.written < target && l.err == nil {
		l.cond.Wait()
	}
	err, done := l.err, l.synced >= target
	l.mu.Unlock()
	if err != nil || done {
		return err
	}
	return l.datasync()
}

// Close syncs the log and ends its goroutines. The log can be read on. It is safe to
// call twice.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	err := l.Sync()
	l.mu.Lock()
	first := !l.closing
	l.closing = true
	l.cond.Broadcast()
	l.mu.Unlock()
	if !first {
		return err
	}
	close(l.stop)
	l.tasks.Wait()
	l.giveBack()
	l.wake()
	_ = os.Remove(filepath.Join(l.dir, reserveName)) // the last records are written
	if cerr := l.file.Close(); err == nil {
		err = cerr
	}
	return err
}
