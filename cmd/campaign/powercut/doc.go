// Package powercut shows what a power cut leaves of an SQLite database: it stands
// between SQLite and its files, knows what was written and what of it was synced, and
// makes copies as they may lie on a disk whose power went at any moment.
//
// What was written before a file's last sync is in the copy. Of what came after, each
// sector of 512 bytes is there, or not, or is garbage, in any order, as of both files:
// the database, and the log that was not synced or is being folded into it. A file that
// was made and never synced may be missing, one that was deleted may be back, unless its folder was synced with that. What is taken for granted is what SQLite
// takes for granted of disks (SQLITE_POWERSAFE_OVERWRITE): a write that is cut changes
// no bytes beside those that it was to change.
package powercut

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
)

// Disk is where one database lies.
type Disk struct {
	o    Options
	path string

	mu    sync.Mutex
	files map[string]*file  // by path
	gone  map[string][]byte // files that were deleted, whose names may come back
	held  []closer          // of images that were taken
}

type closer interface{ Close() error }

// Options are what happens to the disk. All are called on the goroutine of SQLite, with
// nothing locked; each may be nil.
type Options struct {
	// Write and Sync come before those of any of its files. Their answer is what
	// becomes of it.
	Write, Sync func() Fault
	// NoSync lets syncs return without having done anything: a disk, or a setting, that
	// breaks the word which was given to who waits for a commit.
	NoSync bool
}

// Fault is what becomes of a write or sync.
type Fault uint8

// The faults.
const (
	None Fault = iota
	Full       // there is no room
	Fail       // an error of the device
)

// file is one of the database's files.
type file struct {
	size    int64
	made    bool // and never synced: its name may be lost
	pending []op
}

// op is a write or truncation that was not synced.
type op struct {
	off      int64
	old, new []byte // new is nil for a truncation to off
	oldSize  int64
}

// SectorSize is what a disk writes whole or not at all.
const SectorSize = 512

// disks are those that are watched, by the path of their database.
var disks sync.Map

// Watch begins to watch the database at a path, which no connection has open. Forget
// ends it.
func Watch(path string, o Options) (*Disk, error) {
	if err := register(); err != nil {
		return nil, err
	}
	d := &Disk{o: o, path: filepath.Clean(path), files: map[string]*file{}, gone: map[string][]byte{}}
	disks.Store(d.path, d)
	return d, nil
}

// Forget ends the watch. It is called when the database was closed.
func (d *Disk) Forget() {
	disks.Delete(d.path)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.held {
		_ = f.Close()
	}
	d.held = nil
}

// suffixes of the files that must survive. That of the shared memory need not: SQLite
// makes it anew.
var suffixes = []string{"", "-wal", "-journal"}

// diskOf finds the disk that a file of SQLite's lies on; nil for none.
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

// durable is what the last sync made of a file, from what it is now.
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

// cut is what a power cut leaves of a file.
func (f *file) cut(now []byte, rng *rand.Rand) []byte {
	b := f.durable(now)
	ops := f.pending
	switch rng.IntN(4) {
	case 0: // nothing had come
		return b
	case 1: // all had, unasked
		return append([]byte(nil), now...)
	case 2: // in order, up to one that is torn
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
	default: // in any order
		for _, o := range ops {
			b = o.apply(b, func() fate { return []fate{absent, arrived, arrived, garbage}[rng.IntN(4)] })
		}
	}
	return b
}

// fate is what becomes of a sector.
type fate uint8

const (
	absent fate = iota
	arrived
	garbage
)

// apply does a write to b, sector by sector of the disk.
func (o op) apply(b []byte, next func() fate) []byte {
	if o.new == nil {
		if next() == arrived && o.off < int64(len(b)) {
			return b[:o.off]
		}
		return b
	}
	for at := int64(0); at < int64(len(o.new)); {
		end := min((o.off+at)/SectorSize*SectorSize+SectorSize-o.off, int64(len(o.new)))
		what := next()
		if what != absent {
			if int64(len(b)) < o.off+end {
				b = resize(b, o.off+end)
			}
			copy(b[o.off+at:], o.new[at:end])
		}
		if what == garbage {
			for i := o.off + at; i < o.off+end; i++ {
				b[i] ^= byte(0x5a + 31*i)
			}
		}
		at = end
	}
	return b
}
