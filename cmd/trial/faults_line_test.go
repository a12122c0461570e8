package trial

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"
)

// Step is a place in the protocol at which a fault can strike: just before or just
// behind the event of its name.
type Step string

// The steps, in the order of a measurement.
const (
	StepBench         Step = "bench asked"
	StepStart         Step = "start asked"
	StepStarted       Step = "start answered"
	StepBegun         Step = "task begun"
	StepHeader        Step = "header came"
	StepStartMarker   Step = "start marker"
	StepWork          Step = "work"
	StepWorked        Step = "kernels stored"
	StepStopMarker    Step = "stop marker"
	StepStop          Step = "stop asked"
	StepStopped       Step = "stop answered"
	StepChunk         Step = "chunk came"
	StepStoring       Step = "chunks being stored"
	StepStored        Step = "chunks stored"
	StepTrailer       Step = "trailer came"
	StepFinish        Step = "outcome being stored"
	StepFinished      Step = "outcome stored"
	StepRelease       Step = "release asked"
	StepReleased      Step = "release answered"
	StepDatabaseWrite Step = "database written"
	StepDatabaseSync  Step = "database synced"
	StepRecover       Step = "recovery"
	StepBlock         Step = "meter delivers"
	StepSpoolWrite    Step = "spool written"
	StepSpoolSync     Step = "spool synced"
	StepMonitorStarts Step = "monitor starts"
)

// Steps are all steps.
var Steps = []Step{
	StepBench, StepStart, StepStarted, StepBegun, StepHeader, StepStartMarker, StepWork, StepWorked, StepStopMarker,
	StepStop, StepStopped,
	StepChunk, StepStoring, StepStored, StepTrailer, StepFinish, StepFinished, StepRelease, StepReleased, StepRecover,
	StepDatabaseWrite, StepDatabaseSync,
	StepBlock, StepSpoolWrite, StepSpoolSync, StepMonitorStarts,
}

// Kind is a kind of fault.
type Kind string

// The faults.
const (
	KillMonitor   Kind = "monitor killed"
	CutPower      Kind = "monitor's power cut" // unsynced writes are lost, or torn
	StopMonitor   Kind = "monitor stopped and started"
	PauseMonitor  Kind = "monitor paused"
	KillHost      Kind = "host killed"
	CutHost       Kind = "host's power cut" // as the monitor's
	LogRot        Kind = "host killed, its database's log flips a bit"
	CancelHost    Kind = "host cancelled"
	PauseHost     Kind = "host paused"
	Reset         Kind = "connections reset"
	Partition     Kind = "network cut"
	HoldBoth      Kind = "network delayed"
	HoldUp        Kind = "requests delayed"
	HoldDown      Kind = "answers delayed"
	LoseDown      Kind = "answers lost, then cut"
	Corrupt       Kind = "samples corrupted on the line"
	Crowded       Kind = "idle connections crowd the monitor"
	SpoolFull     Kind = "monitor's disk full"
	SpoolWrite    Kind = "monitor's disk fails a write"
	SpoolSync     Kind = "monitor's disk fails a sync"
	SpoolRot      Kind = "monitor's disk flips a bit"
	HeaderRot     Kind = "monitor's disk flips a bit of a header"
	RecordRot     Kind = "a calibration record flips a bit"
	StoredRot     Kind = "a stored calibration flips a bit"
	SpoolSlow     Kind = "monitor's disk stands still"
	DatabaseFull  Kind = "host's disk full"
	DatabaseWrite Kind = "host's disk fails a write"
	DatabaseSync  Kind = "host's disk fails a sync"
	Unplug        Kind = "meter unplugged, put in again"
	UnplugLong    Kind = "meter unplugged for good"
	OtherMeter    Kind = "another meter plugged in"
	ClockStep     Kind = "host's clock stepped"
	ClockSkew     Kind = "host's clock skewed"
	// The same where the card is driven by another program, which reports wall times alone.
	ClockStepApart Kind = "host's clock stepped, GPU in another program"
	MonitorStep    Kind = "monitor's clock stepped"
	MonitorSkew    Kind = "monitor's clock skewed"
)

