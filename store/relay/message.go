package relay

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
	"github.com/wattmark/wattmark/measure/chunk"
)

// ErrMalformed is wrapped by errors about the content of a message. It is the same each time
// the message is read, so its task is set aside.
var ErrMalformed = errors.New("malformed")

// malformed returns an error that wraps ErrMalformed.
func malformed(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, a...))
}

// maxPiece is the most bytes of a chunk, or of a task's rest, in one message: half of the
// payload that servers take by default.
const maxPiece = 512 << 10

// head begins a message: its fields in this order, little-endian, without padding. Those from
// No to CRC are of the chunk, and zero in pieces of a rest.
type head struct {
	Magic     uint32
	Key       [16]byte // of the source of a chunk, of the task of a rest
	Kind      pieceKind
	_         uint8
	Part      uint16 // of Parts, from 0
	Parts     uint16
	_         uint16
	No        uint64
	FirstScan uint64
	FirstTick int64
	Scans     uint32
	CRC       uint32 // CRC-32C of the chunk
	Sum       uint32 // CRC-32C over all of the above and the body
}

const (
	pieceMagic = 0x31504D57 // "WMP1"
	pieceHead  = 4 + 16 + 2 + 6 + 3*8 + 3*4
)

// pieceKind is the kind of a message's content.
type pieceKind uint8

const (
	chunkPiece pieceKind = 1
	restPiece  pieceKind = 2
)

