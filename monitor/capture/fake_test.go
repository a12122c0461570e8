package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
)

// meter is an instrument in virtual time: one rail of 12 V whose current
// follows the levels that were played on it.
type meter struct {
	rate   float64
	block  int
	opens  func(n int) error                                // n counts openings from 0
	before func(stream, block int, s instrument.Sink) error // before each block; its error ends the stream
	edit   func(stream, block int, b *measure.Block)        // changes a block
	silent bool                                             // delivers nothing
	ends   int                                              // the stream ends by itself after so many blocks; 0 for never
	inputs func(in *instrument.Inputs)                      // changes the inputs

	mu      sync.Mutex
	id      instrument.Identity
	opened  int
	streams int
	begun   time.Time // of the first stream
	chips   []played
	isOpen  bool
	seen    []measure.Count // current counts of all blocks delivered
}

type played struct {
	at   float64
	chip float64
	high []bool
}

const (
	idleW, highW = 60.0, 160.0
	gainA        = 10e-3
	voltCounts   = 2400
)

func newMeter() *meter {
	return &meter{rate: 10e3, block: 100, id: instrument.Identity{Kind: "fake", Model: "F1", Serial: "7", Address: "mem"}}
}

// play puts a marker on the rail, at seconds since the first stream began.
func (m *meter) play(spec marker.Spec, kind marker.Kind, at float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.chips = append(m.chips, played{at, float64(spec.Chip), spec.Chips(kind)})
}

func (m *meter) watts(t float64) float64 {
	for _, p := range m.chips {
		if i := int((t - p.at) / p.chip); t >= p.at && i < len(p.high) {
			if p.high[i] {
				return highW
			}
			return idleW
		}
	}
	return idleW
}

func (m *meter) Open(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.opened
	m.opened++
	if m.opens != nil {
		if err := m.opens(n); err != nil {
			return err
		}
	}
	m.isOpen = true
	return ctx.Err()
}

func (m *meter) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isOpen = false
	return nil
}

func (m *meter) Identity() instrument.Identity {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

func (m *meter) Inputs() instrument.Inputs {
	in := instrument.Inputs{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 1e6 / m.rate},
		Channels: []measure.Channel{
			{Name: "i", Unit: measure.UnitAmpere, Gain: gainA, MinCount: -32768, MaxCount: 32767},
			{Name: "v", Unit: measure.UnitVolt, Gain: 5e-3, MinCount: -32768, MaxCount: 32767},
		},
	}
	if m.inputs != nil {
		m.inputs(&in)
	}
	return in
}

func (m *meter) Stream(ctx context.Context, s instrument.Sink) error {
	m.mu.Lock()
	stream := m.streams
	m.streams++
	if stream == 0 {
		m.begun = time.Now()
	}
	since := time.Since(m.begun).Seconds()
	open := m.isOpen
	m.mu.Unlock()
	if !open {
		return errors.New("fake: not open")
	}
	rng := rand.New(rand.NewPCG(1, uint64(stream)))
	b := measure.Block{Counts: [][]measure.Count{make([]measure.Count, m.block), make([]measure.Count, m.block)}}
	tick := time.NewTicker(time.Duration(float64(m.block) / m.rate * 1e9))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if m.silent {
			continue
		}
		if m.ends > 0 && n == m.ends {
			return nil
		}
		if m.before != nil {
			if err := m.before(stream, n, s); err != nil {
				return err
			}
		}
		b.FirstScan = uint64(n * m.block)
		b.FirstTick = int64(float64(n*m.block) * 1e6 / m.rate)
		m.fill(&b, since, rng)
		if m.edit != nil {
			m.edit(stream, n, &b)
		}
		m.mu.Lock()
		m.seen = append(m.seen, b.Counts[0]...)
		m.mu.Unlock()
		if err := s.Block(&b); err != nil {
			return fmt.Errorf("fake: %w", err)
		}
	}
}

func (m *meter) fill(b *measure.Block, since float64, rng *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.block {
		t := since + (float64(b.FirstScan)+float64(i))/m.rate
		b.Counts[0][i] = measure.Count(m.watts(t)/12/gainA) + measure.Count(rng.IntN(5)) - 2
		b.Counts[1][i] = voltCounts + measure.Count(rng.IntN(3)) - 1
	}
}

