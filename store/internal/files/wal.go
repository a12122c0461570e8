// Package files answers questions about a database's files that SQLite does not: which frames of
// a write-ahead log are lost, whether another program has the log open, whether a file may be
// written, and the room left on its disk. No function opens the database file itself: on Unix,
// closing it would drop the locks that SQLite holds in this process.
package files

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// walHead is the log's header, and the state of its checksums (SQLite's file format, section 4).
type walHead struct {
	order binary.ByteOrder
	page  int
	salt  []byte
	sum   [2]uint32
}

const (
	walHeadBytes, frameHeadBytes = 32, 24
	walMagic                     = 0x377f0682
)

// parseWALHead reads the header of a log: a magic number, whose last bit is the byte order, the size of a page,
// and the salt. ok is false for bytes that are no log, or are damaged.
func parseWALHead(b []byte) (h walHead, ok bool) {
	magic := binary.BigEndian.Uint32(b)
	if h.order = binary.LittleEndian; magic&1 == 1 {
		h.order = binary.BigEndian
	}
	h.page, h.salt = int(binary.BigEndian.Uint32(b[8:])), b[16:24]
	h.add(b[:24])
	return h, magic&^1 == walMagic && h.page >= 512 && h.page <= 1<<16 && h.page&(h.page-1) == 0 && h.is(b[24:])
}

// add continues the checksum over 8 bytes at a time: s0 += x0 + s1, s1 += x1 + s0.
func (h *walHead) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		h.sum[0] += h.order.Uint32(b) + h.sum[1]
		h.sum[1] += h.order.Uint32(b[4:]) + h.sum[0]
	}
}

// is compares the checksum with a stored one.
func (h *walHead) is(b []byte) bool {
	return h.sum == [2]uint32{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

// Loss describes the part of a log that cannot be read, in words for the user; empty where
// nothing is missing. It compares the frames that pass their checksums with those behind the
// first that does not, and with the number that the last program that had the log open counted
// (in -shm, which it writes once frames are synced).
//
// A single damaged transaction at the end is no loss: a power cut may have ended it before it was stored.
func Loss(abs string) string {
	f, err := os.Open(abs + "-wal")
	if err != nil {
		return ""
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	head := make([]byte, walHeadBytes)
	if _, err := io.ReadFull(r, head); err != nil {
		return ""
	}
	h, ok := parseWALHead(head)
	counted := countedFrames(abs, head[16:24])
	frame := make([]byte, frameHeadBytes+min(max(h.page, 512), 1<<16))
	if !ok {
		if _, err := io.ReadFull(r, frame); err == nil && !bytes.Equal(head, make([]byte, walHeadBytes)) {
			return "its header is damaged, and all that it held is lost"
		}
		return ""
	}
	sound, broken, commits := uint32(0), false, 0
	for {
		if _, err := io.ReadFull(r, frame); err != nil {
			break
		}
		if !bytes.Equal(frame[8:16], h.salt) {
			if !broken && counted <= sound {
				break // an older log's
			}
			broken = true // where it is the first, this frame's own salt is damaged
			continue
		}
		if h.add(frame[:8]); !broken {
			h.add(frame[frameHeadBytes:])
		}
		if broken = broken || !h.is(frame[16:24]); !broken {
			sound++
		} else if binary.BigEndian.Uint32(frame[4:]) != 0 {
			commits++
		}
	}
	switch {
	case counted > sound:
		return fmt.Sprintf("%d of %d frames can be read: what the others held is lost", sound, counted)
	case commits > 1:
		return fmt.Sprintf("frame %d is damaged: %d transactions behind it are lost", sound+1, commits)
	}
	return "" // the last transaction alone may be one that a power cut ended before it was stored
}

// countedFrames returns the number of committed frames of a log of this salt, by its index in
// -shm; 0 where there is no index of it.
func countedFrames(abs string, salt []byte) uint32 {
	f, err := os.Open(abs + "-shm")
	if err != nil {
		return 0
	}
	defer f.Close()
	b := make([]byte, 96)
	if _, err := io.ReadFull(f, b); err != nil || !bytes.Equal(b[:48], b[48:]) || b[12] == 0 ||
		!bytes.Equal(b[32:40], salt) {
		return 0
	}
	return binary.NativeEndian.Uint32(b[16:])
}

// sharedByte is the byte of -shm on which each connection holds a lock.
const sharedByte = 128

// InUse reports whether another program has the file open with its log.
func InUse(abs string) bool {
	f, err := os.Open(abs + "-shm")
	if err != nil {
		return false
	}
	defer f.Close()
	l := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: sharedByte, Len: 1}
	return syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &l) != nil || l.Type != syscall.F_UNLCK
}

// FreeBeside returns the bytes that may still be written on the disk of a file.
func FreeBeside(path string) (int64, error) {
	var s unix.Statfs_t
	err := unix.Statfs(filepath.Dir(path), &s)
	return int64(s.Bavail) * int64(s.Bsize), err
}

// MayWrite reports whether this program may write a file, or make files in a folder.
func MayWrite(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil
}
