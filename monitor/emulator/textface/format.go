package textface

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"wattmark/measure"
)

// Pattern is how a bench file describes what the board sends: a line, or the
// fields of a frame that begins with AA 55.
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

// micros is the time that a line shows.
func (f *Face) micros() uint32 {
	return uint32(math.Round((float64(f.beat.Next) + float64(f.cfg.First)) * f.beat.Step / 1e3))
}

// append adds one line or frame to dst; p is the card's power at its time.
func (f *Face) append(dst []byte, p measure.Watt) []byte {
	if f.cfg.Binary {
		return f.frame(dst, p)
	}
	begin := len(dst)
	if f.cfg.Seq {
		dst = append(strconv.AppendUint(dst, uint64(f.cfg.First+uint32(f.beat.Next)), 10), ',')
	}
	if !f.cfg.NoStamp {
		dst = append(strconv.AppendUint(dst, uint64(f.micros()), 10), ',')
	}
	for i, rail := range f.rails {
		r := f.board.Rail(rail, p)
		deci := int64(math.Round(float64(r.I) * 1e4))
		if f.cfg.Numbered && i == 0 {
			deci = int64(f.beat.Next)
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

func (f *Face) frame(dst []byte, p measure.Watt) []byte {
	dst = append(dst, 0xAA, 0x55)
	begin := len(dst)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(f.cfg.First+uint32(f.beat.Next)))
	dst = binary.LittleEndian.AppendUint32(dst, f.micros())
	for i, rail := range f.rails {
		r := f.board.Rail(rail, p)
		mA := int64(math.Round(float64(r.I) * 1e3))
		if f.cfg.Numbered && i == 0 {
			mA = int64(f.beat.Next & 0x7FFF)
		}
		dst = binary.LittleEndian.AppendUint16(dst, uint16(int16(mA)))
		dst = binary.LittleEndian.AppendUint16(dst, uint16(math.Round(float64(r.V)*1e3)))
	}
	if f.cfg.Sum {
		dst = binary.LittleEndian.AppendUint16(dst, crc(dst[begin:]))
	}
	return dst
}

// crc is CRC-16/CCITT-FALSE, a table of one nibble at a time.
func crc(b []byte) uint16 {
	c := uint16(0xFFFF)
	for _, v := range b {
		for _, nibble := range [2]byte{v >> 4, v & 15} {
			k := byte(c>>12) ^ nibble
			c = c<<4 ^ uint16(k)*0x1021
		}
	}
	return c
}