// delivered returns the current counts of all blocks so far.
func (m *meter) delivered() []measure.Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[:len(m.seen):len(m.seen)]
}

// rails makes the one rail of the fake meter.
func rails(in instrument.Inputs) (measure.Setup, error) {
	return measure.Setup{
		Timebase: in.Timebase, Channels: in.Channels, Response: in.Response,
		Rails: []measure.Rail{{Name: "pcie_12v", Role: measure.RolePCIe12V, Wiring: measure.WiringClamp, X: 0, Y: 1}},
	}, nil
}

// lab is an owner that runs, in a test's virtual time.
type lab struct {
	*Owner
	t     *testing.T
	meter *meter
	dir   string
	store *spool.Store
	stop  func()
}

// newLab runs an owner; change may alter its configuration.
func newLab(t *testing.T, m *meter, dir string, change func(*Config, *spool.Options)) *lab {
	t.Helper()
	cfg := Config{Bench: Bench{Name: "fake bench", Instrument: m, Setup: rails}}
	var opt spool.Options
	if change != nil {
		change(&cfg, &opt)
	}
	store, err := spool.Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Store = store
	o, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	l := &lab{Owner: o, t: t, meter: m, dir: dir, store: store}
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	t.Cleanup(l.stop)
	return l
}

var testSpec = marker.FastProfile(10e3, 0x5a)

func (l *lab) start(req session.Request) *Capture {
	l.t.Helper()
	if req.Holder == "" {
		req.Holder = "ada@lab"
	}
	c, err := l.Start(l.t.Context(), req)
	if err != nil {
		l.t.Fatalf("start: %v", err)
	}
	return c
}

// until waits for an instant in seconds since the first stream began.
func (l *lab) until(at float64) {
	l.meter.mu.Lock()
	begun := l.meter.begun
	l.meter.mu.Unlock()
	wait(time.Until(begun.Add(time.Duration(at * 1e9))))
}

// wait lets virtual time pass.
func wait(d time.Duration) { <-time.After(d) }

// inbox keeps a stream.
type inbox struct {
	header  *session.Opening
	chunks  []*chunk.Chunk
	before  []int // chunks received before each event
	events  []measure.Event
	trailer *session.Trailer
	onChunk func(n int) error
}

func (b *inbox) Header(h session.Opening) error { b.header = &h; return nil }

func (b *inbox) Chunk(c chunk.Chunk, payload []byte) error {
	if err := chunk.ParsePayload(&c, bytes.Clone(payload)); err != nil {
		return err
	}
	if err := c.Validate(b.header.Setup.Timebase, len(b.header.Setup.Channels)); err != nil {
		return err
	}
	b.chunks = append(b.chunks, &c)
	if b.onChunk != nil {
		return b.onChunk(len(b.chunks))
	}
	return nil
}

func (b *inbox) Event(e measure.Event) error {
	b.before, b.events = append(b.before, len(b.chunks)), append(b.events, e)
	return nil
}

func (b *inbox) Trailer(t session.Trailer) error { b.trailer = &t; return nil }

// kinds lists the events of a kind.
func (b *inbox) kind(k measure.EventKind) (out []measure.Event) {
	for _, e := range b.events {
		if e.Kind == k {
			out = append(out, e)
		}
	}
	return out
}

// counts decodes the current channel of all chunks.
func (b *inbox) counts(t *testing.T) (out []measure.Count) {
	t.Helper()
	for _, c := range b.chunks {
		var blk measure.Block
		if err := chunk.Decode(c, b.header.Setup.Timebase, len(b.header.Setup.Channels), &blk); err != nil {
			t.Fatal(err)
		}
		out = append(out, blk.Counts[0]...)
	}
	return out
}

func (l *lab) read(c *Capture, o ReadOptions) *inbox {
	l.t.Helper()
	var b inbox
	if err := c.Read(l.t.Context(), o, &b); err != nil {
		l.t.Fatalf("read %+v: %v", o, err)
	}
	return &b
}