// Kinds are all faults.
var Kinds = []Kind{
	KillMonitor, CutPower, StopMonitor, PauseMonitor, KillHost, CutHost, LogRot, CancelHost, PauseHost, Reset, Partition,
	HoldBoth, HoldUp, HoldDown, LoseDown,
	Corrupt, Crowded, SpoolFull, SpoolWrite, SpoolSync, SpoolRot, HeaderRot, RecordRot, StoredRot, SpoolSlow,
	DatabaseFull, DatabaseWrite, DatabaseSync, Unplug, UnplugLong, OtherMeter, ClockStep, ClockSkew, ClockStepApart,
	MonitorStep, MonitorSkew,
}

// Fault strikes the first time that its step is reached for the Nth time.
type Fault struct {
	Kind Kind
	Step Step
	Nth  int // from 1
	// Hold is how long it lasts, where it lasts.
	Hold time.Duration
	// Size is by how much a clock is stepped, in seconds, or skewed, in parts.
	Size float64
}

func (f Fault) String() string {
	s := fmt.Sprintf("%s at %q", f.Kind, f.Step)
	if f.Nth > 1 {
		s += fmt.Sprintf(" no %d", f.Nth)
	}
	switch f.Kind {
	case ClockStep, ClockStepApart, MonitorStep:
		return s + fmt.Sprintf(" by %+.3f s", f.Size)
	case ClockSkew, MonitorSkew:
		return s + fmt.Sprintf(" by %+.0f ppm", 1e6*f.Size)
	}
	return s + fmt.Sprintf(" for %v", f.Hold)
}

// FaultSchedule is the faults of one measurement.
type FaultSchedule struct {
	Seed   uint64
	Faults []Fault
}

func (s FaultSchedule) String() string {
	all := make([]string, len(s.Faults))
	for i, f := range s.Faults {
		all[i] = f.String()
	}
	return fmt.Sprintf("seed %d: %s", s.Seed, strings.Join(all, "; then "))
}

// DrawFaults makes the schedule of a seed. Seeds that follow each other walk through
// all pairs of a fault and a step, so that no pair is left to luck.
func DrawFaults(seed uint64) FaultSchedule {
	rng := rand.New(rand.NewPCG(seed, 0xfa17))
	s := FaultSchedule{Seed: seed}
	pair := int(seed % uint64(len(Kinds)*len(Steps)))
	s.Faults = append(s.Faults, drawFault(rng, Kinds[pair%len(Kinds)], Steps[pair/len(Kinds)]))
	for more := rng.IntN(10); more >= 7 && len(s.Faults) < 3; more++ {
		s.Faults = append(s.Faults, drawFault(rng, Kinds[rng.IntN(len(Kinds))], Steps[rng.IntN(len(Steps))]))
		if more == 8 {
			break
		}
	}
	return s
}

// longer than the lease of the campaign's measurements.
const beyondLease = 1900 * time.Millisecond

func drawFault(rng *rand.Rand, k Kind, at Step) Fault {
	f := Fault{Kind: k, Step: at, Nth: 1, Hold: time.Duration(1+rng.IntN(30)) * time.Millisecond}
	switch at {
	case StepChunk, StepStoring, StepStored, StepBlock, StepSpoolWrite:
		f.Nth = 1 + rng.IntN(6)
	case StepDatabaseWrite:
		f.Nth = 1 + rng.IntN(60)
	case StepDatabaseSync:
		f.Nth = 1 + rng.IntN(12)
	case StepSpoolSync:
		f.Nth = 1 + rng.IntN(2)
	}
	if rng.IntN(12) == 0 {
		f.Hold = beyondLease
	}
	switch k {
	case ClockStep, ClockStepApart:
		f.Size = (rng.Float64() - 0.5) * 8
		if rng.IntN(2) == 0 {
			f.Size /= 1000
		}
	case ClockSkew:
		f.Size = (rng.Float64() - 0.5) * 0.02
	case MonitorStep: // milliseconds to thirty years, either way
		f.Size = math.Pow(10, -3+rng.Float64()*12) * float64(1-2*rng.IntN(2))
	case MonitorSkew:
		f.Size = (rng.Float64() - 0.5) * 0.2
	}
	return f
}

