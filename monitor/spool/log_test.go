package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
)

func testHeader(id string) session.Header {
	return session.Header{
		CaptureID: id, Bench: "b", Holder: "ada@lab", TaskName: "gemm", Created: time.Unix(1700000000, 0).UTC(),
		Setup: measure.Setup{
			Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 100},
			Channels: []measure.Channel{{Name: "p", Unit: measure.UnitWatt, Gain: 0.1}},
			Rails:    []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1}},
		},
		Marker: marker.FastProfile(10e3, 7),
	}
}

// testChunk is a chunk of n scans.
func testChunk(t testing.TB, no uint64, n int) *chunk.Chunk {
	t.Helper()
	e, err := chunk.NewEncoder(testHeader("x").Setup.Timebase, 1, chunk.MaxScans)
	if err != nil {
		t.Fatal(err)
	}
	b := measure.Block{FirstScan: no * uint64(n), FirstTick: int64(no) * int64(n) * 100, Counts: [][]measure.Count{make([]measure.Count, n)}}
	for i := range n {
		b.Counts[0][i] = measure.Count(i*37%251) + measure.Count(no)
	}
	if _, err := e.Append(&b); err != nil {
		t.Fatal(err)
	}
	return e.Flush(no).Clone()
}

// memoryDir returns a directory in memory, where the system has one, for tests that
// damage and sync a file thousands of times: a disk would only make them slow.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "wattmark-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func openStore(t *testing.T, dir string, opt Options) *Store {
	t.Helper()
	s, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// put appends a record of each kind and n chunks.
func put(t *testing.T, l *Log, chunks int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.State(State{State: 2, Trigger: 2, At: time.Unix(5, 0).UTC(), Started: time.Unix(4, 0).UTC()}))
	must(l.Event(measure.Event{Kind: measure.EventGap, FirstScan: 3, Scans: 9, Exact: true, Channel: -1, Detail: "µ"}))
	must(l.Marker(marker.Found{Kind: marker.Start, T: 1.5, PSLR: measure.Decibel(math.Inf(1)), U: measure.Seconds(math.NaN()), Edges: []marker.Edge{{Chip: 1, T: 2}}}))
	for no := range chunks {
		must(l.Chunk(testChunk(t, uint64(no), 300)))
	}
}

// all reads every record of a log with its body.
func all(t *testing.T, l *Log) (types []RecordType, bodies [][]byte) {
	t.Helper()
	r, err := l.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return types, bodies
		}
		if err != nil {
			t.Fatal(err)
		}
		var buf []byte
		b, err := r.Body(rec, &buf)
		if err != nil {
			t.Fatal(err)
		}
		types, bodies = append(types, rec.Type), append(bodies, b)
	}
}

