package spool

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
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
	mu    sync.Mutex            // held while it grows, and while the log is mended
	now   atomic.Pointer[place] // to a place that does not change
	freed atomic.Int64          // bytes of the log's hole
}

// place is how far a log is forgotten.
type place struct {
	upTo  uint64 // first chunk that has its samples
	cut   int64  // where the rest begins in the log
	heads int64  // bytes of heads
	sum   uint32 // CRC-32C of them
}

// Forget gives the samples of the chunks before a number back to the disk, for good, while the capture runs or after:
// of those that a power cut cannot lose. The heads are durable before the log loses them. It blocks for the disk, and
// holds up neither the writer nor readers. A file system without holes keeps the bytes.
func (l *Log) Forget(before uint64) error {
	p := l.prefix
	p.mu.Lock()
	defer p.mu.Unlock()
	if before <= p.now.Load().upTo {
		return nil
	}
	if err := l.forget(before); err != nil {
		return l.fault(fmt.Errorf("forget the chunks before %d: %w", before, err))
	}
	return nil
}

func (l *Log) forget(before uint64) error {
	p := l.prefix
	was := p.now.Load()
	now, heads, err := l.headsFrom(was, before)
	if err != nil || now.upTo == was.upTo {
		return err
	}
	if err := appendAt(l.beside(headsName), heads, was.heads); err != nil {
		return err
	}
	if err := replaceFile(l.beside(forgottenName), now.text(), true); err != nil {
		return err
	}
	p.now.Store(now)
	if err := syncDir(l.dir); err != nil {
		return err
	}
	l.punch()
	return nil
}

// text is the content of the file, with a checksum of itself.
func (p *place) text() []byte {
	b := fmt.Appendf(nil, "%d %d %d %08x ", p.upTo, p.cut, p.heads, p.sum)
	return fmt.Appendf(b, "%08x\n", crc32.Checksum(b, castagnoli))
}

// headsFrom returns the place at a later chunk, and the records up to there, of chunks the heads alone.
func (l *Log) headsFrom(was *place, before uint64) (now *place, heads []byte, err error) {
	f, err := openRead(l.path())
	if err != nil {
		return nil, nil, err
	}
	r := &Reader{log: l, file: f, at: was.cut}
	defer r.Close()
	if l.file == nil { // it was found sealed, and may not have been synced
		if err := f.Sync(); err != nil {
			return nil, nil, err
		}
	}
	l.mu.Lock()
	durable := l.synced
	l.mu.Unlock()
	now = &place{upTo: was.upTo, cut: was.cut}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) || err == nil && (r.at > durable || rec.Type == RecordChunk && rec.Chunk.No >= before) {
			now.heads, now.sum = was.heads+int64(len(heads)), crc32.Update(was.sum, castagnoli, heads)
			return now, heads, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if now.cut = r.at; rec.Type == RecordChunk {
			heads, now.upTo = append(heads, r.head[:]...), rec.Chunk.No+1
			continue
		}
		var body []byte
		b, err := r.Body(rec, &body)
		if err != nil {
			return nil, nil, err
		}
		heads = append(append(heads, r.head[:frameSize]...), b...)
	}
}

// appendAt writes at the end of a file, known to be at an offset, durably.
func appendAt(path string, b []byte, at int64) error {
	return change(path, os.O_CREATE, true, func(f *os.File) error {
		err := f.Truncate(at) // left by a process that was killed
		if err == nil {
			_, err = f.WriteAt(b, at)
		}
		return err
	})
}

// beside is the path of a file beside the log.
func (l *Log) beside(name string) string { return filepath.Join(l.dir, name) }

// punch frees the blocks of the log's prefix. Where it cannot, they stay, and the log is as good.
func (l *Log) punch() {
	free := l.prefix.now.Load().cut / block * block
	if free == 0 {
		return
	}
	err := change(l.path(), 0, false, func(f *os.File) error {
		err := error(unix.EINTR)
		for err == unix.EINTR {
			err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, free)
		}
		return err
	})
	if err != nil {
		l.opt.Log.Warn("the spool's disk does not take back the room of samples that the host has", "log", l.path(),
			"error", err)
		return
	}
	l.prefix.freed.Store(free)
}

// Held returns the bytes of the log and its heads on the disk.
func (l *Log) Held() int64 { return l.Size() - l.prefix.freed.Load() + l.prefix.now.Load().heads }

// remember reads what an earlier process forgot, verifies the heads, and frees what it had not when it died. Damage is
// an error: nothing can mend it.
func (l *Log) remember() error {
	path := l.beside(forgottenName)
	b, err := readSmall(path, 128)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var p place
	var sum uint32
	_, err = fmt.Sscanf(string(b), "%d %d %d %x %x\n", &p.upTo, &p.cut, &p.heads, &p.sum, &sum)
	if err != nil || !bytes.Equal(p.text(), b) || p.cut > l.Size() {
		return fmt.Errorf("%s: damaged: %q, of a log of %d bytes", path, b, l.Size())
	}
	f, err := openRead(l.beside(headsName))
	if err != nil {
		return err
	}
	defer f.Close()
	crc := crc32.New(castagnoli)
	if n, err := io.Copy(crc, io.LimitReader(f, p.heads)); err != nil || n != p.heads || crc.Sum32() != p.sum {
		return errors.Join(err, fmt.Errorf("%s: damaged: its %d bytes have the checksum %08x, want %d with %08x", f.Name(), n,
			crc.Sum32(), p.heads, p.sum))
	}
	l.prefix.now.Store(&p)
	l.punch()
	return nil
}
