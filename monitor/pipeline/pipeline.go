// Package pipeline takes a capture's samples from the instrument to the spool, on the
// goroutine of the instrument:
//
//	Block ─▶ stitcher ─▶ encoder ──▶ chunks, over-range events ─▶ spool.Log
//	            │     └─▶ detector ─▶ markers ─▶ Trim
//	            └───────▶ Viewers (live averages; slow ones lose moments, not samples)
//
//	stitcher  renumbers the streams of a reopened instrument into one; every hole is an event
//	Totals    counters over the records of a log, kept up while appending or recounted
//	Trim      the markers that bound the task, and the chunks between them
//	pace      device time as of now, though the latest samples are still on their way (series.Rate)
//
// A Pipeline has no lock: its caller serialises all methods. Viewers locks for itself.
package pipeline

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/measure/wall"
	"github.com/wattmark/wattmark/monitor/checkup"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/spool"
)

// forkScans is the size of block from which the detector runs beside the encoder;
// below, the hand-over costs more than it saves.
const forkScans = 2048

// paceSpan is how long, in seconds, the block with the shortest way is remembered at least: longer than a busy machine
// or a line holds all blocks back, and short enough for two clocks that drift by 100 ppm.
const paceSpan = 2

// Options tune a pipeline.
type Options struct {
	// FlushEvery is the age of a chunk's first scan at which the chunk is written. The
	// chunk of a slow meter waits up to five times as long for a full coding block.
	FlushEvery time.Duration
	// ChunkScans ends a chunk.
	ChunkScans int
}

// Pipeline is the way of one capture's samples.
type Pipeline struct {
	opt    Options
	header *session.Header
	tb     measure.Timebase
	log    *spool.Log
	live   *Viewers
	enc    *chunk.Encoder
	det    *marker.Detector // nil when no marker is looked for
	forked chan error       // result of the detector beside the encoder

	stitch stitcher
	totals Totals
	index  chunkIndex
	found  []marker.Found // by the detector, not yet written
	trim   Trim
	pace   series.Rate // of device time in ns, by the arrival of blocks

	openedAt  time.Time // arrival of the oldest scan in the open chunk
	exhausted bool      // the instrument ended its stream by itself
}

// New returns a pipeline into a log. Errors are about a marker that cannot be detected
// under the header's setup.
func New(opt Options, h *session.Header, log *spool.Log, live *Viewers) (*Pipeline, error) {
	enc, err := chunk.NewEncoder(h.Setup.Timebase, len(h.Setup.Channels), opt.ChunkScans)
	if err != nil {
		return nil, err
	}
	p := &Pipeline{
		opt: opt, header: h, tb: h.Setup.Timebase, log: log, enc: enc, live: live,
		stitch: stitcher{tb: h.Setup.Timebase, channels: len(h.Setup.Channels)},
		pace:   series.Rate{Nominal: 1e9, Window: paceSpan},
	}
	if h.Marker.Code == marker.None {
		return p, nil
	}
	if p.det, err = marker.NewDetector(h.Marker, &h.Setup); err != nil {
		return nil, err
	}
	p.det.OnFound(func(f marker.Found) { p.found = append(p.found, f) })
	p.forked = make(chan error, 1)
	return p, nil
}

// Block takes a block that arrived at the given instant. The block is borrowed until
// Block returns; it blocks while the spool's buffer is full. Errors: ErrDriver, the log's.
func (p *Pipeline) Block(b *measure.Block, at time.Time) error {
	out, holes, err := p.stitch.block(b, at)
	if err != nil || out == nil {
		return err
	}
	for _, e := range holes {
		if err := p.Flush(); err != nil { // the chunk before the hole
			return err
		}
		if err := p.write(e); err != nil {
			return err
		}
	}
	p.pace.Seen(at, int64(p.Covered()))
	p.live.Block(out)
	// The encoder and the detector run on two processors when it is worth it. Both are awaited: the
	// block is borrowed.
	switch {
	case p.det == nil:
		err = p.code(out, at)
	case out.Scans() < forkScans:
		err = errors.Join(p.code(out, at), p.det.Push(out))
	default:
		go func() { p.forked <- p.det.Push(out) }()
		err = errors.Join(p.code(out, at), <-p.forked)
	}
	if err == nil {
		err = p.writeFound()
	}
	if err != nil {
		return err
	}
	return p.FlushOld(at)
}

