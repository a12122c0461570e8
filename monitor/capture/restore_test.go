package capture

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/pipeline"
	"github.com/wattmark/wattmark/monitor/spool"
)

// copyCapture copies a capture as a killed monitor would leave it: cut at n
// bytes of its log, or whole where n is negative.
func copyCapture(t *testing.T, from, to, id string, n int64) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(to, id), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"header.json", "log"} {
		b, err := os.ReadFile(filepath.Join(from, id, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "log" && n >= 0 {
			b = b[:n]
		}
		if err := os.WriteFile(filepath.Join(to, id, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestoredAtAnyLength cuts the log of a marked task at many lengths: the
// capture is restored INCOMPLETE with exactly the samples that are whole, and
// trimmed where its markers were recognised.
func TestRestoredAtAnyLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		_, _, stopEnd := m.markedTask()
		dir := t.TempDir()
		l := newLab(t, m, dir, nil)
		c := l.start(session.Request{Marker: testSpec, TaskName: "gemm"})
		l.until(stopEnd + 0.3)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.Window == nil {
			t.Fatalf("%+v, %v", sum, err)
		}
		size := c.log.Size()
		trimmed, windows := 0, 0
		for n := int64(0); n < size; n += 1 + size/40 {
			to := t.TempDir()
			copyCapture(t, dir, to, c.ID(), n)
			again := newLab(t, newMeter(), to, nil)
			back, err := again.Get(c.ID())
			if err != nil {
				if n > 2000 { // there was no first scan yet
					t.Fatalf("cut at %d: %v", n, err)
				}
				again.stop()
				continue
			}
			got := back.Summary()
			if got.State != session.Incomplete || !strings.HasPrefix(got.Reason, "monitor restarted; ") {
				t.Fatalf("cut at %d: %v, %s", n, got.State, got.Reason)
			}
			stream := again.read(back, ReadOptions{Follow: true})
			if len(stream.chunks) > 0 {
				checkStream(t, m, stream, got)
			}
			if got.FirstChunk > 0 {
				trimmed++
			}
			if got.Window != nil {
				windows++
			}
			again.stop()
		}
		if trimmed == 0 || windows == 0 || windows == trimmed {
			t.Errorf("%d restored with a start marker, %d with a window: the cuts miss something", trimmed, windows)
		}
		whole := t.TempDir()
		copyCapture(t, dir, whole, c.ID(), -1)
		back, err := newLab(t, newMeter(), whole, nil).Get(c.ID())
		if err != nil {
			t.Fatal(err)
		}
		if got := back.Summary(); got.State != session.Complete || got.Reason != "" || *got.Window != *sum.Window || got.Scans != sum.Scans ||
			got.FirstChunk != sum.FirstChunk || got.EndChunk != sum.EndChunk {
			t.Errorf("restored whole: %+v, was %+v", got, sum)
		}
	})
}

// full is a file on a disk that has room for so many bytes, and for little
// more once the log's reserve was given up.
type full struct {
	spool.File
	left    int
	reserve string
}

func (f *full) Write(p []byte) (int, error) {
	if _, err := os.Stat(f.reserve); os.IsNotExist(err) {
		f.left, f.reserve = f.left+4096, "/"
	}
	n := min(len(p), f.left)
	f.left -= n
	if m, err := f.File.Write(p[:n]); err != nil {
		return m, err
	}
	if n < len(p) {
		return n, &os.PathError{Op: "write", Path: "log", Err: syscall.ENOSPC}
	}
	return n, nil
}

type plainFile struct{ *os.File }

func (f plainFile) Datasync() error { return f.Sync() }

func TestFullDiskEndsTheCapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.markedTask()
		dir := t.TempDir()
		l := newLab(t, m, dir, func(_ *Config, o *spool.Options) {
			o.OpenFile = func(name string) (spool.File, error) {
				f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
				return &full{plainFile{f}, 40 << 10, filepath.Join(filepath.Dir(name), "reserve")}, err
			}
		})
		c := l.start(session.Request{Marker: testSpec})
		var b inbox
		if err := c.Read(t.Context(), ReadOptions{Follow: true, Untrimmed: true}, &b); err != nil {
			t.Fatal(err)
		}
		sum := c.Summary()
		if sum.State != session.Incomplete || !strings.Contains(sum.Reason, "disk is full") || !strings.Contains(sum.Reason, "no samples after scan") {
			t.Fatalf("%+v", sum)
		}
		counts := b.counts(t)
		if uint64(len(counts)) != sum.Scans || b.trailer.Scans != sum.Scans || sum.Scans < 10000 {
			t.Errorf("%d scans came, summary %d", len(counts), sum.Scans)
		}
		l.stop()
		back, err := newLab(t, newMeter(), dir, nil).Get(c.ID())
		if err != nil {
			t.Fatal(err)
		}
		if got := back.Summary(); got.Reason != sum.Reason || got.Scans != sum.Scans || got.State != session.Incomplete {
			t.Errorf("after a restart: %+v, was %+v", got, sum)
		}
	})
}

