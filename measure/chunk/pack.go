package chunk

import (
	"encoding/binary"
	"math/bits"
)

// spread returns the smallest of a block's counts and the bits that the
// largest distance from it needs. Two pairs of accumulators keep the
// comparisons of neighbouring counts independent of each other.
func spread(s *[BlockScans]int32) (base int32, width uint) {
	lo0, hi0, lo1, hi1 := s[0], s[0], s[1], s[1]
	for i := 2; i < BlockScans; i += 2 {
		a, b := s[i], s[i+1]
		lo0, hi0 = min(lo0, a), max(hi0, a)
		lo1, hi1 = min(lo1, b), max(hi1, b)
	}
	lo, hi := min(lo0, lo1), max(hi0, hi1)
	// The difference is taken modulo 2³², so that it is right even between the
	// ends of the int32 range.
	return lo, uint(bits.Len32(uint32(hi) - uint32(lo)))
}

// pack writes the distances of a block's counts from base, width bits each,
// least significant bit first. dst must hold 32·width + Pad bytes: the last
// store may reach past the block.
func pack(dst []byte, s *[BlockScans]int32, base int32, width uint) {
	switch {
	case width == 0:
	case width <= 8:
		pack8(dst, s, uint32(base), width)
	case width < 16:
		pack16(dst, s, uint32(base), width)
	default:
		packWide(dst, s, uint32(base), width)
	}
}

// pack8 packs widths of 1 to 8: eight values make width whole bytes, which fit
// in one word.
func pack8(dst []byte, s *[BlockScans]int32, base uint32, width uint) {
	for i := 0; i < BlockScans; i += 8 {
		v := (*[8]int32)(s[i:])
		a := uint64(uint32(v[7]) - base)
		a = a<<(width&63) | uint64(uint32(v[6])-base)
		a = a<<(width&63) | uint64(uint32(v[5])-base)
		a = a<<(width&63) | uint64(uint32(v[4])-base)
		a = a<<(width&63) | uint64(uint32(v[3])-base)
		a = a<<(width&63) | uint64(uint32(v[2])-base)
		a = a<<(width&63) | uint64(uint32(v[1])-base)
		a = a<<(width&63) | uint64(uint32(v[0])-base)
		binary.LittleEndian.PutUint64(dst, a)
		dst = dst[width:]
	}
}

// pack16 packs widths of 9 to 15: four values fit in a word, eight make width
// whole bytes in two.
func pack16(dst []byte, s *[BlockScans]int32, base uint32, width uint) {
	q := 4 * width // 36 to 60
	for i := 0; i < BlockScans; i += 8 {
		v := (*[8]int32)(s[i:])
		a := uint64(uint32(v[3]) - base)
		a = a<<(width&63) | uint64(uint32(v[2])-base)
		a = a<<(width&63) | uint64(uint32(v[1])-base)
		a = a<<(width&63) | uint64(uint32(v[0])-base)
		b := uint64(uint32(v[7]) - base)
		b = b<<(width&63) | uint64(uint32(v[6])-base)
		b = b<<(width&63) | uint64(uint32(v[5])-base)
		b = b<<(width&63) | uint64(uint32(v[4])-base)
		binary.LittleEndian.PutUint64(dst, a|b<<(q&63))
		binary.LittleEndian.PutUint64(dst[8:], b>>((64-q)&63))
		dst = dst[width:]
	}
}

// packWide packs any width up to 32, a word of 32 bits at a time.
func packWide(dst []byte, s *[BlockScans]int32, base uint32, width uint) {
	var acc uint64
	var n uint // bits waiting in acc, below 32
	for _, v := range s {
		acc |= uint64(uint32(v)-base) << (n & 63)
		n += width
		if n >= 32 {
			binary.LittleEndian.PutUint32(dst, uint32(acc))
			dst = dst[4:]
			acc >>= 32
			n -= 32
		}
	}
}

// unpack is the inverse of pack. src must hold 32·width + Pad bytes.
func unpack(dst *[BlockScans]int32, src []byte, base int32, width uint) {
	switch {
	case width == 0:
		for i := range dst {
			dst[i] = base
		}
	case width <= 8 && vector && len(src) >= 31*int(width)+8:
		unpackAVX2(dst, &src[0], base, width)
	case width <= 8:
		unpack8(dst, src, uint32(base), width)
	case width < 16:
		unpack16(dst, src, uint32(base), width)
	default:
		unpackWide(dst, src, uint32(base), width)
	}
}

func unpack8(dst *[BlockScans]int32, src []byte, base uint32, width uint) {
	mask := uint32(1)<<width - 1
	for i := 0; i < BlockScans; i += 8 {
		d := (*[8]int32)(dst[i:])
		a := binary.LittleEndian.Uint64(src)
		src = src[width:]
		d[0] = int32(base + uint32(a)&mask)
		a >>= width & 63
		d[1] = int32(base + uint32(a)&mask)
		a >>= width & 63
		d[2] = int32(base + uint32(a)&mask)
		a >>= width & 63
		d[3] = int32(base + uint32(a)&mask)
		a >>= width & 63
		d[4] = int32(base + uint32(a)&mask)
		a >>= width & 63
		d[5] = int32(base + uint32(a)&mask)
		a >>= width & 63
		d[6] = int32(base + uint32(a)&mask)
		a >>= width & 63
		d[7] = int32(base + uint32(a)&mask)
	}
}

func unpack16(dst *[BlockScans]int32, src []byte, base uint32, width uint) {
	mask := uint32(1)<<width - 1
	for i := 0; i < BlockScans; i += 4 {
		d := (*[4]int32)(dst[i:])
		// Four values of an odd width end in the middle of a byte.
		bit := uint(i) * width
		a := binary.LittleEndian.Uint64(src[bit>>3:]) >> (bit & 7)
		d[0] = int32(base + uint32(a)&mask)
		a >>= width & 63
		d[1] = int32(base + uint32(a)&mask)
		a >>= width & 63
		d[2] = int32(base + uint32(a)&mask)
		a >>= width & 63
		d[3] = int32(base + uint32(a)&mask)
	}
}

func unpackWide(dst *[BlockScans]int32, src []byte, base uint32, width uint) {
	mask := uint32(uint64(1)<<width - 1)
	for i := range dst {
		bit := uint(i) * width
		dst[i] = int32(base + uint32(binary.LittleEndian.Uint64(src[bit>>3:])>>(bit&7))&mask)
	}
}
