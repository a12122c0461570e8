package pmdface

import (
	"encoding/binary"
	"math"
	"time"
)

// hostTimeout is how long the device waits for the rest of a command.
const hostTimeout = time.Second

// command carries out one command. Unknown ones are ignored.
func (f *Face) command(b byte) error {
	switch b {
	case 0x00:
		return f.w.Write([]byte("ElmorLabs PMD-USB"))
	case 0x01:
		return f.w.Write([]byte{0xEE, 0x0A, f.cfg.Firmware})
	case 0x02:
		f.idle()
		return f.w.Write(f.sensors())
	case 0x03:
		f.idle()
		return f.w.Write(f.values())
	case 0x04:
		return f.w.Write(f.config[:])
	case 0x05:
		return f.writeConfig()
	case 0x06:
		f.idle()
		var out []byte
		for _, n := range f.read() {
			out = binary.LittleEndian.AppendUint16(out, uint16(n)<<4)
		}
		return f.w.Write(out)
	case 0x07:
		return f.continuous()
	case 0x08:
		return f.uart()
	case 0xF0:
		f.reset()
	case 0xF1:
		f.w.Detach() // the boot loader is another device: this line is gone
	}
	return nil
}

// idle moves the clock on for a single reading, where no stream does.
func (f *Face) idle() {
	if !f.mode.on {
		f.catchUp()
	}
}

// sensors is the reply to 02: name, V/100, A/10 and W of each pair.
func (f *Face) sensors() []byte {
	counts := f.read()
	out := make([]byte, 0, 48)
	for p, name := range PairNames {
		var b [6]byte
		copy(b[:], name)
		v, a := f.pair(counts, p)
		out = append(out, b[:]...)
		out = binary.LittleEndian.AppendUint16(out, uint16(int16(math.Round(v*100))))
		out = binary.LittleEndian.AppendUint16(out, uint16(int16(math.Round(a*10))))
		out = binary.LittleEndian.AppendUint16(out, uint16(int16(math.Round(v*a))))
	}
	return out
}

// values is the reply to 03: V/100 and A/10 of each pair.
func (f *Face) values() []byte {
	counts := f.read()
	out := make([]byte, 0, 16)
	for p := range pairs {
		v, a := f.pair(counts, p)
		out = binary.LittleEndian.AppendUint16(out, uint16(int16(math.Round(v*100))))
		out = binary.LittleEndian.AppendUint16(out, uint16(int16(math.Round(a*10))))
	}
	return out
}

// pair is what the device itself makes of a pair's counts.
func (f *Face) pair(counts [Channels]int16, p int) (volts, amperes float64) {
	off := f.config[configOffsets:]
	v := float64(counts[2*p]) + float64(int8(off[2*p]))
	a := float64(counts[2*p+1]) + float64(int8(off[2*p+1]))
	return v * VoltCount, a * AmpCount
}

// continuous is 07: enable, bytes of the time stamp, channel mask.
func (f *Face) continuous() error {
	var p [3]byte
	if err := f.w.Recv(p[:], hostTimeout); err != nil {
		return err
	}
	was := f.mode.on
	f.mode = mode{on: p[0] != 0, stamp: int(p[1]), mask: p[2]}
	switch f.mode.stamp {
	case 0, 1, 2, 4:
	default:
		f.mode.stamp = 0
	}
	if f.mode.size() == 0 {
		f.mode.on = false
	}
	if f.cfg.Play != nil {
		return f.switchPlayer()
	}
	if f.mode.on && !was {
		f.catchUp()
		f.began.Store(f.tick)
	}
	return nil
}

// uart is 08: baud, parity, data bits, stop bits, each u32. A pty has no baud;
// the number matters only to Config.LimitToBaud.
func (f *Face) uart() error {
	var p [16]byte
	if err := f.w.Recv(p[:], hostTimeout); err != nil {
		return err
	}
	switch baud := binary.LittleEndian.Uint32(p[:]); baud {
	case 115200, 230400, 460800, 921600, 1500000, 2000000:
		f.baud = baud
	}
	return nil
}

// configOffsets is where the eight offsets lie in the stored configuration:
// version u8, padding, CRC u16, offsets 8 × i8, and the display's settings.
const configOffsets = 4

func defaultConfig(offsets [Channels]int8) (c [ConfigSize]byte) {
	c[0] = 4
	for i, o := range offsets {
		c[configOffsets+i] = byte(o)
	}
	binary.LittleEndian.PutUint16(c[2:], crc16(c[configOffsets:]))
	return c
}

// writeConfig is 05: it takes a configuration whose CRC is right and drops any
// other.
func (f *Face) writeConfig() error {
	var p [ConfigSize]byte
	if err := f.w.Recv(p[:], hostTimeout); err != nil {
		return err
	}
	if crc16(p[configOffsets:]) == binary.LittleEndian.Uint16(p[2:]) {
		f.config = p
	}
	return nil
}

// crc16 is CRC-16/CCITT-FALSE: polynomial 1021 hex, start FFFF hex.
func crc16(p []byte) uint16 {
	crc := uint16(0xFFFF)
	for _, b := range p {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
