package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// logPatience is how long a reader may keep the log from being emptied, in milliseconds.
const logPatience = "200"

// emptyLog writes what the write-ahead log holds into the file, synced, and truncates the
// log. What a damaged log holds is lost, and so it holds no task that has ended: a
// monitor's capture is released behind this. A log that was only copied to the file would
// not do: of one that is damaged later, the pages before the damage would hide newer ones
// of the file. While others read or write for longer than logPatience, the log stays for
// the next task that ends, or the last handle that closes.
func (d *DB) emptyLog(ctx context.Context) {
	if d.server != nil || d.writer == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	conn, err := d.writer.Conn(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.ExecContext(ctx, "PRAGMA busy_timeout="+logPatience+"; PRAGMA wal_checkpoint(TRUNCATE)")
	_, _ = conn.ExecContext(ctx, "PRAGMA busy_timeout=10000")
}

// damagedLog is where a log is kept that was found damaged.
func damagedLog(abs string) string { return abs + "-wal-damaged" }

// LogLoss says what is missing of the log that Open found, as a program left it that was
// killed; empty where nothing is. SQLite leaves it out without a word.
func (d *DB) LogLoss() string { return d.logLoss }

// lookAtLog returns what is missing of the log beside a file that nobody has open. With
// keep it copies such a log aside before SQLite drops it: Check tells of the copy for as
// long as it is there. What cannot be read or copied is left to SQLite's own errors.
func lookAtLog(abs string, keep bool) string {
	holding.Lock() // to close -shm would lose this program's locks of it
	defer holding.Unlock()
	if isHeld(abs) || logInUse(abs) {
		return ""
	}
	loss := logLoss(abs)
	if loss == "" || !keep {
		return loss
	}
	from, err := os.Open(abs + "-wal")
	if err != nil {
		return loss
	}
	defer from.Close()
	to, err := os.OpenFile(damagedLog(abs), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return loss // one is there already: it has more
	}
	_, err = io.Copy(to, from)
	_ = errors.Join(err, to.Close()) // what is kept is for whoever looks into it
	return loss
}

// log tells of a log that was damaged when this handle, or an earlier one, opened the file.
func (c *checker) log(context.Context) error {
	if c.d.server != nil {
		return nil
	}
	abs, err := filepath.Abs(c.d.path)
	if err != nil {
		return err
	}
	f := Finding{Kind: BadLog, Chunk: NoChunk, What: c.d.logLoss, Remedy: "tasks that ended before are whole; look for what was measured last in the monitor (wattmark doctor) or measure again, then remove the copy"}
	if kept := damagedLog(abs); exists(kept) {
		if f.What == "" {
			f.What = "what it held was lost"
		}
		f.What += ", and it is kept as " + kept
	}
	if f.What != "" {
		f.What = "the write-ahead log of a program that was killed is damaged: " + f.What
		c.add(f)
	}
	return nil
}

// walHead is the log's header, and what its checksums are made with (SQLite's file format,
// section 4).
type walHead struct {
	order    binary.ByteOrder
	page     int
	salt     []byte
	sum      [2]uint32
	readable bool // its own checksum holds
}

const (
	walHeadBytes, frameHeadBytes = 32, 24
	walMagic                     = 0x377f0682
)

func parseWALHead(b []byte) (h walHead, ok bool) {
	magic := binary.BigEndian.Uint32(b)
	if magic&^1 != walMagic {
		return h, false
	}
	h.order = binary.LittleEndian
	if magic&1 == 1 {
		h.order = binary.BigEndian
	}
	h.page, h.salt = int(binary.BigEndian.Uint32(b[8:])), bytes.Clone(b[16:24])
	h.add(b[:24])
	h.readable = h.is(b[24:])
	return h, h.page >= 512 && h.page <= 1<<16 && h.page&(h.page-1) == 0
}

func (h *walHead) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		h.sum[0] += h.order.Uint32(b) + h.sum[1]
		h.sum[1] += h.order.Uint32(b[4:]) + h.sum[0]
	}
}

func (h *walHead) is(b []byte) bool {
	return h.sum == [2]uint32{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

// logLoss compares the frames of a log that pass their checksums with those behind the
// first that does not, and with how many the last program that had it open counted (in
// -shm, which it writes once frames are synced).
func logLoss(abs string) string {
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
	frame := make([]byte, frameHeadBytes+max(h.page, 512))
	if !ok || !h.readable {
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
			if !broken && counted > sound {
				broken = true // this frame's own salt is damaged
				continue
			}
			if !broken {
				break // an older log's
			}
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

// countedFrames is how many frames of a log of this salt were committed, as its index in
// -shm says; 0 where there is none of it.
func countedFrames(abs string, salt []byte) uint32 {
	f, err := os.Open(abs + "-shm")
	if err != nil {
		return 0
	}
	defer f.Close()
	b := make([]byte, 96)
	if _, err := io.ReadFull(f, b); err != nil || !bytes.Equal(b[:48], b[48:]) || b[12] == 0 || !bytes.Equal(b[32:40], salt) {
		return 0
	}
	return binary.NativeEndian.Uint32(b[16:])
}