// SamplingTime returns how long an instrument takes for a number of scans.
func SamplingTime(scans int, tb measure.Timebase) time.Duration {
	return time.Duration(float64(scans) / float64(tb.SampleRate()) * 1e9)
}

// code appends a block to the open chunk, ending chunks where they are full.
func (p *Pipeline) code(b *measure.Block, at time.Time) error {
	if p.enc.Scans() == 0 {
		p.openedAt = at
	}
	for from, n := 0, b.Scans(); from < n; {
		part := b
		if from > 0 {
			part = new(b.Slice(p.tb, from, n))
		}
		m, err := p.enc.Append(part)
		if err != nil {
			return err
		}
		if from += m; from < n || p.enc.Full() {
			if err := p.Flush(); err != nil {
				return err
			}
			p.openedAt = at
		}
	}
	return nil
}

// Flush ends the open chunk and writes it behind its over-range events.
func (p *Pipeline) Flush() error {
	c := p.enc.Flush(p.totals.Chunks)
	if c == nil {
		return nil
	}
	err := c.OverRangeEvents(p.header.Setup.Channels, p.write)
	if err == nil && p.totals.Chunks == 0 {
		err = p.supplies(c)
	}
	if err == nil {
		err = p.log.Chunk(c)
	}
	if err != nil {
		return err
	}
	p.index.add(c.FirstTick)
	p.totals.addChunk(c, p.tb)
	return nil
}

// supplies writes the events of rails that have not the voltage of their supply.
func (p *Pipeline) supplies(c *chunk.Chunk) error {
	events, err := checkup.SupplyEvents(&p.header.Setup, c)
	for _, e := range events {
		err = errors.Join(err, p.write(e))
	}
	return err
}

// FlushOld ends a chunk that has grown old. Short chunks are mostly padding: that of a
// slow meter waits for a full coding block, up to five times as long.
func (p *Pipeline) FlushOld(now time.Time) error {
	age := now.Sub(p.openedAt)
	if age >= 5*p.opt.FlushEvery || (age >= p.opt.FlushEvery && p.enc.Scans() >= chunk.BlockScans) {
		return p.Flush()
	}
	return nil
}

// Event takes an event of the instrument's stream.
func (p *Pipeline) Event(e measure.Event) error {
	if e, ok := p.stitch.event(e); ok {
		return p.write(e)
	}
	return nil
}

func (p *Pipeline) write(e measure.Event) error {
	p.totals.add(e)
	p.live.Event(e)
	return p.log.Event(e)
}

// writeFound writes the markers that the detector found, and moves the trim. The open
// chunk ends first, so that the one that holds the marker has a number and can be sent.
func (p *Pipeline) writeFound() error {
	if len(p.found) == 0 {
		return nil
	}
	if err := p.Flush(); err != nil {
		return err
	}
	for _, f := range p.found {
		p.totals.AddMarker(f)
		if err := p.log.Marker(f); err != nil {
			return err
		}
	}
	p.found = p.found[:0]
	p.log.Hurry() // a stop request usually follows the stop marker: begin to sync for it
	return p.retrim(false)
}

// retrim chooses the bounding markers anew and finds their chunks.
func (p *Pipeline) retrim(complete bool) (err error) {
	p.trim, err = trimOf(&p.totals, complete, &p.header.Setup, func(tick float64) (uint64, error) {
		if no, ok := p.index.at(tick); ok {
			return no, nil
		}
		return findChunk(p.log, tick)
	})
	return err
}

// Lost notes that the instrument's link broke: the next block begins a new stream.
func (p *Pipeline) Lost(why string) error {
	p.stitch.lost(why)
	return p.Flush()
}

