package chunk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"

	"github.com/wattmark/wattmark/measure"
)

// Thinned is the first byte of a payload that has the sums of deleted scans in place of columns.
const Thinned = 2

const (
	// MaxThinned is the largest number of scans whose sums stand together.
	MaxThinned = 1 << 30
	sumsHead   = 12 // chunks u64, CRC-32C of their checksums u32, little-endian; measure.Thinned follows
)

// Deleted returns how many chunks a chunk of sums stands for, and the CRC-32C of their checksums, each as four
// bytes, little-endian; one with columns stands for itself.
func (c *Chunk) Deleted() (chunks uint64, crc uint32) {
	if len(c.Sums) < sumsHead {
		return 1, crc32.Checksum(binary.LittleEndian.AppendUint32(nil, c.CRC), castagnoli)
	}
	return binary.LittleEndian.Uint64(c.Sums), binary.LittleEndian.Uint32(c.Sums[8:])
}

// Join returns the CRC-32C of chunks' checksums with those that c stands for behind them.
func (c *Chunk) Join(crc uint32) uint32 {
	n, own := c.Deleted()
	// A checksum is linear: it goes on as over as many zeros, to which the other's is added.
	zeros, none := make([]byte, 1<<12), uint32(0)
	for left := 4 * n; left > 0; left -= uint64(len(zeros)) {
		zeros = zeros[:min(uint64(len(zeros)), left)]
		crc, none = crc32.Update(crc, castagnoli, zeros), crc32.Update(none, castagnoli, zeros)
	}
	return crc ^ none ^ own
}

// Thinning makes one chunk of sums out of chunks that follow each other.
type Thinning struct {
	sums   *measure.Thinned
	setup  *measure.Setup
	chunks uint64
	crc    uint32
	out    Chunk // its head
	block  measure.Block
}

// NewThinning begins, or goes on behind a chunk of sums; nil for none. Errors wrap ErrCorrupt or measure.ErrThinned.
func NewThinning(s *measure.Setup, behind *Chunk) (t *Thinning, err error) {
	t = &Thinning{setup: s}
	if behind == nil {
		t.sums, err = measure.NewThinned(s)
		return t, err
	}
	if t.sums, err = behind.thinned(s); err != nil {
		return nil, err
	}
	t.chunks, t.crc = behind.Deleted()
	t.out = Chunk{No: behind.No, FirstScan: behind.FirstScan, FirstTick: behind.FirstTick, Scans: behind.Scans}
	return t, nil
}

// Add takes the next chunk, with columns. Errors are those of Decode and of measure.Thinned.
func (t *Thinning) Add(c *Chunk) error {
	err := Decode(c, t.setup.Timebase, len(t.setup.Channels), &t.block)
	if err == nil {
		err = t.sums.Add(&t.block)
	}
	if err != nil {
		return err
	}
	if t.chunks == 0 {
		t.out.FirstScan, t.out.FirstTick = c.FirstScan, c.FirstTick
	}
	t.crc = c.Join(t.crc)
	t.chunks, t.out.No, t.out.Scans = t.chunks+1, c.No, t.out.Scans+c.Scans
	return nil
}

// Chunk returns the chunk of sums, which has the number of the last one that it stands for.
func (t *Thinning) Chunk() (*Chunk, error) {
	sums, err := t.sums.Encode()
	if err != nil {
		return nil, err
	}
	c := t.out
	c.Sums = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, t.chunks), t.crc)
	c.Sums = append(c.Sums, sums...)
	c.CRC = Checksum(&c)
	return &c, nil
}

// thinnedError is measure.ErrThinned with where the samples were.
func (c *Chunk) thinnedError(tb measure.Timebase) error {
	from, scans := float64(c.FirstTick), uint64(c.Scans)
	to := from + float64(scans-1)*tb.TicksPerScan
	return fmt.Errorf("%v to %v of device time (scans %d to %d): %w; spans beside them (--from, --to) can be read",
		tb.Seconds(from), tb.Seconds(to), c.FirstScan, c.FirstScan+scans-1, measure.ErrThinned)
}

// thinned reads the sums.
func (c *Chunk) thinned(s *measure.Setup) (*measure.Thinned, error) {
	t, err := (*measure.Thinned)(nil), error(nil)
	if len(c.Sums) < sumsHead {
		err = corrupt("sums of %d bytes", len(c.Sums))
	} else if t, err = measure.DecodeThinned(s, c.Sums[sumsHead:]); err == nil && t.Scans() != uint64(c.Scans) {
		err = corrupt("sums of %d scans, want %d", t.Scans(), c.Scans)
	}
	if err != nil {
		return nil, fmt.Errorf("chunk %d: %w", c.No, err)
	}
	return t, nil
}

// DecodeSums is Decode, also of a chunk of sums.
func DecodeSums(c *Chunk, s *measure.Setup, dst *measure.Block) (err error) {
	if c.Sums == nil {
		return Decode(c, s.Timebase, len(s.Channels), dst)
	}
	t, err := c.thinned(s)
	if err == nil {
		*dst = t.Block(c.FirstScan, c.FirstTick)
	}
	return err
}

// DecodeAllSums is DecodeAll for readers that take sums of deleted scans: measure.Integrator does.
func DecodeAllSums(chunks iter.Seq2[*Chunk, error], s *measure.Setup) iter.Seq2[*measure.Block, error] {
	return decodeAll(chunks, func(c *Chunk, b *measure.Block) error { return DecodeSums(c, s, b) })
}
