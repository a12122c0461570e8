package relay

import (
	"encoding/binary"
	"encoding/json"

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

// parseIndex reads an index, and returns what lies behind it.
func parseIndex(b []byte) (list []indexed, rest []byte, err error) {
	n, b, ok := uvarint(b)
	if !ok || n > uint64(len(b)) { // a chunk takes more than a byte
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

// pack makes the rest of a task: index and database, as one zstd frame.
func pack(list []indexed, database []byte) ([]byte, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return w.EncodeAll(append(appendIndex(nil, list), database...), nil), w.Close()
}

// unpack undoes pack.
func unpack(b []byte) (list []indexed, database []byte, err error) {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRest))
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	plain, err := r.DecodeAll(b, nil)
	if err != nil {
		return nil, nil, malformed("the rest cannot be unpacked: %v", err)
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
	}
	return &e, nil
}