// piece is the content of a message: one part of a chunk or of a rest.
type piece struct {
	head
	body []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// append appends the message to dst. Magic and Sum are set here.
func (p *piece) append(dst []byte) []byte {
	at := len(dst)
	h := p.head
	h.Magic = pieceMagic
	dst, _ = binary.Append(dst, binary.LittleEndian, &h) // a struct of fixed size has no error
	sum := dst[len(dst)-4:]
	binary.LittleEndian.PutUint32(sum, crc32.Update(crc32.Checksum(dst[at:len(dst)-4], castagnoli), castagnoli, p.body))
	return append(dst, p.body...)
}

// parsePiece reads a message. The body shares its memory.
func parsePiece(b []byte) (p piece, err error) {
	if len(b) < pieceHead {
		return p, malformed("%d bytes, want at least %d", len(b), pieceHead)
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &p.head); err != nil {
		return p, malformed("%v", err)
	}
	p.body = b[pieceHead:]
	switch sum := crc32.Update(crc32.Checksum(b[:pieceHead-4], castagnoli), castagnoli, p.body); {
	case p.Magic != pieceMagic:
		return p, malformed("magic %08x, want %08x: of a newer version?", p.Magic, pieceMagic)
	case sum != p.Sum:
		return p, malformed("its checksum does not match")
	case b[21] != 0 || b[26] != 0 || b[27] != 0: // the fields without a name
		return p, malformed("reserved bytes are not zero")
	case p.Kind != chunkPiece && p.Kind != restPiece:
		return p, malformed("kind %d", p.Kind)
	case p.Part >= p.Parts:
		return p, malformed("part %d of %d", p.Part, p.Parts)
	case len(p.body) > maxPiece:
		return p, malformed("%d bytes of content, at most %d", len(p.body), maxPiece)
	}
	return p, nil
}

// split cuts the content of a chunk or rest into pieces with the head of p.
func split(p piece, content []byte) ([]piece, error) {
	n := max(1, (len(content)+maxPiece-1)/maxPiece)
	if n > 1<<16-1 {
		return nil, fmt.Errorf("%d bytes are more than %d messages carry", len(content), 1<<16-1)
	}
	out := make([]piece, n)
	for i := range out {
		out[i] = p
		out[i].Part, out[i].Parts = uint16(i), uint16(n)
		out[i].body = content[i*maxPiece : min(len(content), (i+1)*maxPiece)]
	}
	return out, nil
}

// stands refuses a piece that is not the part expected: an index that names one piece again
// and again must not fill the memory.
func (p *piece) stands(part, parts int) error {
	if int(p.Part) != part || int(p.Parts) != parts {
		return malformed("part %d of %d stands where part %d of %d should", p.Part, p.Parts, part, parts)
	}
	return nil
}

// join undoes split.
func join(pieces []piece) ([]byte, error) {
	if len(pieces) == 1 {
		return pieces[0].body, nil
	}
	var out []byte
	for i := range pieces {
		if err := pieces[i].stands(i, len(pieces)); err != nil {
			return nil, err
		}
		out = append(out, pieces[i].body...)
	}
	return out, nil
}

// chunkOf makes a chunk of its pieces, whose memory it may share. The caller has checked
// that they are of one chunk.
func chunkOf(pieces []piece) (*chunk.Chunk, error) {
	payload, err := join(pieces)
	if err != nil {
		return nil, err
	}
	p := pieces[0]
	c := &chunk.Chunk{No: p.No, FirstScan: p.FirstScan, FirstTick: p.FirstTick, Scans: int(p.Scans), CRC: p.CRC}
	if err := chunk.ParsePayload(c, payload); err != nil {
		return nil, malformed("chunk %d: %v", p.No, err)
	}
	if crc := chunk.Checksum(c); crc != c.CRC {
		return nil, malformed("chunk %d: checksum %08x, want %08x", p.No, crc, c.CRC)
	}
	return c, nil
}

// indexed is a chunk in the index of a task: its number, its CRC-32C, and the sequence
// numbers in the stream of its acknowledged pieces.
type indexed struct {
	no   uint64
	crc  uint32
	seqs []uint64
}

// appendIndex appends an index to dst: a line for each chunk and an empty one behind the last. A line is a JSON
// list of the step of the chunk's number, its CRC-32C and the step of each piece's sequence number: steps differ
// little, and pack well.
func appendIndex(dst []byte, list []*indexed) []byte {
	var no, seq uint64
	for _, x := range list {
		line := []int64{int64(x.no - no), int64(x.crc)}
		no = x.no
		for _, s := range x.seqs {
			line = append(line, int64(s-seq))
			seq = s
		}
		text, _ := json.Marshal(line) // integers have no error
		dst = append(append(dst, text...), '\n')
	}
	return append(dst, '\n')
}

// parseIndex reads an index of at most so many chunks, and returns the bytes behind it.
func parseIndex(b []byte, most uint64) (list []*indexed, rest []byte, err error) {
	var no, seq uint64
	for {
		line, rest, ok := bytes.Cut(b, []byte("\n"))
		if b = rest; ok && len(line) == 0 {
			return list, rest, nil
		}
		var v []int64
		err := json.Unmarshal(line, &v)
		switch at := len(list); {
		case !ok || err != nil || len(v) < 3 || v[0] < 0 || v[0] == 0 && at > 0 || v[1] != int64(uint32(v[1])):
			return nil, nil, malformed("index: chunk %d", at)
		case uint64(at) == most:
			return nil, nil, malformed("more than %d chunks are indexed", most)
		}
		no += uint64(v[0])
		x := &indexed{no: no, crc: uint32(v[1])}
		for _, step := range v[2:] {
			seq += uint64(step)
			x.seqs = append(x.seqs, seq)
		}
		list = append(list, x)
	}
}

// maxRest is the most bytes of a task's rest, unpacked. Launches are most of it, at some
// hundred bytes each.
const maxRest = 1 << 30

// maxRatio and freeRatio bound the unpacked size: so many times the packed size, and so many
// bytes more. Rows pack to a tenth.
const (
	maxRatio  = 256
	freeRatio = 16 << 20
)

// allowed returns the most bytes that a packed size may unpack to.
func allowed(packed int) uint64 { return min(maxRest, freeRatio+maxRatio*uint64(packed)) }

// pack makes the rest of a task: index and database, as one zstd frame. Where its unpacked size is more than
// allowed for so few packed bytes, a skippable frame, which readers pass over, makes them more.
func pack(list []*indexed, database []byte) ([]byte, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	plain := append(appendIndex(nil, list), database...)
	if len(plain) > maxRest {
		return nil, fmt.Errorf("the task's rows but samples take %d bytes, at most %d can be published",
			len(plain), maxRest)
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

// skippable is the magic of a frame that decoders of zstd pass over.
const skippable = 0x184D2A50

// unpack undoes pack. An index of more than most chunks is refused, and more than allowed is not unpacked:
// a stranger's message must not fill the memory.
func unpack(b []byte, most uint64) (list []*indexed, database []byte, err error) {
	may := allowed(len(b))
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(may))
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	plain, err := r.DecodeAll(b, nil)
	if err != nil {
		return nil, nil, malformed("%d bytes cannot be unpacked, to at most %d: %v", len(b), may, err)
	}
	return parseIndex(plain, most)
}

// endFormat is the version of all messages.
const endFormat = 2

// End is the message that makes a task whole: it is published once all others are acknowledged.
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
	// Orphan: the monitor filed it, because no host had published a task of its capture. A
	// host's task of the same source takes its place.
	Orphan bool `json:"orphan,omitempty"`

	by publisher // of the message
}

// parseEnd reads an end of the key in its subject.
func parseEnd(b []byte, key Key) (*End, error) {
	var e End
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, malformed("end of %s: %v", key, err)
	}
	switch {
	case e.Format != endFormat:
		return nil, malformed("end of %s: format %d, this program reads %d: update the older one", key, e.Format, endFormat)
	case key == "" || e.Key != key || e.Identity.Key() != key:
		return nil, malformed("end of %s names task %s", key, e.Key)
	case len(e.Rest) == 0:
		return nil, malformed("end of %s names no rest", key)
	case len(e.Rest) > maxRest/maxPiece:
		return nil, malformed("end of %s names a rest of %d pieces, at most %d are taken",
			key, len(e.Rest), maxRest/maxPiece)
	}
	return &e, nil
}
