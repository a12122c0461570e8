// Package replay records an instrument's samples and plays them again as an instrument.
//
// A recording is a folder of three files that people and other programs can read
// and write:
//
//	recording.json   the instrument: identity, timebase, response, channels
//	scans.csv        scan,tick,<one column a channel>: raw counts; a jump of scan is a gap
//	events.csv       kind,first_scan,scans,exact,channel,detail
package replay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// Kind is the driver's name in bench files.
const Kind = "replay"

// ErrEnd: the recording has been played to its end.
var ErrEnd = errors.New("end of the recording")

// Options are the settings of the driver in a bench file.
type Options struct {
	// Speed is how fast to play: 1 as recorded (default), 0 as fast as it is taken.
	Speed float64 `yaml:"speed"`
	// AtEnd follows the last scan: "wait" (default) sends nothing more, as
	// a meter at rest would; "stop" ends the stream with ErrEnd.
	AtEnd string `yaml:"at_end"`
}

// Defaults are the options of a recording that is not described further.
func Defaults() Options { return Options{Speed: 1, AtEnd: "wait"} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	err := instrument.Within("speed", o.Speed, 0, math.MaxFloat64, "0 (as fast as possible) or more")
	if err != nil || o.AtEnd == "wait" || o.AtEnd == "stop" {
		return err
	}
	return fmt.Errorf("at_end %q: want wait or stop", o.AtEnd)
}

// Device plays a recording. It implements instrument.Instrument. Its identity and inputs are those
// of the recorded instrument, once opened; the kind stays replay.
type Device struct {
	instrument.Base
	opts   Options
	events []measure.Event
}

// New makes a player of a folder; nothing is read yet.
func New(dir string, o Options) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	if dir == "" {
		return nil, fmt.Errorf("%s: no folder: give the recording's as address", Kind)
	}
	d := &Device{Base: instrument.Base{ID: instrument.Identity{Kind: Kind, Address: dir}}, opts: o}
	d.Steps, d.Run = []instrument.Step{d.load}, d.stream
	return d, nil
}

// load reads the recording but for its scans. Errors wrap ErrFormat.
func (d *Device) load(ctx context.Context) error {
	m, err := readMeta(d.ID.Address)
	if err == nil {
		d.events, err = readEvents(d.ID.Address)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	d.In = m.inputs()
	d.Identify(fmt.Sprintf("%s %s", m.Identity.Kind, m.Identity.Model), m.Identity.Serial, m.Identity.Firmware)
	return nil
}

// stream plays the recording from its beginning.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	f, err := os.Open(filepath.Join(d.ID.Address, ScansFile))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	defer f.Close()
	r := &rows{in: bufio.NewReaderSize(f, 1<<16), line: 1}
	if _, err := r.in.ReadSlice('\n'); err != nil { // the names
		return fmt.Errorf("%w: %s has no header", ErrFormat, ScansFile)
	}
	n := len(d.In.Channels)
	p := &player{d: d, sink: sink, events: d.events, start: time.Now()}
	p.row.counts, p.block.Counts = make([]measure.Count, n), make([][]measure.Count, n)
	err = p.play(ctx, r)
	if errors.Is(err, io.EOF) {
		if err = p.flush(); err == nil {
			err = p.deliverEvents(math.MaxUint64)
		}
		if err == nil && d.opts.AtEnd == "stop" {
			err = ErrEnd
		}
		if err == nil {
			<-ctx.Done()
		}
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = p.flush()
	}
	return err
}

// playTime is how much of the recording one block holds.
const playTime = 10 * time.Millisecond

// maxScans bounds a block.
const maxScans = 4096

// player is one Stream call.
type player struct {
	d      *Device
	sink   instrument.Sink
	block  measure.Block
	row    row
	events []measure.Event
	start  time.Time
	origin int64 // tick of the first scan
	first  uint64
	begun  bool
	ticks  []int64
}

// play delivers scan after scan, each block when the time of its last scan has
// come. It returns io.EOF at the end.
func (p *player) play(ctx context.Context, r *rows) error {
	for {
		if err := r.next(&p.row); err != nil {
			return err
		}
		if !p.begun { // the recording may itself begin in the middle of something
			p.begun, p.origin, p.first = true, p.row.tick, p.row.scan
		}
		scan, tick := p.row.scan-p.first, p.row.tick-p.origin
		held := p.d.In.Timebase.Seconds(float64(tick - p.block.FirstTick))
		if n := p.block.Scans(); n > 0 && (scan != p.block.FirstScan+uint64(n) || n >= maxScans ||
			held >= measure.SecondsOf(playTime)) {
			if err := p.wait(ctx); err != nil {
				return err
			}
			expected := p.block.FirstScan + uint64(n)
			if err := p.flush(); err != nil {
				return err
			}
			if err := p.jump(expected, scan); err != nil {
				return err
			}
		}
		if p.block.Scans() == 0 {
			p.block.FirstScan, p.block.FirstTick = scan, tick
			p.ticks = p.ticks[:0]
		}
		p.ticks = append(p.ticks, tick)
		if p.d.In.Timebase.Stamped {
			p.block.Ticks = p.ticks
		}
		for c, v := range p.row.counts {
			p.block.Counts[c] = append(p.block.Counts[c], v)
		}
	}
}

// jump makes a gap of scans that the recording lacks, unless its events have one.
func (p *player) jump(expected, scan uint64) error {
	if scan < expected {
		return fmt.Errorf("%w: scan %d comes after scan %d", ErrFormat, scan+p.first, expected+p.first-1)
	}
	known := func(e measure.Event) bool { return e.Kind == measure.EventGap && e.FirstScan == expected+p.first }
	if scan == expected || slices.ContainsFunc(p.events, known) {
		return nil
	}
	return p.sink.Event(measure.Event{
		Kind: measure.EventGap, FirstScan: expected, Scans: scan - expected, Exact: true,
		Channel: -1, Detail: "missing in the recording",
	})
}

// wait holds the block back until the time of its last scan.
func (p *player) wait(ctx context.Context) error {
	if p.d.opts.Speed == 0 {
		return ctx.Err()
	}
	at := p.d.In.Timebase.Seconds(float64(p.ticks[len(p.ticks)-1]))
	return backoff.Sleep(ctx, time.Until(p.start.Add((at / measure.Seconds(p.d.opts.Speed)).Duration())))
}

// flush delivers the events up to the block, and the block.
func (p *player) flush() error {
	n := p.block.Scans()
	if n == 0 {
		return nil
	}
	if err := p.deliverEvents(p.block.FirstScan + uint64(n)); err != nil {
		return err
	}
	err := p.sink.Block(&p.block)
	for c := range p.block.Counts {
		p.block.Counts[c] = p.block.Counts[c][:0]
	}
	return err
}

// deliverEvents delivers the events that begin before a scan, except for clipped readings: they are
// in the counts, and the receiver of the samples counts them by chunks of its own.
func (p *player) deliverEvents(before uint64) error {
	for len(p.events) > 0 && p.events[0].FirstScan-min(p.events[0].FirstScan, p.first) < before {
		e := p.events[0]
		e.FirstScan -= min(e.FirstScan, p.first)
		p.events = p.events[1:]
		if e.Kind == measure.EventOverRange {
			continue
		}
		if err := p.sink.Event(e); err != nil {
			return err
		}
	}
	return nil
}
