package capture

import (
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/marker"
	"wattmark/monitor/spool"
)

// errSealed ends the instrument's stream: the capture takes no more samples.
var errSealed = errors.New("capture has ended")

// forkScans is the size of block from which the detector runs beside the
// encoder; below, handing over costs more than it saves.
const forkScans = 2048

// pipeline takes a capture's samples from the instrument to the spool. Its
// methods are called by the Sink, which holds the lock that guards it.
type pipeline struct {
	cfg    *Config
	setup  measure.Setup
	spec   marker.Spec
	log    *spool.Log
	stitch stitcher
	enc    *chunk.Encoder
	det    *marker.Detector // nil when there is nothing to look for
	fork   *forkedDetector
	live   *watchers

	tally tally
	index chunkIndex
	found []marker.Found // by the detector, not yet looked at
	trim  trim
	pace  pace

	firstAt   time.Time // arrival of the first scan
	openedAt  time.Time // arrival of the oldest scan in the open chunk
	exhausted bool      // the instrument ended its stream by itself
}

// trim is the part of the chunks that the trimmed stream has, as far as known.
type trim struct {
	choice
	first, end uint64
}

func newPipeline(cfg *Config, h spool.Header, log *spool.Log, live *watchers) (*pipeline, error) {
	enc, err := chunk.NewEncoder(h.Setup.Timebase, len(h.Setup.Channels), cfg.ChunkScans)
	if err != nil {
		return nil, err
	}
	p := &pipeline{
		cfg: cfg, setup: h.Setup, spec: h.Marker, log: log, enc: enc, live: live,
		stitch: stitcher{tb: h.Setup.Timebase, channels: len(h.Setup.Channels)},
	}
	if h.Marker.Code == marker.None {
		return p, nil
	}
	if p.det, err = marker.NewDetector(h.Marker, &p.setup); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	p.det.OnFound(func(f marker.Found) { p.found = append(p.found, f) })
	p.fork = newForkedDetector(p.det)
	return p, nil
}

// block takes a block that arrived at the given instant.
func (p *pipeline) block(b *measure.Block, at time.Time) error {
	out, events, err := p.stitch.block(b, at)
	if err != nil || out == nil {
		return err
	}
	for _, e := range events {
		if err := p.gap(e); err != nil {
			return err
		}
	}
	if p.firstAt.IsZero() {
		took := time.Duration(float64(out.Scans()) / float64(p.setup.Timebase.SampleRate()) * 1e9)
		p.firstAt = at.Add(-took)
	}
	p.pace.arrived(p.setup.Timebase.Seconds(p.stitch.endTick), at.Sub(p.firstAt))
	p.live.block(out)
	if err := p.codeAndDetect(out, at); err != nil {
		return err
	}
	if err := p.takeFound(); err != nil {
		return err
	}
	return p.flushOld(at)
}

// codeAndDetect runs the encoder and the detector over a block, on two
// processors when it is worth it. The block is borrowed, so both are awaited.
func (p *pipeline) codeAndDetect(b *measure.Block, at time.Time) error {
	if p.det == nil {
		return p.code(b, at)
	}
	if b.Scans() < forkScans {
		return errors.Join(p.code(b, at), p.det.Push(b))
	}
	p.fork.push(b)
	err := p.code(b, at)
	return errors.Join(err, p.fork.wait())
}

// code appends a block to the open chunk, ending chunks where they end.
func (p *pipeline) code(b *measure.Block, at time.Time) error {
	if p.enc.Scans() == 0 {
		p.openedAt = at
	}
	for from, n := 0, b.Scans(); from < n; {
		part := b
		if from > 0 {
			rest := b.Slice(p.setup.Timebase, from, n)
			part = &rest
		}
		m, err := p.enc.Append(part)
		if err != nil {
			return err
		}
		if from += m; from < n || p.enc.Full() {
			if err := p.flush(); err != nil {
				return err
			}
			p.openedAt = at
		}
	}
	return nil
}

