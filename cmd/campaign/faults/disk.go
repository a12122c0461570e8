package faults

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"wattmark/monitor/capture"
	"wattmark/monitor/spool"
)

// disk is the monitor's disk: it knows what of each log was synced, and fails
// when it is told to.
type disk struct {
	w *world

	mu      sync.Mutex
	logs    map[string]*logFile // by path
	full    bool
	badSync int
	badWrit int
}

// logFile is a capture's log on the disk.
type logFile struct {
	d       *disk
	path    string
	f       *os.File
	size    int64
	durable int64
	spare   int64         // what may still be written to a full disk, once the reserve is gone
	state   capture.State // as the log's last state record says
	lossy   bool          // records were lost: what the log tells is not all that was
}

func newDisk(w *world) *disk { return &disk{w: w, logs: map[string]*logFile{}} }

// open is spool.Options.OpenFile.
func (d *disk) open(path string) (spool.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &logFile{d: d, path: path, f: f, size: info.Size(), durable: info.Size()}
	l.state = lastState(path)
	d.logs[path] = l
	return l, nil
}

func (l *logFile) Write(p []byte) (int, error) {
	l.d.w.at(StepSpoolWrite)
	l.d.w.monitorGate.wait(context.Background())
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	n, err := len(p), error(nil)
	switch {
	case l.d.badWrit > 0:
		l.d.badWrit--
		n, err = len(p)/2, syscall.EIO
	case l.d.full:
		if _, serr := os.Stat(filepath.Join(filepath.Dir(l.path), "reserve")); errors.Is(serr, fs.ErrNotExist) && l.spare == 0 {
			l.spare = 64 << 10
		}
		if int64(n) > l.spare {
			n, err = int(min(l.spare, int64(len(p)/2))), syscall.ENOSPC
		}
		l.spare -= int64(n)
	}
	m, werr := l.f.Write(p[:n])
	l.size += int64(m)
	l.lossy = l.lossy || m < len(p)
	l.follow(p[:m])
	return m, errors.Join(werr, err)
}

func (l *logFile) Truncate(size int64) error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if err := l.f.Truncate(size); err != nil {
		return err
	}
	l.size, l.durable = size, min(l.durable, size)
	return nil
}

// Datasync makes what was written survive a power cut, as this disk counts it.
func (l *logFile) Datasync() error {
	l.d.w.at(StepSpoolSync)
	l.d.w.monitorGate.wait(context.Background())
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if l.d.badSync > 0 {
		l.d.badSync--
		return syscall.EIO
	}
	if l.d.w.broken != AckBeforeSync {
		l.durable = l.size
	}
	return nil
}

func (l *logFile) Close() error { return l.f.Close() }

// follow holds the states in what is written against the table of transitions.
func (l *logFile) follow(b []byte) {
	for len(b) > 0 {
		f, body, rest, err := spool.ParseRecord(b)
		if err != nil {
			return // a torn write
		}
		if b = rest; f.Type != spool.RecordState {
			continue
		}
		var s spool.State
		if json.Unmarshal(body, &s) != nil {
			continue
		}
		if l.lossy {
			return
		}
		l.d.w.moved(filepath.Base(filepath.Dir(l.path)), l.state, capture.Trigger(s.Trigger), capture.State(s.Code))
		l.state = capture.State(s.Code)
	}
}

// lastState reads the last state that a log tells; 0 without.
func lastState(path string) (last capture.State) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for len(b) > 0 {
		f, body, rest, err := spool.ParseRecord(b)
		if err != nil {
			break
		}
		if b = rest; f.Type == spool.RecordState {
			var s spool.State
			if json.Unmarshal(body, &s) == nil {
				last = capture.State(s.Code)
			}
		}
	}
	return last
}

func (d *disk) set(f func(*disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}
