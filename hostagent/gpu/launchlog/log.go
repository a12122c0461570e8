// Package launchlog reads and writes the file in which the CUDA injection leaves the kernels
// that a program ran: one file a process, written while the program runs, read after its
// end. Bytes: docs/format.md.
//
//	Writer  magic, process ─ names, devices, kernels, troubles … ─ count
//	Reader  the same entries in order, each checked for its form
//
// A log that was cut short (the program was killed) is read as far as it goes; its
// Process.Whole is false, for only the last entry, the count, completes it.
package launchlog

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/wattmark/wattmark/measure/marker"
)

// Sentinel errors, wrapped with where in the file.
var (
	// ErrNotLog: the file does not begin as a log does.
	ErrNotLog = errors.New("not a log of kernels")
	// ErrCorrupt: an entry that cannot be.
	ErrCorrupt = errors.New("log of kernels is damaged")
)

// magic begins a log, with the number of its format.
const magic = "wmlaunch\x01"

// The entries. Each begins with its tag.
const (
	tagName    = 'N' // length, bytes: the next name
	tagDevice  = 'D' // ordinal, 16 bytes of UUID
	tagKernel  = 'K' // see Writer.Kernel
	tagMarker  = 'M' // kind, edges, number of the first edge's chip, time after started, distances
	tagDropped = 'X' // records that CUPTI dropped since the last
	tagTrouble = 'T' // length, bytes: why there is nothing, or less
	tagYielded = 'Y' // time after started: CUPTI was given to the program's own profiler
	tagEnd     = 'E' // kernels written, reported by CUPTI, dropped
)

const (
	// maxText bounds a name or a message, in bytes; longer ones are cut.
	maxText = 1 << 14
	// maxNames bounds the string table of one process.
	maxNames = 1 << 20
	// maxEdges bounds the edges of one marker, maxMarkers the markers of a process.
	maxEdges, maxMarkers = 1 << 12, 1 << 20
)

// Kernel is one execution of a kernel.
type Kernel struct {
	Name        uint32 // index into the names
	Start, End  int64  // ns since 1970 on the host's clock
	Device      uint32 // the process's CUDA ordinal
	Stream      uint32
	Correlation uint32 // the launch that it came from; graph nodes share one
	Graph       uint32 // id of the CUDA graph, 0 for none
	Grid, Block [3]uint32
}

// Marker is a marker that was played around one kernel in the process.
type Marker struct {
	Kind  marker.Kind
	First int     // chip that begins at the first edge
	Edges []int64 // ns since 1970 on the host's clock
}

// Process is the content of a log beside its kernels.
type Process struct {
	PID     uint32
	CUPTI   uint32 // result of cuptiGetVersion; 0 where CUPTI was not found
	Started int64  // ns since 1970
	Names   []string
	Devices map[uint32][16]byte // UUID by ordinal, where the driver returned one
	Trouble []string
	Markers []Marker
	// Yielded is when the program's own profiler took CUPTI, ns since 1970: no kernel was
	// recorded from then on. 0 for never.
	Yielded int64
	// Kernels were written, Reported came from CUPTI as kernel records, Dropped were
	// lost within it. Whole is false for a log that ends without its count.
	Kernels, Reported, Dropped uint64
	Whole                      bool
}

// flushBytes bounds the writer's buffer: the bytes that a killed program loses of the
// records that CUPTI had delivered.
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

// text adds an entry of a tag and a text, which is cut to maxText.
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
	// Distances from the kernel before: they take two or three bytes instead of nine.
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

// spill writes the buffer when it is full.
func (w *Writer) spill() {
	if len(w.buf) >= flushBytes {
		_ = w.Flush() // the error is kept, and returned by End
	}
}

// Flush writes the buffered entries to the file.
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