// flush ends the open chunk and writes it, behind the events that concern it.
func (p *pipeline) flush() error {
	c := p.enc.Flush(p.tally.chunks)
	if c == nil {
		return nil
	}
	if err := c.OverRangeEvents(p.setup.Channels, p.write); err != nil {
		return err
	}
	if err := p.log.Chunk(c); err != nil {
		return err
	}
	p.index.add(c.FirstTick)
	p.tally.chunk(spool.ChunkHead{
		No: c.No, FirstScan: c.FirstScan, FirstTick: c.FirstTick, Scans: uint32(c.Scans),
	}, p.setup.Timebase)
	return nil
}

// flushOld ends a chunk that has grown old. A slow meter's waits for a full
// block of the coding, within reason: a short one is mostly padding.
func (p *pipeline) flushOld(now time.Time) error {
	age := now.Sub(p.openedAt)
	if age >= 5*p.cfg.FlushEvery || (age >= p.cfg.FlushEvery && p.enc.Scans() >= chunk.BlockScans) {
		return p.flush()
	}
	return nil
}

// gap ends the chunk before the hole and writes the event.
func (p *pipeline) gap(e measure.Event) error {
	if err := p.flush(); err != nil {
		return err
	}
	return p.write(e)
}

// event takes an event of the instrument's stream.
func (p *pipeline) event(e measure.Event) error {
	if e, ok := p.stitch.event(e); ok {
		return p.write(e)
	}
	return nil
}

func (p *pipeline) write(e measure.Event) error {
	p.tally.event(e)
	p.live.event(e)
	return p.log.Event(e)
}

// takeFound writes the markers that the detector found, and moves the trim.
func (p *pipeline) takeFound() error {
	if len(p.found) == 0 {
		return nil
	}
	// All that was seen so far becomes chunks, so that the one that holds the
	// marker can be named, and sent at once.
	if err := p.flush(); err != nil {
		return err
	}
	for _, f := range p.found {
		p.tally.marker(f)
		if err := p.log.Marker(f); err != nil {
			return err
		}
	}
	p.found = p.found[:0]
	// The stop request usually follows the stop marker: begin to sync for it.
	p.log.Hurry()
	return p.retrim(false)
}

// retrim chooses the markers anew and finds the chunks that hold them.
func (p *pipeline) retrim(ended bool) (err error) {
	p.trim, err = trimOf(p.tally.markers, ended, p.setup.Timebase, p.chunkAt, p.tally.chunks)
	return err
}

func (p *pipeline) chunkAt(tick float64) (uint64, error) {
	if no, ok := p.index.at(tick); ok {
		return no, nil
	}
	return findChunk(p.log, tick)
}

// trimOf finds the chunks between the markers; all of them, where there are none.
func trimOf(found []marker.Found, ended bool, tb measure.Timebase,
	chunkAt func(tick float64) (uint64, error), chunks uint64,
) (trim, error) {
	t := trim{choice: choose(found, ended), end: chunks}
	if t.start == nil {
		return t, nil
	}
	var err error
	if t.first, err = chunkAt(tb.Ticks(t.start.Begin)); err != nil {
		return t, err
	}
	if t.stop == nil {
		return t, nil
	}
	last, err := chunkAt(tb.Ticks(t.stop.End))
	t.end = min(last+1, chunks)
	return t, err
}

// finish takes out what is still inside: scans, markers, announced gaps.
func (p *pipeline) finish() error {
	var errs []error
	// Behind a stop marker of the task's own no other can follow that counts.
	if p.det != nil && p.trim.stop == nil {
		errs = append(errs, p.det.Finish())
	}
	errs = append(errs, p.flush(), p.takeFound())
	for _, e := range p.stitch.announced {
		errs = append(errs, p.write(e))
	}
	errs = append(errs, p.retrim(true))
	return errors.Join(errs...)
}

// close ends the pipeline's goroutine.
func (p *pipeline) close() {
	if p.fork != nil {
		p.fork.close()
	}
}
