package pmdface

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"wattmark/monitor/emulator/pace"
)

// recordSize is that of a recorded sample: u16 ticks and eight u16 counts.
const recordSize = 2 + 2*Channels

// player sends a recording. Its time is the recording's own, by its time stamps.
type player struct {
	src   io.Closer
	r     *bufio.Reader
	pace  pace.Pace
	timer *pace.Timer
	last  uint16
	begun bool
	ticks uint64        // since the first record
	done  time.Duration // recording time sent so far
	ended bool
}

func (p *player) close() {
	if p != nil {
		p.timer.Stop()
		_ = p.src.Close()
	}
}

// switchPlayer starts the recording from its begin, or stops it.
func (f *Face) switchPlayer() error {
	f.play.close()
	f.play = nil
	if !f.mode.on {
		return nil
	}
	src, err := f.cfg.Play()
	if err != nil {
		return fmt.Errorf("emulated PMD-USB: open the recording: %w", err)
	}
	p := f.pace
	if !p.Free() {
		p.Epoch = time.Now() // the recording's time begins now
	}
	f.play = &player{src: src, r: bufio.NewReaderSize(src, 1<<16), pace: p, timer: p.NewTimer()}
	return nil
}

// playBatch sends the records that are due.
func (f *Face) playBatch() error {
	p := f.play
	until := p.pace.Due(p.done)
	f.out = f.out[:0]
	n := uint64(0)
	for ; p.done <= until && n < maxSamples && !p.ended; n++ {
		var rec [recordSize]byte
		k, err := io.ReadFull(p.r, rec[:])
		switch {
		case err == nil:
			p.advance(binary.LittleEndian.Uint16(rec[:]), float64(f.cfg.TickHz))
			f.out = f.mode.transcode(f.out, rec, p.ticks)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			if f.mode.verbatim() {
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
	if err := f.w.Write(f.out); err != nil {
		return err
	}
	if p.ended {
		f.play.close()
		f.play = nil
		select {
		case f.played <- struct{}{}:
		default:
		}
	}
	return nil
}

// advance moves the recording's time to a record's stamp, which wraps.
func (p *player) advance(stamp uint16, tickHz float64) {
	if p.begun {
		p.ticks += uint64(stamp - p.last)
	} else {
		p.ticks, p.begun = uint64(stamp), true
	}
	p.last = stamp
	p.done = time.Duration(float64(p.ticks) / tickHz * 1e9)
}

// verbatim reports whether the driver asked for what is recorded.
func (m mode) verbatim() bool { return m.stamp == 2 && m.mask == 0xFF }

// transcode appends a record in the form that the driver asked for.
func (m mode) transcode(dst []byte, rec [recordSize]byte, ticks uint64) []byte {
	if m.verbatim() {
		return append(dst, rec[:]...)
	}
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