// A monitor that starts on a full disk still has what it sampled before, and ends
// the capture with the room that was kept for that.
func TestRestoredOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, to := t.TempDir(), t.TempDir()
		l := newLab(t, newMeter(), dir, nil)
		c := l.start(session.Request{TaskName: "gemm"})
		l.until(1)
		copyCapture(t, dir, to, c.ID(), c.log.Size())
		reserve := filepath.Join(to, c.ID(), "reserve")
		if err := os.WriteFile(reserve, make([]byte, 64<<10), 0o644); err != nil {
			t.Fatal(err)
		}
		again := newLab(t, newMeter(), to, func(_ *Config, o *spool.Options) {
			o.OpenFile = func(name string) (spool.File, error) {
				f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
				return &full{File: plainFile{f}, reserve: reserve}, err
			}
		})
		back, err := again.Get(c.ID())
		if err != nil {
			t.Fatal(err)
		}
		if sum := back.Summary(); sum.State != session.Incomplete || sum.Chunks == 0 || !strings.Contains(sum.Reason, "monitor restarted; no samples after") {
			t.Errorf("%+v", sum)
		}
		if s := lastState(t, filepath.Join(to, c.ID(), "log")); !s.Final {
			t.Errorf("the log ends with %+v", s)
		}
	})
}

// lastState reads the last state of a log.
func lastState(t *testing.T, path string) (last spool.State) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		f, body, rest, err := spool.ParseRecord(b)
		if err != nil {
			break
		}
		if b = rest; f.Type == spool.RecordState {
			last = spool.State{}
			if err := json.Unmarshal(body, &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	return last
}

// A log is cut off behind a record, wherever a power cut or a flipped bit ends it. What
// is left and has scans says that its capture had begun.
func TestALogWithScansSaysThatItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		l := newLab(t, m, t.TempDir(), nil)
		m.play(testSpec, marker.Start, 0.5)
		c := l.start(session.Request{Marker: testSpec})
		l.until(3)
		if _, err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := c.log.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var sum pipeline.Totals
		states := map[session.State]int{}
		for {
			rec, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := sum.Add(r, rec, c.header.Setup.Timebase); err != nil {
				t.Fatal(err)
			}
			states[sum.State]++
			if sum.Scans > 0 && sum.State <= session.Arming {
				t.Errorf("%d scans, and the capture is %v", sum.Scans, sum.State)
			}
		}
		if sum.State != session.Complete || states[session.Arming] == 0 || states[session.Running] < 3 || states[session.Stopping] == 0 {
			t.Errorf("it went by %v", states)
		}
	})
}

