package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// writeLoop writes what was appended, as much at once as has gathered.
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
			select {
			case l.kick <- struct{}{}:
			default:
			}
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

func (l *Log) wake() {
	c := make(chan struct{})
	close(*l.changed.Swap(&c))
}

// fail takes note of a write that went wrong after some bytes: whole records
// among them stay, the torn one is cut off, what waited is lost. The lock is held.
func (l *Log) fail(partial []byte, err error) {
	whole := wholeRecords(partial)
	if terr := l.file.Truncate(l.written + int64(whole)); terr != nil {
		// The torn tail stays behind what readers see; opening the log cuts it.
		err = fmt.Errorf("%w (and the torn record could not be cut off: %w)", err, terr)
	}
	l.err = fmt.Errorf("spool %s: %w", l.header.CaptureID, err)
	l.pending = l.pending[:0]
	l.publish(whole)
	l.accepted = l.written
}

// wholeRecords returns the length of the whole records at the head of b.
func wholeRecords(b []byte) int {
	n := 0
	for rest := b; ; {
		f, err := ParseFrame(rest)
		if err != nil || len(rest) < frameSize+f.Body {
			return n
		}
		n += frameSize + f.Body
		rest = rest[frameSize+f.Body:]
	}
}

// Rescue makes a log that failed take records again, for the few last words of
// its capture: the reserve is given back to the disk.
func (l *Log) Rescue() error {
	if err := os.Remove(filepath.Join(l.dir, reserveName)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("spool %s: %w", l.header.CaptureID, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = nil
	return nil
}

// syncLoop makes records durable in the background.
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
			// An error is kept in the log and returned by the next append.
			_ = l.datasync()
		}
	}
}

// datasync makes what was written until now durable.
func (l *Log) datasync() error {
	upTo := l.size.Load()
	err := l.file.Datasync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.err == nil {
			l.err = fmt.Errorf("spool %s: sync: %w", l.header.CaptureID, err)
		}
		return l.err
	}
	l.synced = max(l.synced, upTo)
	l.cond.Broadcast()
	return nil
}

// Hurry asks for a sync soon, without waiting for it: a Sync that follows then
// finds less to do.
func (l *Log) Hurry() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// Sync returns when all that was appended before is written and survives a
// power cut, or with the error that prevents it.
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

// Close writes and syncs what was appended and ends the log's goroutines. The
// log can be read on. It is safe to call twice.
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
	// The reserve has served: the last words are written.
	_ = os.Remove(filepath.Join(l.dir, reserveName))
	if cerr := l.file.Close(); err == nil {
		err = cerr
	}
	return err
}
