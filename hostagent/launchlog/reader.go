package launchlog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"wattmark/measure/marker"
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
}

// Open reads the begin of a log.
func Open(r io.Reader) (*Reader, error) {
	l := &Reader{r: bufio.NewReaderSize(r, 1<<16)}
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(l, head); err != nil || string(head) != magic {
		return nil, fmt.Errorf("%w (it begins with %q)", ErrNotLog, head)
	}
	pid, err := l.upTo(math.MaxUint32)
	cupti, e := l.upTo(math.MaxUint32)
	started, f := binary.ReadVarint(l)
	if err := errors.Join(err, e, f); err != nil {
		return nil, fmt.Errorf("%w: its head: %w", ErrNotLog, err)
	}
	l.Process = Process{PID: uint32(pid), CUPTI: uint32(cupti), Started: started, Devices: map[uint32][16]byte{}}
	l.lastStart = started
	return l, nil
}

// Read and ReadByte count what they read.
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

// Next fills k with the next kernel. At the end it is io.EOF, also where the
// last entry was cut short: Process.Whole tells. Damage wraps ErrCorrupt.
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

func (l *Reader) entry(tag byte, k *Kernel) (kernel bool, err error) {
	if tag != tagEnd {
		l.Process.Whole = false
	}
	p := &l.Process
	switch tag {
	case tagKernel:
		if err := l.kernel(k); err != nil {
			return false, err
		}
		p.Kernels++
		return true, nil
	case tagName:
		s, err := l.text()
		if err == nil && len(p.Names) >= maxNames {
			err = fmt.Errorf("more than %d names", maxNames)
		}
		if err == nil {
			p.Names = append(p.Names, s)
		}
		return false, err
	case tagTrouble:
		s, err := l.text()
		if err == nil && len(p.Trouble) < 100 {
			p.Trouble = append(p.Trouble, s)
		}
		return false, err
	case tagMarker:
		return false, l.marker()
	case tagDevice:
		return false, l.device()
	case tagDropped:
		n, err := l.upTo(math.MaxInt64)
		l.dropped += n
		p.Dropped = l.dropped
		return false, err
	case tagYielded:
		after, err := binary.ReadVarint(l)
		p.Yielded = p.Started + after
		return false, err
	case tagEnd:
		return false, l.end()
	}
	return false, fmt.Errorf("unknown entry %q", tag)
}

func (l *Reader) upTo(most uint64) (uint64, error) {
	v, err := binary.ReadUvarint(l)
	if err == nil && v > most {
		err = fmt.Errorf("%d is more than %d", v, most)
	}
	return v, err
}

func (l *Reader) text() (string, error) {
	n, err := l.upTo(maxText)
	if err != nil {
		return "", err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(l, b)
	return string(b), err
}

func (l *Reader) marker() error {
	kind, err := l.upTo(math.MaxUint8)
	if err != nil {
		return err
	}
	n, err := l.upTo(maxEdges)
	if err != nil {
		return err
	}
	first, err := binary.ReadVarint(l)
	if err != nil {
		return err
	}
	if n == 0 || first < -maxEdges || first > maxEdges || len(l.Process.Markers) >= maxMarkers {
		return fmt.Errorf("a marker of %d edges from chip %d on, after %d markers", n, first, len(l.Process.Markers))
	}
	m := Marker{Kind: marker.Kind(kind), First: int(first), Edges: make([]int64, n)}
	last := l.Process.Started
	for i := range m.Edges {
		d, err := binary.ReadVarint(l)
		if err != nil {
			return err
		}
		last += d
		m.Edges[i] = last
	}
	l.Process.Markers = append(l.Process.Markers, m)
	return nil
}

func (l *Reader) device() error {
	ordinal, err := l.upTo(1 << 16)
	if err != nil {
		return err
	}
	var uuid [16]byte
	if _, err := io.ReadFull(l, uuid[:]); err != nil {
		return err
	}
	l.Process.Devices[uint32(ordinal)] = uuid
	return nil
}

func (l *Reader) end() error {
	kernels, err := l.upTo(math.MaxInt64)
	if err != nil {
		return err
	}
	reported, err := l.upTo(math.MaxInt64)
	if err != nil {
		return err
	}
	dropped, err := l.upTo(math.MaxInt64)
	if err != nil {
		return err
	}
	p := &l.Process
	if kernels != p.Kernels {
		return fmt.Errorf("it counts %d kernels, %d are there", kernels, p.Kernels)
	}
	p.Reported, p.Dropped, p.Whole = reported, dropped, true
	return nil
}

func (l *Reader) kernel(k *Kernel) error {
	name, err := l.upTo(math.MaxUint32)
	if err != nil {
		return err
	}
	if name >= uint64(len(l.Process.Names)) {
		return fmt.Errorf("name %d of %d", name, len(l.Process.Names))
	}
	start, err := binary.ReadVarint(l)
	if err != nil {
		return err
	}
	length, err := binary.ReadVarint(l)
	if err != nil {
		return err
	}
	*k = Kernel{Name: uint32(name), Start: l.lastStart + start}
	if k.End = k.Start + length; length < 0 || k.End < k.Start {
		return fmt.Errorf("a kernel of %d ns", length)
	}
	for _, to := range []*uint32{&k.Device, &k.Stream} {
		v, err := l.upTo(math.MaxUint32)
		if err != nil {
			return err
		}
		*to = uint32(v)
	}
	corr, err := binary.ReadVarint(l)
	if err != nil {
		return err
	}
	k.Correlation = uint32(int64(l.lastCorr) + corr)
	for _, to := range []*uint32{&k.Graph, &k.Grid[0], &k.Grid[1], &k.Grid[2], &k.Block[0], &k.Block[1], &k.Block[2]} {
		v, err := l.upTo(math.MaxUint32)
		if err != nil {
			return err
		}
		*to = uint32(v)
	}
	l.lastStart, l.lastCorr = k.Start, k.Correlation
	return nil
}