// A bit that flips on the disk costs the chunk that it lies in: those behind it are
// there, and the hole is told exactly, of a capture that was not ended and of one that was.
func TestAFlippedBitCostsOneChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		dir := t.TempDir()
		l := newLab(t, m, dir, nil)
		c := l.start(session.Request{})
		l.until(3)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.Chunks < 6 {
			t.Fatalf("%+v, %v", sum, err)
		}
		r, err := c.log.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var begin, size int64
		var lost chunk.Chunk
		for at := int64(0); lost.No != 3; {
			rec, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			begin, size, lost = at, int64(rec.Body)+20, rec.Chunk
			at += size
		}
		for name, at := range map[string]int64{"frame": begin + 13, "head": begin + 30, "payload": begin + size - 2} {
			for _, ended := range []bool{true, false} {
				to := t.TempDir()
				copyCapture(t, dir, to, c.ID(), c.log.Size())
				path := filepath.Join(to, c.ID(), "log")
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				b[at] ^= 4
				if !ended {
					b = b[:len(b)-1]
				}
				if err := os.WriteFile(path, b, 0o644); err != nil {
					t.Fatal(err)
				}
				again := newLab(t, newMeter(), to, nil)
				back, err := again.Get(c.ID())
				if err != nil {
					t.Fatal(err)
				}
				var in inbox
				err = back.Read(t.Context(), ReadOptions{Untrimmed: true}, &in)
				if ended && name != "frame" { // seen when it is read
					if !errors.Is(err, ErrMended) || len(in.chunks) != 3 {
						t.Errorf("%s: %d chunks, %v", name, len(in.chunks), err)
					}
					err = back.Read(t.Context(), ReadOptions{Untrimmed: true, From: 3}, &in)
				}
				got := back.Summary()
				if err != nil || len(in.chunks) != int(sum.Chunks)-1 || in.chunks[3].No != 4 || in.trailer == nil {
					t.Fatalf("%s: %d chunks of %d, %v", name, len(in.chunks), sum.Chunks, err)
				}
				if got.Lost != uint64(lost.Scans) || got.Gaps != 1 || got.Scans != sum.Scans-got.Lost || in.trailer.Scans != got.Scans || in.trailer.Chunks != sum.Chunks-1 {
					t.Errorf("%s: %+v of %+v, %+v", name, got, sum, in.trailer)
				}
				if e := in.events; len(e) != 1 || e[0].FirstScan != lost.FirstScan || e[0].Scans != uint64(lost.Scans) || !e[0].Exact || in.before[0] != 3 {
					t.Errorf("%s: %+v at %v", name, e, in.before)
				}
				if (got.State == session.Complete) != ended || !ended && !strings.Contains(got.Reason, "damaged in 1 place") {
					t.Errorf("%s: %v, %s", name, got.State, got.Reason)
				}
				if err := again.Release(c.ID()); err != nil {
					t.Error(err)
				}
				again.stop()
			}
		}
	})
}

// What lies alone in a spool and cannot be used is left, told, and keeps nobody from
// measuring.
func TestASpoolThatCannotBeUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := newLab(t, newMeter(), dir, nil)
		c := l.start(session.Request{})
		l.until(0.5)
		if _, err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		file := func(to, name string, b []byte) error {
			return os.WriteFile(filepath.Join(to, c.ID(), name), b, 0o644)
		}
		gone := func(to, name string) string {
			path := filepath.Join(to, c.ID(), name)
			if err := os.RemoveAll(path); err != nil {
				t.Error(err)
			}
			return path
		}
		for name, harm := range map[string]func(to string) error{
			"header cut":       func(to string) error { return file(to, "header.json", []byte(`{"format":`)) },
			"header gone":      func(to string) error { return os.Remove(filepath.Join(to, c.ID(), "header.json")) },
			"header too large": func(to string) error { return file(to, "header.json", make([]byte, 16<<20+1)) },
			"header a pipe":    func(to string) error { return syscall.Mkfifo(gone(to, "header.json"), 0o600) },
			"log gone":         func(to string) error { return os.Remove(filepath.Join(to, c.ID(), "log")) },
			"log a link":       func(to string) error { return os.Symlink("/etc/passwd", gone(to, "log")) },
			"log a directory":  func(to string) error { return os.Mkdir(gone(to, "log"), 0o755) },
			"log a socket":     func(to string) error { return syscall.Mknod(gone(to, "log"), syscall.S_IFSOCK|0o600, 0) },
			"renamed":          func(to string) error { return os.Rename(filepath.Join(to, c.ID()), filepath.Join(to, "mine")) },
			"a link":           func(to string) error { return os.Symlink("/etc", gone(to, "")[:len(to)+1]+c.ID()) },
			"a pipe":           func(to string) error { gone(to, ""); return syscall.Mkfifo(filepath.Join(to, c.ID()), 0o600) },
		} {
			to := t.TempDir()
			copyCapture(t, dir, to, c.ID(), -1)
			if err := errors.Join(os.WriteFile(filepath.Join(to, ".lock"), nil, 0o644), harm(to)); err != nil {
				t.Fatal(name, err)
			}
			again := newLab(t, newMeter(), to, nil)
			if b := again.Bench(t.Context()); len(b.SetAside) != 1 || !strings.Contains(b.SetAside[0], to) || again.Stats().SetAside != 1 {
				t.Errorf("%s: set aside %q", name, b.SetAside)
			}
			if _, err := again.start(session.Request{}).Stop(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			again.stop()
		}
	})
}
