package launchlog

import (
	"encoding/binary"
	"io"
)

// flushBytes is how much is kept back at most: what a killed program loses of
// what CUPTI had delivered.
const flushBytes = 1 << 16

// Writer writes a log. After an error it writes nothing more and keeps it. It is
// not safe for concurrent use. It allocates nothing a kernel.
type Writer struct {
	w         io.Writer
	buf       []byte
	started   int64
	lastStart int64
	lastCorr  uint32
	names     uint32
	kernels   uint64
	reported  uint64
	dropped   uint64
	err       error
}

// NewWriter begins a log.
func NewWriter(w io.Writer, pid, cupti uint32, started int64) *Writer {
	out := &Writer{w: w, buf: make([]byte, 0, flushBytes+maxText+64), started: started, lastStart: started}
	out.buf = append(out.buf, magic...)
	out.uint(uint64(pid))
	out.uint(uint64(cupti))
	out.int(started)
	return out
}

func (w *Writer) uint(v uint64) { w.buf = binary.AppendUvarint(w.buf, v) }
func (w *Writer) int(v int64)   { w.buf = binary.AppendVarint(w.buf, v) }

func (w *Writer) text(tag byte, s []byte) {
	s = s[:min(len(s), maxText)]
	w.buf = append(w.buf, tag)
	w.uint(uint64(len(s)))
	w.buf = append(w.buf, s...)
	w.spill()
}

// Name adds a name and returns its index; ok is false when the table is full.
func (w *Writer) Name(name []byte) (index uint32, ok bool) {
	if w.names >= maxNames {
		return 0, false
	}
	w.text(tagName, name)
	w.names++
	return w.names - 1, true
}

// Device adds a device's UUID.
func (w *Writer) Device(ordinal uint32, uuid [16]byte) {
	w.buf = append(w.buf, tagDevice)
	w.uint(uint64(ordinal))
	w.buf = append(w.buf, uuid[:]...)
	w.spill()
}

// Kernel adds one execution; its name must have been added.
func (w *Writer) Kernel(k *Kernel) {
	w.buf = append(w.buf, tagKernel)
	w.uint(uint64(k.Name))
	w.int(k.Start - w.lastStart)
	w.int(k.End - k.Start)
	w.uint(uint64(k.Device))
	w.uint(uint64(k.Stream))
	w.int(int64(k.Correlation) - int64(w.lastCorr))
	w.uint(uint64(k.Graph))
	for i := range 3 {
		w.uint(uint64(k.Grid[i]))
	}
	for i := range 3 {
		w.uint(uint64(k.Block[i]))
	}
	w.lastStart, w.lastCorr = k.Start, k.Correlation
	w.kernels++
	w.spill()
}

// Reported counts kernel records as CUPTI handed them out, written or not.
func (w *Writer) Reported(n uint64) { w.reported += n }

// Dropped notes records that CUPTI lost.
func (w *Writer) Dropped(n uint64) {
	w.dropped += n
	w.buf = append(w.buf, tagDropped)
	w.uint(n)
	w.spill()
}

// Marker adds a marker that was played; it has at least one edge.
func (w *Writer) Marker(m *Marker) {
	edges := m.Edges[:min(len(m.Edges), maxEdges)]
	w.buf = append(w.buf, tagMarker)
	w.uint(uint64(m.Kind))
	w.uint(uint64(len(edges)))
	w.int(int64(m.First))
	last := w.started
	for _, e := range edges {
		w.int(e - last)
		last = e
	}
	w.spill()
}

// Trouble notes why something is missing.
func (w *Writer) Trouble(s string) { w.text(tagTrouble, []byte(s)) }

// Yielded notes when (ns since 1970) CUPTI was given to the program's own profiler.
func (w *Writer) Yielded(at int64) {
	w.buf = append(w.buf, tagYielded)
	w.int(at - w.started)
}

func (w *Writer) spill() {
	if len(w.buf) >= flushBytes {
		_ = w.Flush() // kept, and told at the end
	}
}

// Flush hands on what is kept back.
func (w *Writer) Flush() error {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.w.Write(w.buf)
	}
	w.buf = w.buf[:0]
	return w.err
}

// End makes the log whole with its counts. More may follow, and another End.
func (w *Writer) End() error {
	w.buf = append(w.buf, tagEnd)
	w.uint(w.kernels)
	w.uint(w.reported)
	w.uint(w.dropped)
	return w.Flush()
}
