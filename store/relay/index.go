package relay

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// indexed is a chunk in the index of a task: what it is, and the sequence numbers in
// the stream of its acknowledged pieces.
type indexed struct {
	no   uint64
	crc  uint32
	seqs []uint64
}

// appendIndex writes the number of chunks, and of each the distance of its number
// from the last, its checksum, the number of its pieces, and the distances of their
// sequence numbers; all but checksums as varints. Neighbours differ little, so a
// chunk takes some seven bytes.
func appendIndex(dst []byte, list []indexed) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	var no, seq uint64
	for _, x := range list {
		dst = binary.AppendUvarint(dst, x.no-no)
		no = x.no
		dst = binary.LittleEndian.AppendUint32(dst, x.crc)
		dst = binary.AppendUvarint(dst, uint64(len(x.seqs)))
		for _, s := range x.seqs {
			dst = binary.AppendVarint(dst, int64(s-seq))
			seq = s
		}
	}
	return dst
}

// leastIndexed is how many bytes a chunk takes in an index at least.
const leastIndexed = 1 + 4 + 1 + 1

// parseIndex reads an index, and returns what lies behind it.
func parseIndex(b []byte) (list []indexed, rest []byte, err error) {
	n, b, ok := uvarint(b)
	if !ok || n > uint64(len(b)/leastIndexed) {
		return nil, nil, malformed("the index of chunks is cut off")
	}
	list = make([]indexed, 0, n)
	var no, seq uint64
	for i := range n {
		var step, pieces uint64
		if step, b, ok = uvarint(b); !ok || len(b) < 4 || i > 0 && step == 0 {
			return nil, nil, malformed("index: chunk %d", i)
		}
		no += step
		x := indexed{no: no, crc: binary.LittleEndian.Uint32(b)}
		if pieces, b, ok = uvarint(b[4:]); !ok || pieces == 0 || pieces > uint64(len(b)) {
			return nil, nil, malformed("index: pieces of chunk %d", no)
		}
		for range pieces {
			d, k := binary.Varint(b)
			if k <= 0 {
				return nil, nil, malformed("index: places of chunk %d", no)
			}
			b = b[k:]
			seq += uint64(d)
			x.seqs = append(x.seqs, seq)
		}
		list = append(list, x)
	}
	return list, b, nil
}

func uvarint(b []byte) (uint64, []byte, bool) {
	v, k := binary.Uvarint(b)
	if k <= 0 {
		return 0, nil, false
	}
	return v, b[k:], true
}

// maxRest is how large the rest of a task may be, unpacked: a task's launches are the
// most of it, some hundred bytes each.
const maxRest = 1 << 30

// maxRatio and freeRatio bound what a frame may unpack to: so many times its packed size,
// and so many bytes more. Rows pack to a tenth.
const (
	maxRatio  = 256
	freeRatio = 16 << 20
)

// allowed is how many bytes a frame of a packed size may unpack to.
func allowed(packed int) uint64 { return min(maxRest, freeRatio+maxRatio*uint64(packed)) }

// pack makes the rest of a task: index and database, as one zstd frame that states its
// unpacked size. Where it would unpack to more than is allowed, a skippable frame that
// readers pass over makes it longer.
func pack(list []indexed, database []byte) ([]byte, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	plain := append(appendIndex(nil, list), database...)
	if len(plain) > maxRest {
		return nil, fmt.Errorf("the task's rows but samples take %d bytes, at most %d can be published", len(plain), maxRest)
	}
	out := w.EncodeAll(plain, nil)
	if uint64(len(plain)) > allowed(len(out)) {
		more := (len(plain)-freeRatio)/maxRatio + 1 - len(out)
		out = binary.LittleEndian.AppendUint32(out, skippable)
		out = binary.LittleEndian.AppendUint32(out, uint32(more))
		out = append(out, make([]byte, more)...)
	}
	return out, w.Close()
}

// skippable begins a frame that decoders of zstd pass over.
const skippable = 0x184D2A50

// unpack undoes pack. An index of more than most chunks is refused, and nothing is
// unpacked beyond the size that the frame's head states, nor beyond allowed.
func unpack(b []byte, most uint64) (list []indexed, database []byte, err error) {
	var head zstd.Header
	switch err := head.Decode(b); {
	case err != nil:
		return nil, nil, malformed("the rest cannot be unpacked: %v", err)
	case head.Skippable || !head.HasFCS:
		head.FrameContentSize = 255 // the encoder states none below 256
	case head.FrameContentSize > allowed(len(b)):
		return nil, nil, malformed("%d bytes state that they unpack to %d: at most %d are taken", len(b), head.FrameContentSize, allowed(len(b)))
	}
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(max(64<<10, head.FrameContentSize)))
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	plain, err := r.DecodeAll(b, nil)
	if err != nil {
		return nil, nil, malformed("the rest cannot be unpacked: %v", err)
	}
	if n, _, ok := uvarint(plain); ok && n > most {
		return nil, nil, malformed("%d chunks are indexed, of at most %d", n, most)
	}
	return parseIndex(plain)
}

// endFormat is the version of all of this.
const endFormat = 1

// End is the message that makes a task whole.
type End struct {
	Format int `json:"format"`
	Key    Key `json:"key"`
	Identity
	Chunks uint64 `json:"chunks"`
	Scans  uint64 `json:"scans"`
	Bytes  uint64 `json:"bytes"` // of coded samples
	// Rest are the places of the rest's pieces, and SHA256 its digest.
	Rest    []uint64 `json:"rest"`
	SHA256  string   `json:"sha256"`
	Program string   `json:"program,omitempty"`
	// Orphan: it was filed by the monitor, because no host had said what its capture was
	// of. A host's task of the same source takes its place.
	Orphan bool `json:"orphan,omitempty"`

	by publisher // whose message it came in
}

// parseEnd reads an end that came with a subject.
func parseEnd(b []byte, key Key) (*End, error) {
	var e End
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, malformed("end of %s: %v", key, err)
	}
	switch {
	case e.Format != endFormat:
		return nil, malformed("end of %s: format %d, this program reads %d: update it", key, e.Format, endFormat)
	case key == "" || e.Key != key || e.Identity.Key() != key:
		return nil, malformed("end of %s names task %s", key, e.Key)
	case len(e.Rest) == 0:
		return nil, malformed("end of %s names no rest", key)
	case len(e.Rest) > maxRest/maxPiece:
		return nil, malformed("end of %s names a rest of %d pieces, at most %d are taken", key, len(e.Rest), maxRest/maxPiece)
	}
	return &e, nil
}
