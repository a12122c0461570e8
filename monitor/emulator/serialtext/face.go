// Package serialtext is a home-made board in software: a microcontroller with a few current and
// voltage converters that prints lines of numbers, or sends small binary frames, fed by the
// emulated board.
//
// A line has an optional number, an optional time in µs, and a current and a voltage a rail,
// with an optional check sum; Pattern describes it as a bench file does. The board sends from
// power-on and takes no commands.
package serialtext

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/internal/line"
	"github.com/wattmark/wattmark/monitor/emulator/internal/wiring"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// Config describes the board's sketch.
type Config struct {
	// Rails that it measures, by name; nil for aux_12v_1.
	Rails []string
	// Rate of the lines a second; default 500.
	Rate measure.Hertz
	// Seq prints a number before each line, NoStamp leaves the time in µs out, Sum
	// ends it with * and the XOR of all bytes before the two digits.
	Seq, NoStamp, Sum bool
	// Binary sends frames instead: AA 55, u16 number, u32 µs, i16 mA and u16 mV a
	// rail, all little-endian, and with Sum their CRC-16/CCITT-FALSE.
	Binary bool
	// First is the number, and the time in µs over the rate, that the board begins at.
	First uint32
	// Numbered makes the first current carry the count of the line in place of it.
	Numbered bool
}

// Face is one board. Run serves one line at a time. It sends as soon as it has power and takes no commands.
type Face struct {
	line.Frames // or lines
	cfg         Config
	rails       []int
}

const maxLines = 32 // of one write

// New makes a board that measures another.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	if cfg.Rate = cmp.Or(cfg.Rate, 500); !(cfg.Rate > 0) {
		return nil, fmt.Errorf("emulated board: rate %v: must be positive", cfg.Rate)
	}
	if cfg.Rails == nil {
		cfg.Rails = []string{"aux_12v_1"}
	}
	rails, err := wiring.Rails(b, cfg.Rails, len(cfg.Rails))
	if err != nil {
		return nil, fmt.Errorf("emulated board: %w", err)
	}
	f := &Face{cfg: cfg, rails: rails}
	f.Init(b, line.Beat{Pace: p, Step: 1e9 / float64(cfg.Rate)}, maxLines, f.append)
	f.Streaming = true
	f.Command = func(byte) error { return nil } // it takes none
	f.Start = func() error {
		if f.cfg.Binary {
			return nil
		}
		return f.Line.Write([]byte("# board ready\r\n"))
	}
	return f, nil
}

// Pattern is a bench file's description of the board's data: a line, or the fields of a frame that begins with AA 55.
func (f *Face) Pattern() string {
	var parts []string
	put := func(text, binary string) {
		if f.cfg.Binary {
			text = binary
		}
		parts = append(parts, text)
	}
	if f.cfg.Seq || f.cfg.Binary {
		put("{seq}", "{seq:u16}")
	}
	if !f.cfg.NoStamp || f.cfg.Binary {
		put("{t:us}", "{t:us:u32}")
	}
	for _, r := range f.cfg.Rails {
		put("{"+r+".current:mA.1}", "{"+r+".current:mA:i16}")
		put("{"+r+".voltage:mV}", "{"+r+".voltage:mV:u16}")
	}
	if f.cfg.Binary {
		return strings.Join(parts, " ")
	}
	if s := strings.Join(parts, ","); !f.cfg.Sum {
		return s
	} else {
		return s + "*{xor}"
	}
}

// micros is the time that a line shows, as micros() of a sketch counts it: it wraps after 71 minutes.
func (f *Face) micros() uint32 {
	return uint32(math.Round((float64(f.Beat.Next) + float64(f.cfg.First)) * f.Beat.Step / 1e3))
}

// append adds one line or frame to dst; p is the card's power at its time.
func (f *Face) append(dst []byte, p measure.Watt) []byte {
	if f.cfg.Binary {
		return f.frame(dst, p)
	}
	begin := len(dst)
	if f.cfg.Seq {
		dst = append(strconv.AppendUint(dst, uint64(f.cfg.First+uint32(f.Beat.Next)), 10), ',')
	}
	if !f.cfg.NoStamp {
		dst = append(strconv.AppendUint(dst, uint64(f.micros()), 10), ',')
	}
	for i, rail := range f.rails {
		r := f.Board.Rail(rail, p)
		deci := int64(math.Round(float64(r.I) * 1e4))
		if f.cfg.Numbered && i == 0 {
			deci = int64(f.Beat.Next)
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = fmt.Appendf(dst, "%d.%d,%d", deci/10, deci%10, int64(math.Round(float64(r.V)*1e3)))
	}
	if f.cfg.Sum {
		dst = append(dst, '*')
		x := byte(0)
		for _, c := range dst[begin:] {
			x ^= c
		}
		dst = fmt.Appendf(dst, "%02X", x)
	}
	return append(dst, '\r', '\n')
}

// frame adds one binary frame to dst: mark, number, time, readings, and a CRC where Sum is set.
func (f *Face) frame(dst []byte, p measure.Watt) []byte {
	dst = append(dst, 0xAA, 0x55)
	begin := len(dst)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(f.cfg.First+uint32(f.Beat.Next)))
	dst = binary.LittleEndian.AppendUint32(dst, f.micros())
	for i, rail := range f.rails {
		r := f.Board.Rail(rail, p)
		mA := int64(math.Round(float64(r.I) * 1e3))
		if f.cfg.Numbered && i == 0 {
			mA = int64(f.Beat.Next & 0x7FFF)
		}
		dst = binary.LittleEndian.AppendUint16(dst, uint16(int16(mA)))
		dst = binary.LittleEndian.AppendUint16(dst, uint16(math.Round(float64(r.V)*1e3)))
	}
	if f.cfg.Sum {
		dst = binary.LittleEndian.AppendUint16(dst, line.CRC16(dst[begin:]))
	}
	return dst
}
