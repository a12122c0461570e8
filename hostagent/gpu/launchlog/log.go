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
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

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
	tagYielded = 'Y' // time after started: the program ended CUPTI's work
	tagRange   = 'R' // kind, thread, domain, id, time after started, name
	tagCall    = 'C' // correlation, thread, time after started
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

// RangeKind is an event of a range.
type RangeKind uint8

// The events: of a thread's stack, and of ranges that may end on another thread.
const (
	Push RangeKind = iota
	Pop
	Start
	End
)

// Range is a begin or an end of a range that the program named.
type Range struct {
	Kind           RangeKind
	Thread, Domain uint32
	ID             uint64 // of Start and End
	At             int64  // ns since 1970 on the host's clock
	Name           uint32 // index into the names, of Push and Start
}

// Call is the call of the driver or runtime that launched kernels.
type Call struct {
	Thread uint32
	At     int64 // ns since 1970 on the host's clock
}

// mostRanges bounds the events of ranges of a process, and the calls.
const mostRanges = 1 << 24

// Process is the content of a log beside its kernels.
type Process struct {
	PID     uint32
	CUPTI   uint32 // result of cuptiGetVersion; 0 where CUPTI was not found
	Started int64  // ns since 1970
	Names   []string
	Devices map[uint32][16]byte // UUID by ordinal, where the driver returned one
	Trouble []string
	Markers []Marker
	Ranges  []Range
	Calls   map[uint32]Call // by correlation; where there are ranges
	// Yielded is when the program ended CUPTI's work, ns since 1970: no kernel was recorded
	// from then on unless a Trouble reports it. 0 for never.
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
	out.numbers(uint64(pid), uint64(cupti), signed(started))
	return out
}

func (w *Writer) numbers(values ...uint64) {
	for _, v := range values {
		w.buf = binary.AppendUvarint(w.buf, v)
	}
}

