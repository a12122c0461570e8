package trial

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// The watched disk emulates power cuts under an SQLite database. It stands between SQLite and its files, records
// writes and syncs, and copies the database as it may lie on the disk after a cut at any moment.
//
//   - Writes before a file's last sync are in the copy.
//   - Of each later write, every sector of 512 bytes is present, absent or garbage, in any order. This holds for the
//     database and for its log, also while the log is folded into the database.
//   - A file that was created and never synced may be missing. A deleted file may be back, unless the deletion synced
//     its folder.
//   - Bytes beside those of a cut write are unchanged: SQLite relies on that too (SQLITE_POWERSAFE_OVERWRITE).

// Disk is the disk of one database. Its methods may be called from any goroutine.
type Disk struct {
	o    DiskOptions
	path string

	mu    sync.Mutex
	files map[string]*file  // by path
	gone  map[string][]byte // content of deleted files that may come back
	held  []*os.File        // read for copies, and open until Forget
}

// DiskOptions are the faults of a disk.
type DiskOptions struct {
	// Write and Sync are called before each write or sync of any of its files and return its fault. They run on
	// SQLite's goroutine without a lock; each may be nil.
	Write, Sync func() DiskFault
	// NoSync makes syncs succeed without effect, as a disk that ignores them or synchronous=OFF does.
	NoSync bool
}

// DiskFault is the failure of a write or sync.
type DiskFault uint8

// The faults.
const (
	NoFault     DiskFault = iota
	NoSpace               // no space left
	DeviceError           // device error
)

// file is one of the database's files.
type file struct {
	size    int64
	made    bool // created and never synced: its name may be lost
	pending []op // not synced, oldest first
}

// op is a write or truncation that was not synced.
type op struct {
	off      int64
	old, new []byte // new is nil for a truncation to off
	oldSize  int64
}

// SectorSize is the number of bytes that a disk writes whole or not at all.
const SectorSize = 512

// disks are the watched disks by the path of their database.
var disks sync.Map

// WatchDisk records all writes to the database at a path until Forget. No connection may have it open yet.
func WatchDisk(path string, o DiskOptions) (*Disk, error) {
	if err := register(); err != nil {
		return nil, err
	}
	d := &Disk{o: o, path: filepath.Clean(path), files: map[string]*file{}, gone: map[string][]byte{}}
	disks.Store(d.path, d)
	return d, nil
}

// Forget ends the watch. Call it after the database is closed.
func (d *Disk) Forget() {
	disks.Delete(d.path)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.held {
		_ = f.Close()
	}
	d.held = nil
}

// suffixes of the files that must survive. The shared memory (-shm) need not: SQLite rebuilds it from the log.
var suffixes = []string{"", "-wal", "-journal"}

// diskOf returns the watched disk that holds a file of SQLite's; nil for none.
func diskOf(path string) *Disk {
	for _, s := range suffixes {
		if base, ok := strings.CutSuffix(path, s); ok {
			if d, watched := disks.Load(base); watched {
				return d.(*Disk)
			}
		}
	}
	return nil
}

// durable returns a file as of its last sync: its present content with the pending writes undone, newest first.
func (f *file) durable(now []byte) []byte {
	b := append([]byte(nil), now...)
	for i := len(f.pending) - 1; i >= 0; i-- {
		o := f.pending[i]
		b = resize(b, max(o.oldSize, o.off))
		copy(b[o.off:], o.old)
		b = b[:o.oldSize]
	}
	return b
}

func resize(b []byte, n int64) []byte {
	if int64(len(b)) < n {
		return append(b, make([]byte, n-int64(len(b)))...)
	}
	return b[:n]
}

// cut returns a file as a power cut may leave it, by one of four models of a disk's write cache.
func (f *file) cut(now []byte, rng *rand.Rand) []byte {
	b := f.durable(now)
	ops := f.pending
	switch rng.IntN(4) {
	case 0: // nothing was written
		return b
	case 1: // all was written, without a sync
		return append([]byte(nil), now...)
	case 2: // written in order, up to a torn one
		n := rng.IntN(len(ops) + 1)
		for _, o := range ops[:n] {
			b = o.apply(b, func() fate { return arrived })
		}
		if n < len(ops) {
			left := rng.IntN(len(ops[n].new)/SectorSize + 2)
			b = ops[n].apply(b, func() fate {
				if left--; left >= 0 {
					return arrived
				}
				return []fate{absent, garbage}[rng.IntN(2)]
			})
		}
	default: // written in any order
		for _, o := range ops {
			b = o.apply(b, func() fate { return []fate{absent, arrived, arrived, garbage}[rng.IntN(4)] })
		}
	}
	return b
}

// fate is the state of a sector after the cut.
type fate uint8

const (
	absent fate = iota
	arrived
	garbage
)

// apply repeats a write on b, each sector with the next fate.
func (o op) apply(b []byte, next func() fate) []byte {
	if o.new == nil {
		if next() == arrived && o.off < int64(len(b)) {
			return b[:o.off]
		}
		return b
	}
	for at := int64(0); at < int64(len(o.new)); {
		end := min((o.off+at)/SectorSize*SectorSize+SectorSize-o.off, int64(len(o.new)))
		sector := next()
		if sector != absent {
			if int64(len(b)) < o.off+end {
				b = resize(b, o.off+end)
			}
			copy(b[o.off+at:], o.new[at:end])
		}
		if sector == garbage {
			for i := o.off + at; i < o.off+end; i++ {
				b[i] ^= byte(0x5a + 31*i)
			}
		}
		at = end
	}
	return b
}

// Kill copies the database to another path as a killed process leaves it: with all of its writes, synced or not. It
// may be called in the middle of a transaction.
func (d *Disk) Kill(to string) error {
	return d.image(to, func(_ *file, now []byte) []byte { return now })
}

// Cut copies the database to another path as a power cut may leave it.
func (d *Disk) Cut(to string, rng *rand.Rand) error {
	if err := d.ghosts(to, rng); err != nil {
		return err
	}
	return d.image(to, func(f *file, now []byte) []byte {
		switch {
		case f == nil || len(f.pending) == 0 && !f.made:
			return now
		case f.made && rng.IntN(3) == 0:
			return nil // its name is lost too
		}
		return f.cut(now, rng)
	})
}

// ghosts brings back some of the deleted files.
func (d *Disk) ghosts(to string, rng *rand.Rand) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range suffixes {
		was, gone := d.gone[d.path+s]
		if !gone || rng.IntN(2) == 0 {
			continue
		}
		if err := os.WriteFile(to+s, was, 0o600); err != nil {
			return fmt.Errorf("power cut: %w", err)
		}
	}
	return nil
}

// image writes the result of leave for each file. The lock holds SQLite's writes back meanwhile.
func (d *Disk) image(to string, leave func(f *file, now []byte) []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range suffixes {
		now, err := d.read(d.path + s)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("power cut: %w", err)
		}
		left := leave(d.files[d.path+s], now)
		if left == nil && s != "" {
			continue
		}
		if err := os.WriteFile(to+s, left, 0o600); err != nil {
			return fmt.Errorf("power cut: %w", err)
		}
	}
	return nil
}

// read reads a file of a database that may be open. The descriptor stays open until Forget: closing any descriptor of
// a file drops all POSIX locks that this process, and so SQLite, holds on it.
func (d *Disk) read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	d.held = append(d.held, f)
	return io.ReadAll(f)
}
