package spool

import (
	"testing"
	"unsafe"
)

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
