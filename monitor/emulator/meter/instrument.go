package meter

import (
	"context"
	"fmt"

	"wattmark/measure"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/instrument"
)

// Instrument is a Source as the monitor sees a meter: kind "emulated", no wire
// between. Its pace is a wall clock's or as fast as the sink takes the blocks.
type Instrument struct {
	src  Source
	pace pace.Pace
	name string
	// Limit ends a stream after so many scans of it; zero for none. A free
	// pace without a limit runs until ctx ends.
	Limit uint64

	block measure.Block
}

var _ instrument.Instrument = (*Instrument)(nil)

// NewInstrument makes an instrument of a source.
func NewInstrument(name string, src Source, p pace.Pace) *Instrument {
	return &Instrument{src: src, pace: p, name: name}
}

// Open does nothing: there is nothing to connect to.
func (m *Instrument) Open(ctx context.Context) error { return ctx.Err() }

// Close does nothing.
func (m *Instrument) Close() error { return nil }

// Identity says that it is emulated.
func (m *Instrument) Identity() instrument.Identity {
	return instrument.Identity{Kind: "emulated", Model: m.name, Serial: "0", Firmware: "1", Address: "virtual"}
}

// Inputs are the source's channels.
func (m *Instrument) Inputs() instrument.Inputs {
	s := m.src.Setup()
	return instrument.Inputs{Timebase: s.Timebase, Response: s.Response, Channels: s.Channels}
}

// Setup is the source's setup, with the rails that its channels make.
func (m *Instrument) Setup() measure.Setup { return m.src.Setup() }

// Stream delivers blocks of one batch each until ctx ends.
func (m *Instrument) Stream(ctx context.Context, sink instrument.Sink) error {
	m.src.Restart(m.pace.Now(m.src.Elapsed()))
	timer := m.pace.NewTimer()
	defer timer.Stop()
	scan := 1 / float64(m.src.Setup().Timebase.SampleRate())
	for sent := uint64(0); m.Limit == 0 || sent < m.Limit; {
		done := m.src.Elapsed()
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C(done):
		}
		if ctx.Err() != nil {
			return nil
		}
		n := uint64(max(1, (m.pace.Due(done)-done).Seconds()/scan))
		n = min(n, maxBlock)
		if m.Limit > 0 {
			n = min(n, m.Limit-sent)
		}
		m.src.Next(&m.block, int(n))
		if err := sink.Block(&m.block); err != nil {
			return fmt.Errorf("emulated meter: %w", err)
		}
		sent += n
	}
	return nil
}

// maxBlock bounds a block after a long wait.
const maxBlock = 65536
