package pmd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
)

// input is a pair of channels with its true errors.
type input struct {
	rail              int     // −1 where nothing is connected
	voltGain, ampGain float64 // units a count
	voltOff, ampOff   float64 // units at count zero
}

// PairNames are the names that command 02 reports, in channel order.
var PairNames = [pairs]string{"PCIE1", "PCIE2", "EPS1", "EPS2"}

// connect puts rails on the pairs and draws the true scale of each channel.
func (f *Face) connect(rng *rand.Rand) error {
	names := f.cfg.Rails
	if names == [pairs]string{} { // the slot's 12 V on EPS1 and the other 12 V rails in order
		free := []int{0, 1, 3}
		for _, r := range f.board.Rails() {
			switch {
			case r.Role == measure.RolePCIe12V && names[2] == "":
				names[2] = r.Name
			case r.Open > 6 && len(free) > 0 && !strings.Contains(r.Name, "3v3"):
				names[free[0]] = r.Name
				free = free[1:]
			}
		}
	}
	sp := f.cfg.Spread
	draw := meter.Drawing(rng, f.cfg.Draw)
	for p := range f.inputs {
		in := &f.inputs[p]
		in.rail, in.voltGain, in.ampGain = -1, VoltCount/(1+draw(sp.UGainV)), AmpCount/(1+draw(sp.UGainI))
		in.voltOff, in.ampOff = draw(float64(sp.UOffsetV)), draw(float64(sp.UOffsetI))
		if names[p] == "" {
			continue
		}
		var err error
		if in.rail, err = f.board.Find(names[p]); err != nil {
			return fmt.Errorf("emulated PMD-USB: %s: %w", PairNames[p], err)
		}
	}
	return nil
}

// read converts all channels now.
func (f *Face) read() (counts [Channels]int16) {
	if f.board == nil {
		return counts
	}
	var total [1]measure.Watt
	f.board.Trace(total[:], f.now(), 0)
	// The host adds the offsets to a signed 12-bit count.
	convert := func(c int, x float64) {
		counts[c] = int16(min(max(math.Round(x)-float64(f.cfg.Offsets[c]), -2048), 2047))
	}
	for p, in := range f.inputs {
		var r board.Reading
		if in.rail >= 0 {
			r = f.board.Rail(in.rail, total[0])
		}
		convert(2*p, (float64(r.V)+in.voltOff)/in.voltGain+f.cfg.NoiseV*f.rng.NormFloat64())
		convert(2*p+1, (float64(r.I)+in.ampOff)/in.ampGain+f.cfg.NoiseI*f.rng.NormFloat64())
	}
	return counts
}

// steps are distances of samples in ticks with the share of samples that have
// it: most come from a loop of 602 ticks, the rest from the loop being
// held up by the device's display and buttons (counted in the public captures).
var steps = []struct {
	share float64
	ticks uint64
	width int64
}{{0.8183, 601, 3}, {0.0492, 605, 3}, {0.0401, 636, 3}, {0.0493, 683, 2}, {0.0401, 739, 1}, {0.0032, 600, 340}}

// nextStep draws the distance to the next sample.
func (f *Face) nextStep() uint64 {
	r := f.rng.Float64()
	ticks := steps[0].ticks
	for _, s := range steps {
		if r < s.share {
			ticks = s.ticks + uint64(f.rng.Int64N(s.width))
			break
		}
		r -= s.share
	}
	if f.cfg.LimitToBaud {
		// A byte takes ten bits on the line.
		ticks = max(ticks, uint64(float64(f.mode.size()*10)/float64(f.baud)*float64(f.cfg.TickHz)))
	}
	return ticks
}

// recordSize is that of a recorded sample: u16 ticks and eight u16 counts.
const recordSize = 2 + 2*Channels

// player sends a recording. Its time is the recording's own, by its time stamps.
type player struct {
	src   io.Closer
	r     *bufio.Reader
	last  uint16
	begun time.Duration // board time of its first record
	fresh bool
	ticks uint64        // since the first record
	done  time.Duration // recording time sent so far
	ended bool
}

// stopPlayer closes the recording, if one plays.
func (f *Face) stopPlayer() {
	if f.play != nil {
		_ = f.play.src.Close()
		f.play = nil
	}
}

// playBatch sends the records that are due.
func (f *Face) playBatch(until time.Duration) error {
	p := f.play
	f.out = f.out[:0]
	n := uint64(0)
	verbatim := f.mode.stamp == 2 && f.mode.mask == 0xFF // the driver asked for the recorded form
	for ; p.done <= until && n < maxSamples && !p.ended; n++ {
		var rec [recordSize]byte
		k, err := io.ReadFull(p.r, rec[:])
		switch {
		case err == nil:
			stamp := binary.LittleEndian.Uint16(rec[:]) // which wraps
			if p.fresh {
				p.ticks, p.fresh = uint64(stamp), false
			} else {
				p.ticks += uint64(stamp - p.last)
			}
			p.last, p.done = stamp, time.Duration(float64(p.ticks)/float64(f.cfg.TickHz)*1e9)
			if verbatim {
				f.out = append(f.out, rec[:]...)
			} else {
				f.out = f.mode.transcode(f.out, rec, p.ticks)
			}
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			if verbatim {
				f.out = append(f.out, rec[:k]...) // a torn tail is played too
			}
			p.ended = true
		default:
			return fmt.Errorf("emulated PMD-USB: read the recording: %w", err)
		}
	}
	if p.ended {
		n--
	}
	f.samples.Add(n)
	if err := f.Line.Write(f.out); err != nil {
		return err
	}
	if p.ended {
		f.stopPlayer()
		backoff.Nudge(f.played)
	}
	return nil
}

// transcode appends a sample in the form that the driver asked for.
func (m mode) transcode(dst []byte, rec [recordSize]byte, ticks uint64) []byte {
	var stamp [4]byte
	binary.LittleEndian.PutUint32(stamp[:], uint32(ticks))
	dst = append(dst, stamp[:m.stamp]...)
	for c := range Channels {
		if m.mask>>c&1 == 1 {
			dst = append(dst, rec[2+2*c:4+2*c]...)
		}
	}
	return dst
}
