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

// Reader reads a log entry by entry; memory grows with the names alone.
type Reader struct {
	// Process is filled while the log is read; it is complete at its end.
	Process   Process
	r         *bufio.Reader
	n         int64 // bytes read
	lastStart int64
	lastCorr  uint32
	dropped   uint64
	err       error // of the entry that is being read
}

// Open reads the begin of a log.
func Open(r io.Reader) (*Reader, error) {
	l := &Reader{r: bufio.NewReaderSize(r, 1<<16)}
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(l, head); err != nil || string(head) != magic {
		return nil, fmt.Errorf("%w (it begins with %q)", ErrNotLog, head)
	}
	pid, cupti, started := l.upTo(math.MaxUint32), l.upTo(math.MaxUint32), l.int()
	if l.err != nil {
		return nil, fmt.Errorf("%w: its head: %w", ErrNotLog, l.err)
	}
	l.Process = Process{PID: uint32(pid), CUPTI: uint32(cupti), Started: started, Devices: map[uint32][16]byte{}}
	l.lastStart = started
	return l, nil
}

// Read and ReadByte count the bytes that they read, for positions in errors.
func (l *Reader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	l.n += int64(n)
	return n, err
}

// ReadByte is Read for one byte.
func (l *Reader) ReadByte() (byte, error) {
	b, err := l.r.ReadByte()
	if err == nil {
		l.n++
	}
	return b, err
}

// Next fills k with the next kernel. At the end it returns io.EOF, also where the last
// entry was cut short; Process.Whole distinguishes the two. Damage wraps ErrCorrupt.
func (l *Reader) Next(k *Kernel) error {
	for {
		at := l.n
		tag, err := l.ReadByte()
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
		l.device()
	case tagDropped:
		l.dropped += l.upTo(math.MaxInt64)
		p.Dropped = l.dropped
	case tagYielded:
		p.Yielded = p.Started + l.int()
	case tagEnd:
		l.end()
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
		v, l.err = binary.ReadUvarint(l)
		l.refuse(v > most, "%d is more than %d", v, most)
	}
	return v
}

// int reads a signed number.
func (l *Reader) int() (v int64) {
	if l.err == nil {
		v, l.err = binary.ReadVarint(l)
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
	_, l.err = io.ReadFull(l, b)
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

// device reads the UUID of a device's ordinal.
func (l *Reader) device() {
	ordinal := l.upTo(1 << 16)
	if l.err != nil {
		return
	}
	var uuid [16]byte
	if _, l.err = io.ReadFull(l, uuid[:]); l.err == nil {
		l.Process.Devices[uint32(ordinal)] = uuid
	}
}

// end reads the counts, and compares that of the kernels with those read.
func (l *Reader) end() {
	p := &l.Process
	kernels, reported, dropped := l.upTo(math.MaxInt64), l.upTo(math.MaxInt64), l.upTo(math.MaxInt64)
	l.refuse(kernels != p.Kernels, "it counts %d kernels, %d are there", kernels, p.Kernels)
	if l.err == nil {
		p.Reported, p.Dropped, p.Whole = reported, dropped, true
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
