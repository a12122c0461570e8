package faults

import (
	"context"
	"fmt"
	"sync"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// meter reads the card's power. Its second channel is the scan's number in the
// card's life, so that each sample says which one it is.
type meter struct {
	*card
	w *world
}

func (m meter) Identity() instrument.Identity {
	return instrument.Identity{Kind: "campaign", Model: "M1", Serial: m.w.cable.serial()}
}

func (m meter) Open(ctx context.Context) error {
	if m.w.cable.isOut() {
		return fmt.Errorf("campaign's meter: %w", instrument.ErrDisconnected)
	}
	return ctx.Err()
}
func (m meter) Close() error { return nil }

func (m meter) Inputs() instrument.Inputs {
	return instrument.Inputs{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 1e6 / rate, UTickHz: 20e-6},
		Channels: []measure.Channel{
			{Name: "p", Unit: measure.UnitWatt, Gain: gainW * nominal, UGain: 0.001, MinCount: -1 << 20, MaxCount: 1 << 20},
			{Name: "scan", Unit: measure.UnitWatt, Gain: 1e-6, MinCount: -1, MaxCount: counter},
		},
	}
}

func rails(in instrument.Inputs) (measure.Setup, error) {
	return measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Rails: []measure.Rail{
		{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1},
	}}, nil
}

func (m meter) Stream(ctx context.Context, s instrument.Sink) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	base := m.scanNow()
	next := base
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		m.w.at(StepBlock)
		m.w.monitorGate.wait(ctx)
		if m.w.cable.isOut() {
			return fmt.Errorf("campaign's meter: %w", instrument.ErrDisconnected)
		}
		b := m.block(base, next)
		if b == nil {
			continue
		}
		if err := s.Block(b); err != nil {
			return err
		}
		next += uint64(b.Scans())
	}
}

// block reads what has passed since the scan that is next.
func (m meter) block(base, next uint64) *measure.Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.scanNow()
	if now <= next {
		return nil
	}
	n := min(now-next, 4096)
	b := &measure.Block{FirstScan: next - base, FirstTick: int64(next-base) * 10, Counts: [][]measure.Count{make([]measure.Count, n), make([]measure.Count, n)}}
	for i := range n {
		b.Counts[0][i] = m.countOf(next + i)
		b.Counts[1][i] = measure.Count((next + i) % counter)
	}
	m.seen = max(m.seen, next+n)
	return b
}

// cable joins meter and monitor.
type cable struct {
	mu    sync.Mutex
	out   bool
	other bool
}

func (c *cable) isOut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out
}

func (c *cable) serial() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.other {
		return "another"
	}
	return "1"
}

func (c *cable) set(out, other bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out, c.other = out, other
}
