package u2300

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// acquisition is one begun by RUN or DIG.
type acquisition struct {
	running, over bool
	single        bool // DIG: ends after depth scans
	begin         time.Duration
	done          int // scans converted, once it no longer runs
	read          int // scans that were read
}

// Run is one acquisition, for tests that compare with the truth: when its first scan was
// taken and how many scans of it were read.
type Run struct {
	Begin time.Duration
	Read  int
}

// Runs are the acquisitions so far.
func (f *Face) Runs() (out []Run) {
	f.Do(func() { out = append(append(out, f.runs...), Run{f.acq.begin, f.acq.read}) })
	return out[1:] // before the first there was none
}

// ScanTime is the board's time of a scan that follows so many others.
func (f *Face) ScanTime(r Run, scan uint64) (at time.Duration) {
	f.Do(func() { at = r.Begin + f.after(float64(scan)) })
	return at
}

// Overflow makes the device's memory overflow now.
func (f *Face) Overflow() {
	f.Do(func() {
		if f.acq.running {
			f.freeze(f.converted())
			f.acq.over = true
		}
	})
}

// after is the board's time that so many scans take.
func (f *Face) after(scans float64) time.Duration {
	return time.Duration(math.Round(scans * 1e9 / (float64(f.rate) * (1 + f.cfg.Clock))))
}

// start is RUN and DIG.
func (f *Face) start(single bool) error {
	if f.acq.running {
		return scpi.ErrConflict
	}
	f.runs = append(f.runs, Run{f.acq.begin, f.acq.read})
	f.acq = acquisition{running: true, single: single, begin: f.cfg.Now()}
	return nil
}

// freeze ends an acquisition with so many scans done.
func (f *Face) freeze(done int) { f.acq.running, f.acq.done = false, done }

// converted is how many scans there are by now.
func (f *Face) converted() int {
	if !f.acq.running {
		return f.acq.done
	}
	return int((f.cfg.Now() - f.acq.begin).Seconds() * float64(f.rate) * (1 + f.cfg.Clock))
}

// update makes the events happen that are due: a full memory, the end of a single shot.
func (f *Face) update() {
	if !f.acq.running {
		return
	}
	n, most := f.converted(), f.acq.read+f.cfg.Memory/len(f.scan)
	switch {
	case f.acq.single && n >= f.depth:
		f.freeze(f.depth)
	case !f.acq.single && n > most:
		f.freeze(most)
		f.acq.over = true
	}
}

// block is how many scans WAV:DATA? gives at once.
func (f *Face) block() int {
	if f.acq.single {
		return f.depth
	}
	return f.points
}

// status is the answer to WAV:STAT?.
func (f *Face) status() string {
	f.update()
	unread := f.converted() - f.acq.read
	switch {
	case f.acq.over:
		return "OVER"
	case unread >= f.block():
		return "DATA"
	case unread > 0 && f.acq.running:
		return "FRAG"
	}
	return "EPTY"
}

// convert makes little-endian codes of scans, interleaved.
func (f *Face) convert(first, n int) []byte {
	size := 2 * len(f.scan)
	f.out = slices.Grow(f.out[:0], n*size)[:n*size]
	f.power = slices.Grow(f.power[:0], n)
	step := 1e9 / (float64(f.rate) * (1 + f.cfg.Clock))
	// In burst mode conversions follow each other as fast as the converter can, else they share the
	// scan's time evenly.
	delay := 1e9 / float64(f.fastest)
	if !f.burst {
		delay = 1e9 / float64(f.rate*len(f.scan))
	}
	for k, number := range f.scan {
		c := &f.inputs[number-firstChannel]
		p := f.power[:n]
		f.board.Trace(p, f.acq.begin+f.after(float64(first))+time.Duration(math.Round(float64(k)*delay)), step)
		full, _ := strconv.ParseFloat(c.rng, 64)
		for i, w := range p {
			code := c.code(f.wired.Volts(number-firstChannel, w), full)
			if f.cfg.Noise > 0 {
				code += f.cfg.Noise * f.noise.NormFloat64()
			}
			code = min(max(math.Round(code), math.MinInt16), math.MaxInt16)
			binary.LittleEndian.PutUint16(f.out[i*size+2*k:], uint16(int16(code)))
		}
	}
	return f.out
}

// code is where the converter puts a voltage.
func (c *channel) code(v, full float64) float64 {
	if c.polarity == "UNIP" {
		return (v/full - 0.5) * 65536
	}
	return v / full * 32768
}