// signed is a number among others that have no sign, as binary.AppendVarint writes it.
func signed(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

// entry adds an entry of a tag and numbers. It first writes the buffer when that is full.
func (w *Writer) entry(tag byte, values ...uint64) {
	if len(w.buf) >= flushBytes {
		_ = w.Flush() // the error is kept, and returned by End
	}
	w.buf = append(w.buf, tag)
	w.numbers(values...)
}

// text adds an entry of a tag and a text, which is cut to maxText.
func (w *Writer) text(tag byte, s []byte) {
	s = s[:min(len(s), maxText)]
	w.entry(tag, uint64(len(s)))
	w.buf = append(w.buf, s...)
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
	w.entry(tagDevice, uint64(ordinal))
	w.buf = append(w.buf, uuid[:]...)
}

// Kernel adds one execution; its name must have been added.
func (w *Writer) Kernel(k *Kernel) {
	// Distances from the kernel before: they take two or three bytes instead of nine.
	start, correlation := signed(k.Start-w.lastStart), signed(int64(k.Correlation)-int64(w.lastCorr))
	w.entry(tagKernel, uint64(k.Name), start, signed(k.End-k.Start), uint64(k.Device), uint64(k.Stream), correlation,
		uint64(k.Graph), uint64(k.Grid[0]), uint64(k.Grid[1]), uint64(k.Grid[2]), uint64(k.Block[0]),
		uint64(k.Block[1]), uint64(k.Block[2]))
	w.lastStart, w.lastCorr = k.Start, k.Correlation
	w.kernels++
}

// Reported counts kernel records as CUPTI handed them out, written or not.
func (w *Writer) Reported(n uint64) { w.reported += n }

// Dropped notes records that CUPTI lost.
func (w *Writer) Dropped(n uint64) {
	w.dropped += n
	w.entry(tagDropped, n)
}

// Marker adds a marker that was played; it has at least one edge.
func (w *Writer) Marker(m *Marker) {
	edges := m.Edges[:min(len(m.Edges), maxEdges)]
	w.entry(tagMarker, uint64(m.Kind), uint64(len(edges)), signed(int64(m.First)))
	last := w.started
	for _, e := range edges {
		w.numbers(signed(e - last))
		last = e
	}
}

// Trouble notes why something is missing.
func (w *Writer) Trouble(s string) { w.text(tagTrouble, []byte(s)) }

// Yielded notes when (ns since 1970) the program ended CUPTI's work.
func (w *Writer) Yielded(at int64) { w.entry(tagYielded, signed(at-w.started)) }

// Range adds an event of a range; its name must have been added.
func (w *Writer) Range(r *Range) {
	w.entry(tagRange, uint64(r.Kind), uint64(r.Thread), uint64(r.Domain), r.ID, signed(r.At-w.started), uint64(r.Name))
}

// Call adds the call that launched the kernels of a correlation.
func (w *Writer) Call(correlation uint32, c Call) {
	w.entry(tagCall, uint64(correlation), uint64(c.Thread), signed(c.At-w.started))
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
	w.entry(tagEnd, w.kernels, w.reported, w.dropped)
	return w.Flush()
}

// Reader reads a log entry by entry; memory grows with the names alone.
type Reader struct {
	// Process is filled while the log is read; it is complete at its end.
	Process   Process
	r         *bufio.Reader
	in        *counted
	lastStart int64
	lastCorr  uint32
	err       error // of the entry that is being read
}

// counted counts the bytes that are read from a file, for positions in errors.
type counted struct {
	io.Reader
	n int64
}

// Read reads and counts.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// Open reads the begin of a log.
func Open(r io.Reader) (*Reader, error) {
	l := &Reader{in: &counted{Reader: r}}
	l.r = bufio.NewReaderSize(l.in, 1<<16)
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(l.r, head); err != nil || string(head) != magic {
		return nil, fmt.Errorf("%w (it begins with %q)", ErrNotLog, head)
	}
	pid, cupti, started := l.upTo(math.MaxUint32), l.upTo(math.MaxUint32), l.int()
	if l.err != nil {
		return nil, fmt.Errorf("%w: its head: %w", ErrNotLog, l.err)
	}
	l.Process = Process{
		PID: uint32(pid), CUPTI: uint32(cupti), Started: started, Devices: map[uint32][16]byte{}, Calls: map[uint32]Call{},
	}
	l.lastStart = started
	return l, nil
}

// Next fills k with the next kernel. At the end it returns io.EOF, also where the last
// entry was cut short; Process.Whole distinguishes the two. Damage wraps ErrCorrupt.
func (l *Reader) Next(k *Kernel) error {
	for {
		at := l.in.n - int64(l.r.Buffered())
		tag, err := l.r.ReadByte()
		if err != nil {
			return err
		}
		kernel, err := l.entry(tag, k)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			l.Process.Whole = false
			return io.EOF
		case err != nil:
			return fmt.Errorf("%w: at byte %d: %w", ErrCorrupt, at, err)
		case kernel:
			return nil
		}
	}
}

// entry reads one entry behind its tag; kernel is true where it filled k.
func (l *Reader) entry(tag byte, k *Kernel) (kernel bool, err error) {
	p := &l.Process
	l.err, p.Whole = nil, p.Whole && tag == tagEnd
	switch tag {
	case tagKernel:
		if l.kernel(k); l.err == nil {
			p.Kernels++
		}
		return l.err == nil, l.err
	case tagName:
		s := l.text()
		l.refuse(len(p.Names) >= maxNames, "more than %d names", maxNames)
		if l.err == nil {
			p.Names = append(p.Names, s)
		}
	case tagTrouble:
		if s := l.text(); l.err == nil && len(p.Trouble) < 100 {
			p.Trouble = append(p.Trouble, s)
		}
	case tagMarker:
		l.marker()
	case tagDevice:
		ordinal := l.upTo(1 << 16)
		var uuid [16]byte
		if l.err == nil {
			_, l.err = io.ReadFull(l.r, uuid[:])
		}
		if l.err == nil {
			p.Devices[uint32(ordinal)] = uuid
		}
	case tagDropped:
		p.Dropped += l.upTo(math.MaxInt64)
	case tagYielded:
		p.Yielded = p.Started + l.int()
	case tagRange:
		l.rangeEvent()
	case tagCall:
		l.call()
	case tagEnd:
		kernels, reported, dropped := l.upTo(math.MaxInt64), l.upTo(math.MaxInt64), l.upTo(math.MaxInt64)
		l.refuse(kernels != p.Kernels, "it counts %d kernels, %d are there", kernels, p.Kernels)
		if l.err == nil {
			p.Reported, p.Dropped, p.Whole = reported, dropped, true
		}
	default:
		l.refuse(true, "unknown entry %q", tag)
	}
	return false, l.err
}

