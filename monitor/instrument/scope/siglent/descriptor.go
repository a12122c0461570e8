package siglent

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"wattmark/monitor/scpi"
)

// descriptorSize is the length of the reply to :WAVeform:PREamble?.
const descriptorSize = 346

// Where the fields lie in a descriptor, in bytes; little-endian. The layout is
// LeCroy's WAVEDESC with the maker's own fields in its reserved places
// (programming guide EN11, :WAVeform:PREamble).
const (
	atCommType = 32  // i16: 0 bytes, 1 words
	atLength   = 36  // i32: of the descriptor
	atPoints   = 116 // i32: of the waveform
	atVolts    = 156 // f32: V a division at the input
	atOffset   = 160 // f32: V at the input
	atCodes    = 164 // f32: codes a division
	atBits     = 172 // i16: of the converter
	atInterval = 176 // f32: s between points
	atProbe    = 328 // f32: ratio
)

// descriptor is what a scope says of a channel's waveform.
type descriptor struct {
	points  int
	volts   float64 // a division, at the probe's tip
	offset  float64 // at the probe's tip
	codes   float64 // a division, of the width that is sent
	adc     int     // bits of the converter
	bits    int     // that a code has, of the width that is sent
	words   bool
	seconds float64 // between points
	probe   float64
}

// gain is volts a code: V = code · gain − offset.
func (d descriptor) gain() float64 { return d.volts / d.codes }

// narrowest is the fewest divisions that the codes of a scope span. Of a scope
// with 8 bits no more than 64 codes can be one division, then.
const narrowest = 4

// parseDescriptor reads the 346 bytes of a descriptor. It refuses fields that
// cannot scale a waveform.
func parseDescriptor(b []byte) (descriptor, error) {
	if len(b) != descriptorSize {
		return descriptor{}, fmt.Errorf("%w: a waveform descriptor of %d bytes, want %d: does this scope know the E11 commands?", scpi.ErrReply, len(b), descriptorSize)
	}
	if !bytes.HasPrefix(b, []byte("WAVEDESC")) {
		return descriptor{}, fmt.Errorf("%w: a waveform descriptor that begins with %q, not WAVEDESC", scpi.ErrReply, b[:8])
	}
	le := binary.LittleEndian
	single := func(at int) float64 { return float64(math.Float32frombits(le.Uint32(b[at:]))) }
	d := descriptor{
		points: int(int32(le.Uint32(b[atPoints:]))), probe: single(atProbe),
		codes: single(atCodes), adc: int(le.Uint16(b[atBits:])), words: le.Uint16(b[atCommType:]) == 1,
		seconds: single(atInterval),
	}
	d.volts, d.offset = single(atVolts)*d.probe, single(atOffset)*d.probe
	for _, f := range []struct {
		name     string
		v        float64
		positive bool
	}{
		{"volts a division", d.volts, true},
		{"codes a division", d.codes, true},
		{"interval", d.seconds, true},
		{"probe", d.probe, true},
		{"offset", d.offset, false},
	} {
		if math.IsNaN(f.v) || math.IsInf(f.v, 0) || f.positive && f.v <= 0 {
			return descriptor{}, fmt.Errorf("%w: a waveform descriptor whose %s is %v", scpi.ErrReply, f.name, f.v)
		}
	}
	if n := int(int32(le.Uint32(b[atLength:]))); n != descriptorSize {
		return descriptor{}, fmt.Errorf("%w: a waveform descriptor that calls itself %d bytes long", scpi.ErrReply, n)
	}
	if d.points < 0 || d.adc < 8 || d.adc > 16 {
		return descriptor{}, fmt.Errorf("%w: a waveform descriptor of %d points with %d bits", scpi.ErrReply, d.points, d.adc)
	}
	return d.aligned()
}

// aligned finds out how many bits of what is sent are a code. Words carry the
// converter's bits at their top or at their bottom; only the codes a division
// tell which. Some scopes state those of words where bytes are sent.
func (d descriptor) aligned() (descriptor, error) {
	most := func(bits int) float64 { return math.Ldexp(1, bits) / narrowest }
	d.bits = d.adc
	switch {
	case !d.words && d.codes > most(8):
		d.bits, d.codes = 8, d.codes/256
	case !d.words:
		d.bits = 8
	case d.codes > most(d.bits):
		d.bits = 16
	}
	if d.codes > most(d.bits) || d.codes < 1 {
		return descriptor{}, fmt.Errorf("%w: a waveform descriptor of %v codes a division with %d bits", scpi.ErrReply, d.codes, d.bits)
	}
	return d, nil
}

// width is the bytes of a point.
func (d descriptor) width() int {
	if d.words {
		return 2
	}
	return 1
}

// quantum is how many codes a step of the converter is wide.
func (d descriptor) quantum() float64 { return math.Ldexp(1, max(0, d.bits-d.adc)) }

// extend carries the sign of words that have fewer bits than 16 to their top.
func extend(words []byte, bits int) {
	if bits >= 16 {
		return
	}
	shift := 16 - bits
	for ; len(words) >= 2; words = words[2:] {
		v := int16(binary.LittleEndian.Uint16(words)<<shift) >> shift
		binary.LittleEndian.PutUint16(words, uint16(v))
	}
}
