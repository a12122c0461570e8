package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/spool"
)

// disk is the monitor's disk: it knows how much of each log was synced, and fails
// when it is asked to.
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
	spare   int64         // bytes that a full disk still takes, once the reserve is gone
	state   session.State // of the log's last state record
	lossy   bool          // records were lost: the log is not the whole history
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
		if _, serr := os.Stat(filepath.Join(filepath.Dir(l.path), "reserve")); errors.Is(serr, fs.ErrNotExist) &&
			l.spare == 0 {
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

// Datasync makes all writes so far survive a power cut of this disk.
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

// follow checks the states in the written records against the table of transitions.
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
		l.d.w.moved(filepath.Base(filepath.Dir(l.path)), l.state, capture.Trigger(s.Trigger), s.State)
		l.state = s.State
	}
}

// lastState returns the last state in a log; 0 without one.
func lastState(path string) (last session.State) {
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
				last = s.State
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

// damage is the effect of a crash on the disk.
type damage uint8

const (
	intact       damage = iota // a killed process: the kernel has all that was written
	torn                       // a power cut: some unsynced bytes are lost, some are garbage
	rotten                     // a bit of a log was flipped
	rottenHeader               // a bit of a header was flipped
)

// image copies the spool as a crash would leave it. What the old monitor does
// to its own copy from then on changes nothing.
func (d *disk) image(from, to string, dmg damage, rng *rand.Rand) (rotted bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(from)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return false, err
	}
	for _, e := range entries {
		if d.w.planted.Own(e.Name()) {
			continue
		}
		if e.Name() == ".waits" && dmg == intact {
			if err := duplicate(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return false, err
			}
		}
		if !e.IsDir() {
			continue
		}
		r, err := d.imageOf(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()), dmg, rng)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is being released
			return rotted, err
		}
		rotted = rotted || r
	}
	return rotted, nil
}

// duplicate copies a file that may be gone meanwhile.
func duplicate(from, to string) error {
	b, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644) // #nosec G703 -- into a folder of the campaign's own
}

func (d *disk) imageOf(from, to string, dmg damage, rng *rand.Rand) (rotted bool, err error) {
	files, err := os.ReadDir(from)
	if err != nil {
		return false, err
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return false, err
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err != nil {
			return rotted, err
		}
		if f.Name() == "header.json" && dmg == rottenHeader {
			flip(b, rng)
			rotted = true
		}
		if f.Name() == "log" {
			switch l := d.logs[filepath.Join(from, "log")]; {
			case dmg == torn && l != nil:
				b = tear(b, min(l.durable, int64(len(b))), rng)
			case dmg == rotten && len(b) > 0:
				flip(b, rng)
				rotted = true
			}
		}
		if err := os.WriteFile(filepath.Join(to, f.Name()), b,
			0o644); err != nil { // #nosec G703 -- names of the folder that is copied
			return rotted, fmt.Errorf("campaign: %w", err)
		}
	}
	return rotted, nil
}

func flip(b []byte, rng *rand.Rand) { b[rng.IntN(len(b))] ^= 1 << rng.IntN(8) }

// flipFile flips a bit of a file; it reports whether there was one.
func flipFile(path string, rng *rand.Rand) bool {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return false
	}
	flip(b, rng)
	return os.WriteFile(path, b, 0o600) == nil
}

// tear leaves the bytes that were synced, and of the others as many as a disk
// happens to have written, of which the last may be anything.
func tear(b []byte, durable int64, rng *rand.Rand) []byte {
	left := int64(len(b)) - durable
	if left <= 0 {
		return b
	}
	keep := []int64{0, rng.Int64N(left + 1), left}[rng.IntN(3)]
	b = b[:durable+keep]
	if keep > 0 && rng.IntN(2) == 0 {
		for i := durable + rng.Int64N(keep); i < int64(len(b)); i++ {
			b[i] = byte(rng.Uint32())
		}
	}
	return b
}