// The readers below keep the entry's first error in l.err, and read nothing after it: their
// results are then zero.

// refuse sets an error where cond is true.
func (l *Reader) refuse(cond bool, format string, a ...any) {
	if l.err == nil && cond {
		l.err = fmt.Errorf(format, a...)
	}
}

// upTo reads an unsigned number and refuses one above most.
func (l *Reader) upTo(most uint64) (v uint64) {
	if l.err == nil {
		v, l.err = binary.ReadUvarint(l.r)
		l.refuse(v > most, "%d is more than %d", v, most)
	}
	return v
}

// int reads a signed number.
func (l *Reader) int() (v int64) {
	if l.err == nil {
		v, l.err = binary.ReadVarint(l.r)
	}
	return v
}

// text reads a length and so many bytes, maxText at most.
func (l *Reader) text() string {
	n := l.upTo(maxText)
	if l.err != nil {
		return ""
	}
	b := make([]byte, n)
	_, l.err = io.ReadFull(l.r, b)
	return string(b)
}

// marker reads a marker: kind, number of edges, first chip, then each edge as its distance
// in ns from the one before.
func (l *Reader) marker() {
	p := &l.Process
	kind, n, first := l.upTo(math.MaxUint8), l.upTo(maxEdges), l.int()
	l.refuse(n == 0 || first < -maxEdges || first > maxEdges || len(p.Markers) >= maxMarkers,
		"a marker of %d edges from chip %d on, after %d markers", n, first, len(p.Markers))
	if l.err != nil {
		return
	}
	m := Marker{Kind: marker.Kind(kind), First: int(first), Edges: make([]int64, n)}
	last := p.Started
	for i := range m.Edges {
		last += l.int()
		m.Edges[i] = last
	}
	if l.err == nil {
		p.Markers = append(p.Markers, m)
	}
}

// rangeEvent reads an event of a range.
func (l *Reader) rangeEvent() {
	p := &l.Process
	kind, thread, domain := l.upTo(uint64(End)), l.upTo(math.MaxUint32), l.upTo(math.MaxUint32)
	r := Range{Kind: RangeKind(kind), Thread: uint32(thread), Domain: uint32(domain), ID: l.upTo(math.MaxUint64)}
	r.At = p.Started + l.int()
	r.Name = uint32(l.upTo(math.MaxUint32))
	l.refuse(int(r.Name) >= max(len(p.Names), 1) || len(p.Ranges) >= mostRanges, "a range of name %d", r.Name)
	if l.err == nil {
		p.Ranges = append(p.Ranges, r)
	}
}

// call reads a call that launched kernels.
func (l *Reader) call() {
	p := &l.Process
	correlation, thread, at := l.upTo(math.MaxUint32), l.upTo(math.MaxUint32), l.int()
	l.refuse(len(p.Calls) >= mostRanges, "more than %d calls", mostRanges)
	if l.err == nil {
		p.Calls[uint32(correlation)] = Call{uint32(thread), p.Started + at}
	}
}

// kernel reads one execution. Start and correlation are distances from the kernel before.
func (l *Reader) kernel(k *Kernel) {
	names := len(l.Process.Names)
	name := l.upTo(math.MaxUint32)
	l.refuse(name >= uint64(names), "name %d of %d", name, names)
	start, length := l.int(), l.int()
	*k = Kernel{Name: uint32(name), Start: l.lastStart + start}
	k.End = k.Start + length
	l.refuse(length < 0 || k.End < k.Start, "a kernel of %d ns", length)
	k.Device, k.Stream = uint32(l.upTo(math.MaxUint32)), uint32(l.upTo(math.MaxUint32))
	k.Correlation = uint32(int64(l.lastCorr) + l.int())
	for _, to := range []*uint32{&k.Graph, &k.Grid[0], &k.Grid[1], &k.Grid[2], &k.Block[0], &k.Block[1], &k.Block[2]} {
		*to = uint32(l.upTo(math.MaxUint32))
	}
	if l.err == nil {
		l.lastStart, l.lastCorr = k.Start, k.Correlation
	}
}
