package chunk

import (
	"encoding/binary"
	"math"
)

// The columns of a chunk by planes of bytes, for a compressor that works on bytes.
// A column's packed values cross the bounds of bytes, which hides from it how often
// each is; a byte a value shows it.
//
//	u8 version 1
//	per column: u8 mode, the directory, then plane 0, 1, … of its blocks
//
// Plane p has a byte, bits 8p to 8p+7, of each of the 256 values of every block wider
// than 8p bits. In mode 0 a value is what is packed; in mode 1 its distance from the
// one before in the block, modulo 2^width, as 0, -1, 1, -2, … are numbered.
const planesVersion = 1

const (
	modePlain = 0
	modeDelta = 1
)

// AppendPlanes appends a chunk's columns by planes. The chunk must be a valid one.
func AppendPlanes(dst []byte, c *Chunk) []byte {
	dst = append(dst, planesVersion)
	var plain, delta []byte
	for i := range c.Columns {
		col := &c.Columns[i]
		plain, delta = col.planes(plain[:0], modePlain), col.planes(delta[:0], modeDelta)
		mode, planes := byte(modePlain), plain
		if entropy(delta) < entropy(plain) {
			mode, planes = modeDelta, delta
		}
		dst = append(append(append(dst, mode), col.Dir...), planes...)
	}
	return dst
}

// entropy is the information in bytes, in bits, if each stood alone.
func entropy(b []byte) float64 {
	var n [256]int
	for _, v := range b {
		n[v]++
	}
	sum := 0.0
	for _, k := range n {
		if k > 0 {
			sum -= float64(k) * math.Log2(float64(k)/float64(len(b)))
		}
	}
	return sum
}

// entry reads a block's directory entry.
func (col *Column) entry(k int) (base int32, width uint, at int) {
	d := col.Dir[DirEntry*k:]
	wo := binary.LittleEndian.Uint32(d[4:])
	return int32(binary.LittleEndian.Uint32(d)), uint(wo & 0xffff), 32 * int(wo>>16)
}

// planes appends a column's planes.
func (col *Column) planes(dst []byte, mode byte) []byte {
	widest := uint(0)
	for k := range len(col.Dir) / DirEntry {
		_, w, _ := col.entry(k)
		widest = max(widest, w)
	}
	var v [BlockScans]int32
	for shift := uint(0); shift < widest; shift += 8 {
		for k := range len(col.Dir) / DirEntry {
			_, w, at := col.entry(k)
			if w <= shift {
				continue
			}
			unpack(&v, col.Data[at:], 0, w)
			if mode == modeDelta {
				fold(&v, w)
			}
			for _, x := range v {
				dst = append(dst, byte(uint32(x)>>shift))
			}
		}
	}
	return dst
}

// fold replaces values of a width by their folded distances.
func fold(v *[BlockScans]int32, width uint) {
	up := 32 - width // widths are 1 to 32 here
	before := uint32(0)
	for i, x := range v {
		d := int32((uint32(x)-before)<<up) >> up // signed, of that width
		before = uint32(x)
		v[i] = int32(uint32(d)<<1^uint32(d>>31)) & int32(mask(width))
	}
}

// unfold is the inverse of fold.
func unfold(v *[BlockScans]int32, width uint) {
	before := uint32(0)
	for i, z := range v {
		before = (before + (uint32(z)>>1 ^ -(uint32(z) & 1))) & mask(width)
		v[i] = int32(before)
	}
}

func mask(width uint) uint32 { return uint32(uint64(1)<<width - 1) }

// ParsePlanes fills a chunk's columns from their planes; Scans must be set. Errors
// wrap ErrCorrupt. It is the inverse of AppendPlanes to the byte, but for a pad that
// is not zero: the checksum tells.
func ParsePlanes(c *Chunk, columns int, b []byte) error {
	if c.Scans < 1 || c.Scans > MaxScans || columns > MaxColumns {
		return corrupt("%d scans of %d columns", c.Scans, columns)
	}
	if len(b) < 1 || b[0] != planesVersion {
		return corrupt("planes do not begin as such")
	}
	b = b[1:]
	c.Columns = c.Columns[:0]
	dir := DirEntry * c.Blocks()
	for i := range columns {
		if len(b) < 1+dir || b[0] > modeDelta {
			return corrupt("column %d: planes too short, or of an unknown mode", i)
		}
		col := Column{Dir: append([]byte(nil), b[1:1+dir]...)}
		n, err := col.fromPlanes(b[1+dir:], b[0])
		if err != nil {
			return err
		}
		b = b[1+dir+n:]
		c.Columns = append(c.Columns, col)
	}
	if len(b) != 0 {
		return corrupt("%d bytes after the last plane", len(b))
	}
	return nil
}

// fromPlanes packs a column's data, and returns how many bytes of planes it took.
func (col *Column) fromPlanes(b []byte, mode byte) (int, error) {
	size, total := 0, 0
	for k := range len(col.Dir) / DirEntry {
		_, w, at := col.entry(k)
		if w > MaxWidth || at != 32*size {
			return 0, corrupt("block %d: width %d at %d", k, w, at)
		}
		size += int(w)
		total += BlockScans * int((w+7)/8)
	}
	if len(b) < total {
		return 0, corrupt("%d bytes of planes, want %d", len(b), total)
	}
	// Where a plane begins, and how far it was read.
	var next [MaxWidth / 8]int
	for k := range len(col.Dir) / DirEntry {
		_, w, _ := col.entry(k)
		for p := 1; p < len(next); p++ {
			if w > uint(8*(p-1)) {
				next[p] += BlockScans
			}
		}
	}
	for p := 1; p < len(next); p++ {
		next[p] += next[p-1]
	}
	col.Data = make([]byte, 32*size+Pad)
	var v [BlockScans]int32
	for k := range len(col.Dir) / DirEntry {
		_, w, at := col.entry(k)
		if w == 0 {
			continue
		}
		clear(v[:])
		for p := 0; uint(8*p) < w; p++ {
			for i, x := range b[next[p]:][:BlockScans] {
				v[i] |= int32(uint32(x) << (8 * p))
			}
			next[p] += BlockScans
		}
		if mode == modeDelta {
			unfold(&v, w)
		}
		pack(col.Data[at:], &v, 0, w)
	}
	clear(col.Data[32*size:])
	return total, nil
}
