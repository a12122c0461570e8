package data

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/wattmark/wattmark/measure/chunk"
)

// ErrCorrupt: stored or offered data does not pass its own checks.
var ErrCorrupt = errors.New("corrupt data")

// Coders are made once: a coder holds tables of some megabytes, and EncodeAll and
// DecodeAll may be called from everywhere at once.
var (
	// Noise has no repeats, only bytes of different frequency: the fastest level with entropy
	// coding of all literals packs tighter than higher levels that look for repeats.
	encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithAllLitEntropyCompression(true),
			zstd.WithEncoderConcurrency(1))
	})
	decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxUnpacked),
			zstd.WithDecodeAllCapLimit(true))
	})
)

// maxUnpacked bounds a packed chunk, however many columns its calibration states.
const maxUnpacked = 256 << 20

// maxSums bounds the sums of deleted samples: a megabyte and a half would be those of a hundred channels.
const maxSums = 2 << 20

// sums begins the packed form of a chunk of sums; zstd's own magic number begins that of columns.
var sums = []byte("sums")

// Pack codes a valid chunk's columns tighter: by planes of bytes, through zstd. Sums are coded as they are.
func Pack(c *chunk.Chunk) ([]byte, error) {
	enc, err := encoder()
	if err != nil {
		return nil, err
	}
	if c.Sums != nil {
		return enc.EncodeAll(c.Sums, slices.Clone(sums)), nil
	}
	data := enc.EncodeAll(chunk.AppendPlanes(nil, c), nil)
	// What replaces the only copy must give it back to the byte.
	back := chunk.Chunk{No: c.No, FirstScan: c.FirstScan, FirstTick: c.FirstTick, Scans: c.Scans}
	if err := Unpack(&back, len(c.Columns), data); err != nil {
		return nil, err
	}
	if sum := chunk.Checksum(&back); sum != c.CRC {
		return nil, fmt.Errorf("%w: packed, it has checksum %08x, not %08x", ErrCorrupt, sum, c.CRC)
	}
	return data, nil
}

// Unpack fills in the columns of a chunk. It unpacks no more than a chunk of c.Scans scans can hold.
func Unpack(c *chunk.Chunk, columns int, data []byte) error {
	dec, err := decoder()
	if err != nil {
		return err
	}
	if packed, ok := bytes.CutPrefix(data, sums); ok {
		if c.Sums, err = dec.DecodeAll(packed, make([]byte, 0, maxSums)); err != nil {
			err = fmt.Errorf("%w: sums of deleted samples: %w", ErrCorrupt, err)
		}
		return err
	}
	size := min(chunk.MaxPlanes(c.Scans, columns), maxUnpacked)
	var head zstd.Header
	if err := head.Decode(data); err == nil && head.HasFCS {
		if head.FrameContentSize > uint64(size) {
			return fmt.Errorf("%w: packed chunk: it states %d bytes, and %d scans of %d columns are at most %d", ErrCorrupt,
				head.FrameContentSize, c.Scans, columns, size)
		}
		size = int(head.FrameContentSize)
	}
	planes, err := dec.DecodeAll(data, make([]byte, 0, size))
	if err != nil {
		return fmt.Errorf("%w: packed chunk: %w", ErrCorrupt, err)
	}
	return chunk.ParsePlanes(c, columns, planes)
}