// Away reports whether the instrument's link is broken, with the reason and the arrival
// of the last block before.
func (p *Pipeline) Away() (why string, since time.Time, away bool) {
	return p.stitch.awayWhy, p.stitch.lastAt, p.stitch.away
}

// Exhausted notes that the instrument ended its stream by itself.
func (p *Pipeline) Exhausted() error {
	p.exhausted = true
	err := p.write(measure.Event{
		Kind: measure.EventNote, FirstScan: p.stitch.next, Exact: true, Channel: -1,
		Detail: "the instrument ended its stream by itself",
	})
	if err != nil {
		return err
	}
	return p.Flush()
}

// AwaitsStop reports whether a stop marker may still arrive, or what is kept behind it; without markers, whether any
// sample may.
func (p *Pipeline) AwaitsStop() bool {
	if p.exhausted {
		return false
	}
	return p.header.Marker.Code == marker.None || !p.closed() || p.tb.Seconds(p.stitch.endTick) < p.trim.Stop.End+wall.Reach(&p.header.Setup)
}

// closed reports whether the task's stop marker was seen. One of a kernel, within the task, is not
// it: the task's start marker still lacks its own.
func (p *Pipeline) closed() bool {
	open := 0
	for i := range p.totals.Markers {
		switch f := &p.totals.Markers[i]; {
		case !f.TagOK:
		case f.Kind == marker.Start:
			open++
		default:
			open--
		}
	}
	return p.trim.Stop != nil && open <= 0
}

// DeviceTime returns the device time at an instant, as far as arrivals show it; zero before the first.
func (p *Pipeline) DeviceTime(at time.Time) time.Duration {
	ns, _ := p.pace.At(at)
	return time.Duration(ns)
}

// Covered returns the device time up to which samples have arrived.
func (p *Pipeline) Covered() time.Duration { return p.tb.Seconds(p.stitch.endTick).Duration() }

// Finish writes the rest: open chunk, markers, announced gaps. The plain up-down pattern trims only a
// complete capture. It returns all errors.
func (p *Pipeline) Finish(complete bool) error {
	var errs []error
	if p.det != nil && !p.closed() { // behind a stop marker of the task no other counts
		errs = append(errs, p.det.Finish())
	}
	errs = append(errs, p.Flush(), p.writeFound())
	for _, e := range p.stitch.announced {
		errs = append(errs, p.write(e))
	}
	return errors.Join(append(errs, p.retrim(complete))...)
}

// Totals returns the counters so far, for the caller to read until the next call.
func (p *Pipeline) Totals() *Totals { return &p.totals }

// Trim returns the trim as known so far.
func (p *Pipeline) Trim() Trim { return p.trim }

// Begin sets the wall clock at device time zero.
func (p *Pipeline) Begin(started time.Time) { p.totals.Started = started }

// Rescue makes a log that failed writable for the capture's last records, counts anew
// the samples that it really holds, and writes again the markers that were lost on the
// way to it while their first samples were not: a reader may have begun with them.
func (p *Pipeline) Rescue() error {
	if err := p.log.Rescue(); err != nil {
		return err
	}
	t, err := Recount(p.log)
	if err != nil {
		return err
	}
	t.Started = p.totals.Started
	found := p.totals.Markers
	for _, f := range found[min(len(t.Markers), len(found)):] {
		if f.Begin >= p.tb.Seconds(t.EndTick) {
			break
		}
		if err := p.log.Marker(f); err != nil {
			return err
		}
		t.AddMarker(f)
	}
	p.totals = t
	return p.retrim(false)
}

// Trim is the part of a capture between its markers, as far as known.
type Trim struct {
	Start, Stop *marker.Found // nil where not found
	First, End  uint64        // the chunks [First, End) hold it
}

// TrimLog finds the trim of a log whose capture has ended, or was interrupted.
func TrimLog(log *spool.Log, t *Totals) (Trim, error) {
	find := func(tick float64) (uint64, error) { return findChunk(log, tick) }
	h := log.Header()
	return trimOf(t, t.State == session.Complete, &h.Setup, find)
}