// gate lets through while it is open.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil while open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *gate) isShut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// wait returns when the gate is open, or ctx has ended.
func (g *gate) wait(ctx context.Context) {
	for c := g.isShut(); c != nil; c = g.isShut() {
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
}

var errCut = errors.New("campaign: the network is cut")

// line is the network between host and monitor. The host's connections go
// through it.
type line struct {
	up, down gate // requests, answers

	mu      sync.Mutex
	address string // of the monitor; empty while it is down
	refuse  bool
	corrupt int // frames of samples whose bytes are still to be changed
	samples int // streams of which samples are to come
	conns   map[*conn]struct{}
}

func (l *line) setAddress(a string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.address = a
}

// Dial connects the host to where the monitor is now.
func (l *line) dial(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	address, refuse := l.address, l.refuse
	l.mu.Unlock()
	if refuse || address == "" {
		return nil, errCut
	}
	var d net.Dialer
	inner, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, line: l, gone: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse || l.address != address {
		_ = inner.Close()
		return nil, errCut
	}
	if l.conns == nil {
		l.conns = map[*conn]struct{}{}
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// cut breaks all connections; data on the way is lost. With refuse no new
// ones come about.
func (l *line) cut(refuse bool) {
	l.mu.Lock()
	all := l.conns
	l.conns = nil
	l.refuse = l.refuse || refuse
	l.mu.Unlock()
	for c := range all {
		_ = c.Close()
	}
}

// heal lets connections come about again.
func (l *line) heal() {
	l.up.open()
	l.down.open()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = false
}

func (l *line) corruptOne() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.corrupt++
}

// sampled counts the streams whose next messages are samples.
func (l *line) sampled(by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples += by
}

func (l *line) takeCorruption() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.corrupt == 0 || l.samples == 0 {
		return false
	}
	l.corrupt--
	return true
}

// conn is one connection of the host's.
type conn struct {
	net.Conn
	line   *line
	once   sync.Once
	gone   chan struct{}
	frames frames
}

func (c *conn) pass(g *gate) error {
	for {
		shut := g.isShut()
		select {
		case <-c.gone:
			return errCut
		default:
		}
		if shut == nil {
			return nil
		}
		select {
		case <-shut:
		case <-c.gone:
		}
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if e := c.pass(&c.line.down); e != nil {
		return 0, e
	}
	if at := c.frames.samples(b[:n]); at >= 0 && c.line.takeCorruption() {
		b[at] ^= 0x10
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.pass(&c.line.up); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.gone)
		c.line.mu.Lock()
		delete(c.line.conns, c)
		c.line.mu.Unlock()
	})
	return c.Conn.Close()
}

// frames follows the HTTP/2 frames of a connection, to find bytes that belong to
// samples: other messages have no checksum of ours (docs/reliability.md).
type frames struct {
	head []byte // of a frame header that is not whole yet
	left int    // bytes of the frame that are to come
	at   int    // where in the frame the next byte lies
	data bool
	long bool
}

const (
	frameHead = 9
	// Only chunks make frames this long; a byte this deep in one is payload.
	samplesFrame, samplesDepth = 900, 600
)

// samples returns the index of a byte of samples in b, −1 without.
func (f *frames) samples(b []byte) int {
	found := -1
	for i := 0; i < len(b); {
		if f.left == 0 {
			n := min(frameHead-len(f.head), len(b)-i)
			f.head = append(f.head, b[i:i+n]...)
			i += n
			if len(f.head) < frameHead {
				break
			}
			f.left = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
			f.data, f.long, f.at = f.head[3] == 0, f.left >= samplesFrame, 0
			f.head = f.head[:0]
			continue
		}
		n := min(f.left, len(b)-i)
		if f.data && f.long && found < 0 && f.at <= samplesDepth && samplesDepth < f.at+n {
			found = i + samplesDepth - f.at
		}
		f.left, f.at, i = f.left-n, f.at+n, i+n
	}
	return found
}