func TestLogReadsBackWhatWasAppended(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	l, err := s.Create(testHeader("c1"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, l, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	types, bodies := all(t, l)
	want := []RecordType{RecordState, RecordEvent, RecordMarker, RecordChunk, RecordChunk, RecordChunk}
	if !cmp.Equal(types, want) {
		t.Fatalf("records %v, want %v", types, want)
	}
	for no := range uint64(3) {
		if c := testChunk(t, no, 300); !bytes.Equal(bodies[3+no], chunk.AppendPayload(nil, c)) {
			t.Errorf("chunk %d has another payload", no)
		}
	}
	r, _ := l.NewReader()
	defer r.Close()
	r.Next()
	e, _ := r.Next()
	m, _ := r.Next()
	if ev, err := r.Event(e); err != nil || ev.Detail != "µ" || ev.Scans != 9 || ev.Channel != -1 {
		t.Errorf("event %+v, %v", ev, err)
	}
	if f, err := r.Marker(m); err != nil || f.Kind != marker.Start || f.T != 1.5 || f.U != 0 || f.PSLR != math.MaxFloat64 || len(f.Edges) != 1 {
		t.Errorf("marker %+v, %v", f, err)
	}
	if c, err := r.Next(); err != nil || !cmp.Equal(c.Chunk, chunk.Chunk{Scans: 300, CRC: testChunk(t, 0, 300).CRC}) {
		t.Errorf("chunk head %+v, %v", c, err)
	}
	if err := l.Event(measure.Event{}); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
}

func TestReaderFollowsWriter(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{Buffer: 4096})
	l, err := s.Create(testHeader("c1"))
	if err != nil {
		t.Fatal(err)
	}
	const n = 500
	c := testChunk(t, 0, 300)
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			r, err := l.NewReader()
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			var buf []byte
			for next := uint64(0); next < n; {
				more := l.Changed()
				rec, err := r.Next()
				if errors.Is(err, io.EOF) {
					<-more
					continue
				}
				if err == nil {
					_, err = r.Body(rec, &buf)
				}
				if err != nil || rec.Chunk.No != next {
					t.Errorf("chunk %d: %+v, %v", next, rec, err)
					return
				}
				next++
			}
		})
	}
	for no := range uint64(n) {
		c.No = no
		if err := l.Chunk(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	readers.Wait()
}

// TestKilledAtEveryByte cuts a log at every length that a killed writer can
// leave: all whole records are kept, the rest is cut and counted, and the log
// takes new records.
func TestKilledAtEveryByte(t *testing.T) {
	dir := memoryDir(t)
	s := openStore(t, dir, Options{SyncEvery: time.Hour})
	l, err := s.Create(testHeader("c1"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, l, 2)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(l.path())
	if err != nil {
		t.Fatal(err)
	}
	ends := []int{0}
	for rest := whole; len(rest) > 0; {
		_, _, tail, err := ParseRecord(rest)
		if err != nil {
			t.Fatal(err)
		}
		ends, rest = append(ends, len(whole)-len(tail)), tail
	}
	for n := range len(whole) {
		if err := os.WriteFile(l.path(), whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		good := 0
		for _, e := range ends {
			if e <= n {
				good = e
			}
		}
		f, err := s.open(filepath.Join(dir, "c1"))
		if err != nil || f.Sealed || f.Torn != int64(n-good) || (f.Torn > 0) != (f.Why != "") || f.Log.Size() != int64(good) {
			t.Fatalf("cut at %d: %+v, %v; want %d good bytes", n, f, err, good)
		}
		if n%97 == 0 { // and it goes on from there
			if err := f.Log.State(State{State: 5, Final: true}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Log.Close(); err != nil {
			t.Fatal(err)
		}
		if n%97 == 0 {
			if f, err := s.open(filepath.Join(dir, "c1")); err != nil || !f.Sealed || f.Torn != 0 {
				t.Fatalf("cut at %d, sealed: %+v, %v", n, f, err)
			}
		}
	}
}

func TestStoreIsLocked(t *testing.T) {
	dir := t.TempDir()
	openStore(t, dir, Options{})
	who := fmt.Sprintf("another monitor (process %d):", os.Getpid())
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), who) {
		t.Errorf("second store: %v", err)
	}
	if got := Holder(t.TempDir()); got != "" {
		t.Errorf("of no spool: %q", got)
	}
}

func TestStoreFindsWhatWasLeft(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	for _, id := range []string{"b", "a"} {
		h := testHeader(id)
		h.Created = h.Created.Add(time.Duration(id[0]-'a') * time.Hour)
		l, err := s.Create(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"20261123-033444-f9c1c273.released", "20261123-033444-f9c1c274", "strange"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "strange", headerName), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	found, err := s.Captures()
	if err == nil || !strings.Contains(err.Error(), "strange") {
		t.Errorf("error %v, want one about strange", err)
	}
	if len(found) != 2 || found[0].Log.Header().CaptureID != "a" || found[1].Log.Header().CaptureID != "b" {
		t.Fatalf("found %+v", found)
	}
	if diff := cmp.Diff(testHeader("a").Setup, found[0].Log.Header().Setup); diff != "" {
		t.Error(diff)
	}
	for _, f := range found {
		if err := errors.Join(f.Log.Close(), s.Remove(f.Log.Header().CaptureID), s.Remove(f.Log.Header().CaptureID)); err != nil {
			t.Error(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "strange" {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestCaptureIDsThatAreNoNames(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	for _, id := range []string{"", ".", "..", "a/b", "../x", ".lock"} {
		if _, err := s.Create(testHeader(id)); err == nil {
			t.Errorf("capture id %q was taken", id)
		}
	}
}

func FuzzSpoolRecord(f *testing.F) {
	c := testChunk(f, 3, 300)
	whole := appendChunk(nil, c)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(appendRecord(appendRecord(nil, RecordEvent, []byte(`{"Kind":1}`)), RecordState, []byte(`{}`)))
	f.Add([]byte{})
	f.Add(make([]byte, frameSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := wholeRecords(b)
		if n < 0 || n > len(b) {
			t.Fatalf("%d whole bytes of %d", n, len(b))
		}
		for rest := b; ; {
			fr, body, tail, err := ParseRecord(rest)
			if err != nil {
				if !errors.Is(err, ErrTorn) {
					t.Fatalf("error %v does not wrap ErrTorn", err)
				}
				return
			}
			if len(rest) != frameSize+len(body)+len(tail) || fr.Body != len(body) {
				t.Fatalf("%d bytes became %d + %d", len(rest), len(body), len(tail))
			}
			if again := appendRecord(nil, fr.Type, body); !bytes.Equal(again, rest[:len(again)]) {
				t.Fatal("a record that was read is not the one that is written")
			}
			if fr.Type == RecordChunk {
				parseChunkHead(body)
			}
			rest = tail
		}
	})
}

// A capture of a later version's layout is left as it is, and the reason says both.
func TestLaterFormatIsLeft(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	l, err := s.Create(testHeader("c1"))
	if err == nil {
		err = errors.Join(l.State(State{State: 4, Final: true}), l.Close(), s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "c1", headerName)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	later := bytes.Replace(b, []byte(`"format": 1`), []byte(`"format": 2`), 1)
	if err := os.WriteFile(name, later, 0o644); err != nil {
		t.Fatal(err)
	}
	found, err := openStore(t, dir, Options{}).Captures()
	if len(found) != 0 || err == nil || !strings.Contains(err.Error(), "format 2, this version reads 1") {
		t.Errorf("%d captures, %v", len(found), err)
	}
	if after, err := os.ReadFile(name); err != nil || !bytes.Equal(after, later) {
		t.Errorf("it was changed: %v", err)
	}
}

// stuckDisk stands still until it is let go.
type stuckDisk struct {
	File
	entered chan struct{}
	letGo   chan struct{}
}

func (d *stuckDisk) Write(p []byte) (int, error) {
	select {
	case d.entered <- struct{}{}:
	default:
	}
	<-d.letGo
	return d.File.Write(p)
}

// What a capture brings while the disk stands still lies in memory that was
// there before: the log's memory does not grow.
func TestStallTakesNoNewMemory(t *testing.T) {
	const room = 64 << 10
	disk := &stuckDisk{entered: make(chan struct{}, 1), letGo: make(chan struct{})}
	s := openStore(t, t.TempDir(), Options{Buffer: room, OpenFile: func(name string) (File, error) {
		f, err := openFile(name)
		disk.File = f
		return disk, err
	}})
	l, err := s.Create(testHeader("c1"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(b []byte) *byte { return unsafe.SliceData(b) }
	first, second := at(l.pending), at(l.spare)
	c := testChunk(t, 0, 300)
	if err := l.Chunk(c); err != nil {
		t.Fatal(err)
	}
	<-disk.entered // the first buffer is being written
	n := room / chunkRecordSize(c)
	for no := range n {
		if err := l.Chunk(testChunk(t, uint64(no+1), 300)); err != nil {
			t.Fatal(err)
		}
	}
	l.mu.Lock()
	if at(l.pending) != second || cap(l.pending) != room {
		t.Errorf("%d chunks moved the buffer, or made %d bytes of %d", n, cap(l.pending), room)
	}
	l.mu.Unlock()
	close(disk.letGo)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if types, _ := all(t, l); len(types) != n+1 {
		t.Errorf("%d records came back of %d", len(types), n+1)
	}

	next, err := s.Create(testHeader("c2"))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if p, q := at(next.pending), at(next.spare); p == q || (p != first && p != second) || (q != first && q != second) {
		t.Error("the next capture does not take over the buffers of the one before")
	}
}

// Forgotten chunks keep their heads and their places; their room is free, also after a restart, and they are no damage.
func TestForget(t *testing.T) {
	for _, final := range []bool{false, true} {
		dir := memoryDir(t)
		s := openStore(t, dir, Options{})
		l, err := s.Create(testHeader("20261129-080000-0000000a"))
		if err != nil {
			t.Fatal(err)
		}
		const chunks, scans, kept = 8, 20_000, 5
		must(t, l.Event(measure.Event{Kind: measure.EventNote, Detail: "stays"}))
		for no := range uint64(chunks) {
			must(t, l.Chunk(testChunk(t, no, scans)))
		}
		must(t, l.Sync())
		early, err := l.NewReader()
		must(t, err)
		defer early.Close()
		_, err = early.Next()
		must(t, err)
		must(t, l.Forget(2))
		// A process that was killed here had written heads, and not that they count.
		heads, err := os.OpenFile(l.beside(headsName), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		_, err = heads.WriteString("junk")
		must(t, errors.Join(err, heads.Close()))
		must(t, l.Forget(kept))
		must(t, l.Forget(2))             // of late: nothing to do
		for no := range uint64(chunks) { // a reader that stands in the hole goes on
			if rec, err := early.Next(); err != nil || rec.Chunk.No != no {
				t.Errorf("chunk %d is %+v, %v", no, rec.Chunk, err)
			}
		}
		size, held := l.Size(), l.Held()
		if want := size * (chunks - kept) / chunks; held < want || held > want+2*block {
			t.Errorf("%d of %d bytes are held", held, size)
		}
		if final {
			must(t, l.State(State{State: session.Complete, Final: true}))
		}
		must(t, l.Close())
		must(t, s.Close())
		s = openStore(t, dir, Options{})
		found, err := s.Captures()
		if err != nil || len(found) != 1 || found[0].Holes != 0 || found[0].Torn != 0 || found[0].Sealed != final {
			t.Fatalf("%+v, %v", found, err)
		}
		l = found[0].Log
		if now := l.Size() - l.Held(); now != size-held {
			t.Errorf("%d bytes are free after the restart, %d were", now, size-held)
		}
		if holes, err := l.Mend(); err != nil || holes != 0 {
			t.Errorf("%d holes are mended, %v", holes, err)
		}
		r, err := l.NewReader()
		must(t, err)
		defer r.Close()
		var buf []byte
		rec, err := r.Next()
		must(t, err)
		if e, err := r.Event(rec); err != nil || e.Detail != "stays" {
			t.Errorf("%+v, %v", e, err)
		}
		for no := range uint64(chunks) {
			rec, err := r.Next()
			must(t, err)
			if c := rec.Chunk; c.No != no || c.FirstScan != no*scans || c.Scans != scans {
				t.Errorf("chunk %d has the head %+v", no, c)
			}
			if _, err := r.Body(rec, &buf); errors.Is(err, ErrForgotten) != (no < kept) || err != nil && no >= kept {
				t.Errorf("chunk %d: %v", no, err)
			}
		}
		must(t, l.Close())
		must(t, s.Remove("20261129-080000-0000000a"))
	}
}

// A client that names a chunk too far forgets what is there, and nothing that comes.
func TestForgetTooMuch(t *testing.T) {
	l, err := openStore(t, memoryDir(t), Options{}).Create(testHeader("20261129-080000-0000000b"))
	must(t, err)
	defer l.Close()
	must(t, l.Forget(math.MaxUint64))
	must(t, l.Chunk(testChunk(t, 0, 3000)))
	must(t, l.Event(measure.Event{Kind: measure.EventNote, Detail: "first"}))
	must(t, l.Sync())
	r, err := l.NewReader()
	must(t, err)
	defer r.Close()
	_, err = r.Next()
	must(t, err)
	note, err := r.Next()
	must(t, err)
	must(t, l.Forget(math.MaxUint64))
	must(t, l.Chunk(testChunk(t, 1, 3000)))
	must(t, l.Sync())
	if e, err := r.Event(note); err != nil || e.Detail != "first" { // which was forgotten before it was read
		t.Errorf("%+v, %v", e, err)
	}
	rec, err := r.Next()
	must(t, err)
	var buf []byte
	if _, err := r.Body(rec, &buf); err != nil || rec.Chunk.No != 1 {
		t.Errorf("chunk %d: %v", rec.Chunk.No, err)
	}
}

// Where the heads, or how far they go, are damaged, a capture is set aside, and its log is not mended.
func TestDamagedHeads(t *testing.T) {
	dir := memoryDir(t)
	s := openStore(t, dir, Options{})
	const id = "20261129-080000-0000000c"
	l, err := s.Create(testHeader(id))
	must(t, err)
	put(t, l, 6)
	must(t, l.Sync())
	must(t, l.Forget(4))
	must(t, l.Close())
	must(t, s.Close())
	for _, name := range []string{headsName, forgottenName} {
		path := filepath.Join(dir, id, name)
		good, err := os.ReadFile(path)
		must(t, err)
		log, err := os.ReadFile(filepath.Join(dir, id, logName))
		must(t, err)
		for at := range good {
			bad := bytes.Clone(good)
			bad[at] ^= 0x10
			must(t, os.WriteFile(path, bad, 0o644))
			s := openStore(t, dir, Options{})
			found, err := s.Captures()
			if err == nil || len(found) != 0 || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("%s, byte %d: %+v, %v", name, at, found, err)
			}
			must(t, s.Close())
		}
		if now, err := os.ReadFile(filepath.Join(dir, id, logName)); err != nil || !bytes.Equal(now, log) {
			t.Errorf("the log was changed: %v", err)
		}
		must(t, os.WriteFile(path, good, 0o644))
	}
	if found, err := openStore(t, dir, Options{}).Captures(); err != nil || len(found) != 1 || found[0].Holes != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}
