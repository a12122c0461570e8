package main

import (
	"context"
	"io"
	"slices"
	"sync"

	"wattmark/monitor/emulator/niface"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// mostRecorded bounds a recording.
const mostRecorded = 8 << 20

// tap keeps the longest run of bytes that a device sent without being told
// anything in between: its stream, or its largest answer.
type tap struct {
	fits func([]byte) bool // nil for any

	mu        sync.Mutex
	run, best []byte
}

// tapped is a device's end of a line with a tap on it.
type tapped struct {
	io.ReadWriteCloser
	*tap
}

func (t *tap) around(rw io.ReadWriteCloser) io.ReadWriteCloser { return &tapped{rw, t} }

// Read passes what the device is told.
func (t *tapped) Read(b []byte) (int, error) {
	n, err := t.ReadWriteCloser.Read(b)
	if n > 0 {
		t.end()
	}
	return n, err
}

// Write passes what the device says.
func (t *tapped) Write(b []byte) (int, error) {
	n, err := t.ReadWriteCloser.Write(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run = append(t.run, b[:min(n, mostRecorded-len(t.run))]...)
	return n, err
}

// end ends a run.
func (t *tap) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.run) > len(t.best) && (t.fits == nil || t.fits(t.run)) {
		t.run, t.best = t.best, t.run
	}
	t.run = t.run[:0]
}

// longest ends the recording.
func (t *tap) longest() []byte {
	t.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.best)
}

// niTap keeps the largest reply to ReadRaw.
type niTap struct {
	*niface.Face
	*tap
}

// ReadRaw passes a read.
func (n *niTap) ReadRaw(ctx context.Context, q *nipb.ReadRawRequest) (*nipb.ReadRawResponse, error) {
	r, err := n.Face.ReadRaw(ctx, q)
	if err == nil {
		n.mu.Lock()
		if size := int(r.GetSampsRead()) * int(q.GetArraySizeInBytes()) / max(1, int(q.GetNumSampsPerChan())); size <= len(r.GetReadArray()) {
			n.run = append(n.run[:0], r.GetReadArray()[:size]...)
		}
		n.mu.Unlock()
		n.end()
	}
	return r, err
}
