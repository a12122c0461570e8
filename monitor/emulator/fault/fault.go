// Package fault spoils the bytes of an emulated device: bytes dropped, doubled or
// changed, writes in fragments, a stall, a pulled cable. It sits between a
// protocol face and its line, so no face knows of it.
package fault

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// ErrUnplugged is wrapped by the write that meets a pulled cable.
var ErrUnplugged = errors.New("the cable is pulled")

// Kind names a fault.
type Kind uint8

// The faults.
const (
	Drop      Kind = iota + 1 // Bytes bytes are lost
	Duplicate                 // Bytes bytes are sent twice
	Corrupt                   // Bytes bytes get a bit flipped
	Stall                     // nothing is sent For a time; the device waits
	Unplug                    // the line is closed
)

// Fault is one fault at a known place.
type Fault struct {
	Kind Kind
	// At is the number of bytes that the device has sent before it happens.
	At    int64
	Bytes int           // for Drop, Duplicate and Corrupt: 1 at least, and no more than the rest of the write that it meets
	For   time.Duration // for Stall
}

// Faults are the faults of a line. Chances are per byte. The zero value is a
// perfect line.
type Faults struct {
	Seed                     uint64
	Drop, Duplicate, Corrupt float64
	// After is the number of bytes that pass untouched by chance, so that a
	// greeting can be let through.
	After int64
	// Fragment cuts writes into pieces of 1 to Fragment bytes; zero for none.
	Fragment int
	Script   []Fault
}

// Counts are a line's faults so far.
type Counts struct {
	Sent                           int64 // bytes that the device sent
	Dropped, Duplicated, Corrupted int64
}

// Line is a line with faults. Reads pass untouched. Write belongs to one
// goroutine; Trigger, Counts and Close may be called from any.
type Line struct {
	rw     io.ReadWriteCloser
	faults Faults
	rng    *rand.Rand
	out    []byte
	closed chan struct{}
	once   sync.Once
	err    error

	mu     sync.Mutex
	script []Fault // sorted by At
	counts Counts
}

// New puts faults on a line.
func New(rw io.ReadWriteCloser, f Faults) *Line {
	l := &Line{rw: rw, faults: f, rng: rand.New(rand.NewPCG(f.Seed, 0x6661756c74)), closed: make(chan struct{})}
	l.script = slices.SortedStableFunc(slices.Values(f.Script), func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return l
}

// Trigger makes a fault happen with the next byte that the device sends; its
// At is ignored.
func (l *Line) Trigger(f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.At = l.counts.Sent
	l.script = append([]Fault{f}, l.script...)
}

// Counts returns the faults so far.
func (l *Line) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Read reads the driver's bytes.
func (l *Line) Read(p []byte) (int, error) { return l.rw.Read(p) }

// Close pulls the cable.
func (l *Line) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.err = l.rw.Close()
	})
	return l.err
}

// Write sends p with the line's faults and reports the whole of p as written
// unless the line itself fails: the device cannot know of losses.
func (l *Line) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		// So many bytes precede the next scripted fault, which happens once its place is reached.
		n, fault := len(p)-done, (*Fault)(nil)
		l.mu.Lock()
		if len(l.script) > 0 && l.script[0].At < l.counts.Sent+int64(n) {
			n, fault = int(max(0, l.script[0].At-l.counts.Sent)), &l.script[0]
			l.script = l.script[1:]
		}
		l.mu.Unlock()
		if err := l.send(p[done : done+n]); err != nil {
			return done, err
		}
		done += n
		if fault == nil {
			continue
		}
		n, err := l.do(*fault, p[done:])
		if err != nil {
			return done, err
		}
		done += n
	}
	return len(p), nil
}

// do carries out a scripted fault on the bytes that follow and returns how many
// of them it used up. A fault does not reach beyond one write.
func (l *Line) do(f Fault, p []byte) (int, error) {
	n := min(max(f.Bytes, 1), len(p))
	switch f.Kind {
	case Drop:
		l.count(func(c *Counts) { c.Sent += int64(n); c.Dropped += int64(n) })
		return n, nil
	case Duplicate:
		l.count(func(c *Counts) { c.Sent += int64(n); c.Duplicated += int64(n) })
		return n, l.push(append(append(l.out[:0], p[:n]...), p[:n]...))
	case Corrupt:
		l.out = append(l.out[:0], p[:n]...)
		for i := range l.out {
			l.out[i] ^= 1 << l.rng.IntN(8)
		}
		l.count(func(c *Counts) { c.Sent += int64(n); c.Corrupted += int64(n) })
		return n, l.push(l.out)
	case Stall:
		select {
		case <-time.After(f.For):
			return 0, nil
		case <-l.closed:
			return 0, fmt.Errorf("fault: stalled line: %w", io.ErrClosedPipe)
		}
	case Unplug:
		_ = l.Close()
		return 0, fmt.Errorf("fault: write: %w", ErrUnplugged)
	}
	return 0, fmt.Errorf("fault: unknown kind %d", f.Kind)
}

// count changes the counts under their lock: tests read them while the line is in use.
func (l *Line) count(f func(*Counts)) {
	l.mu.Lock()
	f(&l.counts)
	l.mu.Unlock()
}

// send sends p with the chances per byte.
func (l *Line) send(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	f := &l.faults
	if f.Drop == 0 && f.Duplicate == 0 && f.Corrupt == 0 {
		l.count(func(c *Counts) { c.Sent += int64(len(p)) })
		return l.push(p)
	}
	c := l.Counts()
	l.out = l.out[:0]
	for _, b := range p {
		c.Sent++
		// One draw decides between the three, so that at most one of them befalls a byte.
		r := l.rng.Float64()
		switch {
		case c.Sent <= f.After:
		case r < f.Drop:
			c.Dropped++
			continue
		case r < f.Drop+f.Duplicate:
			c.Duplicated++
			l.out = append(l.out, b)
		case r < f.Drop+f.Duplicate+f.Corrupt:
			c.Corrupted++
			b ^= 1 << l.rng.IntN(8)
		}
		l.out = append(l.out, b)
	}
	l.count(func(to *Counts) { *to = c })
	return l.push(l.out)
}

// push writes to the line, in fragments where that is wanted.
func (l *Line) push(p []byte) error {
	for len(p) > 0 {
		n := len(p)
		if l.faults.Fragment > 0 {
			n = min(n, 1+l.rng.IntN(l.faults.Fragment))
		}
		if _, err := l.rw.Write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}