// trimOf chooses the markers that bound the task, as marker.Pair does, and finds their
// chunks; all chunks where there are none. Nothing is trimmed without a start; and the
// plain up-down pattern counts only once the capture is complete: before, the code may still come,
// and in one that was broken off it might have.
func trimOf(t *Totals, complete bool, s *measure.Setup, chunkAt func(tick float64) (uint64, error)) (Trim, error) {
	tr, tb, reach := Trim{End: t.Chunks}, s.Timebase, wall.Reach(s)
	start, stop := marker.Pair(t.Markers)
	if start == nil || start.Plain() && !complete {
		return tr, nil
	}
	tr.Start = start
	var err error
	if tr.First, err = chunkAt(tb.Ticks(max(0, start.Begin-reach))); err != nil {
		return tr, err
	}
	if stop == nil || stop.Plain() && !complete {
		return tr, nil
	}
	tr.Stop = stop
	last, err := chunkAt(tb.Ticks(stop.End + reach))
	tr.End = min(last+1, t.Chunks)
	return tr, err
}

// Window returns the span between the markers, nil where one is missing.
func (t Trim) Window() *measure.Window {
	if t.Start == nil || t.Stop == nil {
		return nil
	}
	return &measure.Window{From: t.Start.End, To: t.Stop.Begin}
}

// noWindow returns the reason for a missing window, for the operator; empty where there
// is one.
func (t Trim) noWindow(spec marker.Spec, found []marker.Found) string {
	foreign := lists.Filter(found, func(f *marker.Found) bool { return !f.TagOK && !f.Fallback && !spec.FoundAmid(f) })
	also := ""
	if len(foreign) > 0 {
		also = fmt.Sprintf(" (%s with another task's tag were seen)", measure.Plural(len(foreign), "marker"))
	}
	switch {
	case t.Window() != nil:
		return ""
	case spec.Code == marker.None:
		return "no marker was asked for"
	case t.Start == nil:
		return "no start marker was found" + also
	default:
		return "no stop marker was found" + also
	}
}

// indexSize is the number of latest chunks that are found without touching the disk:
// three minutes at five chunks a second.
const indexSize = 1024

// chunkIndex remembers the first ticks of the latest chunks, in a ring of fixed size.
type chunkIndex struct {
	first []int64 // that of chunk no lies at no % indexSize
	n     uint64  // chunks so far
}

func (x *chunkIndex) add(firstTick int64) {
	if x.first == nil {
		x.first = make([]int64, indexSize)
	}
	x.first[x.n%indexSize] = firstTick
	x.n++
}

// at returns the chunk that holds a tick: the last one that begins at or before it. ok
// is false when that chunk is no longer remembered.
func (x *chunkIndex) at(tick float64) (no uint64, ok bool) {
	kept := min(x.n, indexSize)
	begin := x.n - kept
	i := sort.Search(int(kept), func(i int) bool {
		return float64(x.first[(begin+uint64(i))%indexSize]) > tick
	})
	if i == 0 {
		return 0, begin == 0
	}
	return begin + uint64(i) - 1, true
}

// findChunk returns the chunk that holds a tick by walking a log's frames. Where the disk lost
// that chunk it returns the number of the first of those lost there, not that of the chunk
// before: the trim stays the one that readers were sent while the chunk was whole.
func findChunk(log *spool.Log, tick float64) (uint64, error) {
	r, err := log.NewReader()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	var before chunk.Chunk
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return before.No, nil
		}
		if err != nil {
			return 0, err
		}
		if rec.Type != spool.RecordChunk {
			continue
		}
		if float64(rec.Chunk.FirstTick) > tick {
			end := float64(before.FirstTick) + float64(before.Scans)*log.Header().Setup.Timebase.TicksPerScan
			if rec.Chunk.No > before.No+1 && tick >= end {
				return before.No + 1, nil
			}
			return before.No, nil
		}
		before = rec.Chunk
	}
}
