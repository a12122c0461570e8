package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ErrForgotten: the samples of a chunk are not in the spool any more, as the host has them.
var ErrForgotten = errors.New("the samples were given back to the disk, as the host has them")

// Files beside a log that has forgotten chunks: their heads, with all other records among them, and up to where both
// go.
const (
	headsName     = "heads"
	forgottenName = "forgotten"
)

// block is the unit in which file systems give room back.
const block = 4096

// prefix is the part of a log that was forgotten: readers find the heads of its chunks, and its other records, in a
// file of their own, and the log has a hole there.
type prefix struct {
	mu    sync.Mutex // held while it grows
	upTo  uint64     // first chunk that has its samples
	cut   atomic.Int64
	heads atomic.Int64 // bytes
}

// Forget gives the samples of the chunks before a number back to the disk, for good, while the capture runs or after.
// The heads are durable before the log loses them. It blocks for the disk, and holds up neither the writer nor readers;
// one that stands in the prefix fails with ErrForgotten. A file system without holes keeps the bytes.
func (l *Log) Forget(before uint64) error {
	p := l.prefix
	p.mu.Lock()
	defer p.mu.Unlock()
	if before <= p.upTo {
		return nil
	}
	if err := l.forget(before); err != nil {
		return l.fault(fmt.Errorf("forget the chunks before %d: %w", before, err))
	}
	return nil
}

func (l *Log) forget(before uint64) error {
	p := l.prefix
	cut, heads, err := l.headsFrom(p.cut.Load(), before)
	if err != nil || cut == p.cut.Load() {
		return err
	}
	size := p.heads.Load() + int64(len(heads))
	if err := appendAt(l.beside(headsName), heads, p.heads.Load()); err != nil {
		return err
	}
	if err := replaceFile(l.beside(forgottenName), fmt.Appendf(nil, "%d %d %d\n", before, cut, size), true); err != nil {
		return err
	}
	if err := syncDir(l.dir); err != nil {
		return err
	}
	p.upTo = before
	p.heads.Store(size)
	p.cut.Store(cut)
	return l.punch()
}

// headsFrom returns the records of the log from a place on to a chunk, of chunks the heads alone, and where they end.
func (l *Log) headsFrom(at int64, before uint64) (cut int64, heads []byte, err error) {
	f, err := openRead(l.path())
	if err != nil {
		return 0, nil, err
	}
	r := &Reader{log: l, file: f, at: at}
	defer r.Close()
	var body []byte
	for {
		cut = r.at
		rec, err := r.Next()
		if errors.Is(err, io.EOF) || err == nil && rec.Type == RecordChunk && rec.Chunk.No >= before {
			return cut, heads, nil
		}
		if err != nil {
			return 0, nil, err
		}
		if rec.Type == RecordChunk {
			heads = append(heads, r.head[:]...)
			continue
		}
		b, err := r.Body(rec, &body)
		if err != nil {
			return 0, nil, err
		}
		heads = append(append(heads, r.head[:frameSize]...), b...)
	}
}

// appendAt writes at the end of a file, known to be at an offset, durably.
func appendAt(path string, b []byte, at int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|noFollow, 0o644)
	if err != nil {
		return err
	}
	err = f.Truncate(at) // left by a process that was killed
	if err == nil {
		_, err = f.WriteAt(b, at)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// beside is the path of a file beside the log.
func (l *Log) beside(name string) string { return filepath.Join(l.dir, name) }

// punch frees the blocks of the log's prefix.
func (l *Log) punch() error {
	f, err := os.OpenFile(l.path(), os.O_WRONLY|noFollow, 0)
	if err != nil {
		return err
	}
	if free := l.prefix.cut.Load() / block * block; free > 0 {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, free)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// Held returns the bytes of the log and its heads on a disk that has holes.
func (l *Log) Held() int64 {
	p := l.prefix
	return l.Size() - p.cut.Load()/block*block + p.heads.Load()
}

// remember reads what an earlier process forgot, and frees what it had not when it died.
func (l *Log) remember() error {
	p, path := l.prefix, l.beside(forgottenName)
	b, err := readSmall(path, 128)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var cut, heads int64
	if _, err := fmt.Sscanf(string(b), "%d %d %d\n", &p.upTo, &cut, &heads); err != nil || cut < 0 || heads < 0 || cut > l.Size() {
		return fmt.Errorf("%s: %q is no place in a log of %d bytes", path, b, l.Size())
	}
	p.cut.Store(cut)
	p.heads.Store(heads)
	return l.punch()
}
