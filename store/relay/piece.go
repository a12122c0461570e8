package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"wattmark/measure/chunk"
)

// ErrMalformed: a message is not what it should be. It is the same each time it is
// read, so it is set aside.
var ErrMalformed = errors.New("malformed")

func malformed(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, a...))
}

// maxPiece is how many bytes of a chunk or of the rest one message carries: half of
// what a server takes unless told otherwise.
const maxPiece = 512 << 10

// A piece, little-endian:
//
//	magic u32 | key 16 bytes | kind u8 | 0 u8 | part u16 | parts u16 | 0 u16 |
//	number u64 | first scan u64 | first tick i64 | scans u32 | chunk's CRC-32C u32 |
//	CRC-32C over all of the above and the body u32 | body
//
// number, scans, ticks and the chunk's checksum are zero in pieces of the rest.
const (
	pieceMagic = 0x31504D57 // "WMP1"
	pieceHead  = 4 + 16 + 8 + 8 + 8 + 8 + 4 + 4 + 4
)

type pieceKind uint8

const (
	chunkPiece pieceKind = 1
	restPiece  pieceKind = 2
)

// piece is a message's content.
type piece struct {
	key         [16]byte
	kind        pieceKind
	part, parts uint16
	no          uint64
	firstScan   uint64
	firstTick   int64
	scans       uint32
	crc         uint32
	body        []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (p *piece) append(dst []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, pieceMagic)
	dst = append(dst, p.key[:]...)
	dst = append(dst, byte(p.kind), 0)
	dst = binary.LittleEndian.AppendUint16(dst, p.part)
	dst = binary.LittleEndian.AppendUint16(dst, p.parts)
	dst = append(dst, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, p.no)
	dst = binary.LittleEndian.AppendUint64(dst, p.firstScan)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(p.firstTick))
	dst = binary.LittleEndian.AppendUint32(dst, p.scans)
	dst = binary.LittleEndian.AppendUint32(dst, p.crc)
	sum := crc32.Update(crc32.Checksum(dst[at:], castagnoli), castagnoli, p.body)
	dst = binary.LittleEndian.AppendUint32(dst, sum)
	return append(dst, p.body...)
}

// parsePiece reads a message. The body is a part of it.
func parsePiece(b []byte) (p piece, err error) {
	if len(b) < pieceHead {
		return p, malformed("%d bytes, want at least %d", len(b), pieceHead)
	}
	if m := binary.LittleEndian.Uint32(b); m != pieceMagic {
		return p, malformed("magic %08x, want %08x: of a newer version?", m, pieceMagic)
	}
	p.key = [16]byte(b[4:20])
	p.kind = pieceKind(b[20])
	p.part, p.parts = binary.LittleEndian.Uint16(b[22:]), binary.LittleEndian.Uint16(b[24:])
	p.no, p.firstScan = binary.LittleEndian.Uint64(b[28:]), binary.LittleEndian.Uint64(b[36:])
	p.firstTick = int64(binary.LittleEndian.Uint64(b[44:]))
	p.scans, p.crc = binary.LittleEndian.Uint32(b[52:]), binary.LittleEndian.Uint32(b[56:])
	p.body = b[pieceHead:]
	sum := crc32.Update(crc32.Checksum(b[:pieceHead-4], castagnoli), castagnoli, p.body)
	switch {
	case sum != binary.LittleEndian.Uint32(b[60:]):
		return p, malformed("its checksum does not match")
	case b[21] != 0 || b[26] != 0 || b[27] != 0:
		return p, malformed("reserved bytes are not zero")
	case p.kind != chunkPiece && p.kind != restPiece:
		return p, malformed("kind %d", p.kind)
	case p.part >= p.parts:
		return p, malformed("part %d of %d", p.part, p.parts)
	case len(p.body) > maxPiece:
		return p, malformed("%d bytes of content, at most %d", len(p.body), maxPiece)
	}
	return p, nil
}

// split cuts content into the pieces of one thing, each like p.
func split(p piece, content []byte) ([]piece, error) {
	n := max(1, (len(content)+maxPiece-1)/maxPiece)
	if n > 1<<16-1 {
		return nil, fmt.Errorf("%d bytes are more than %d messages carry", len(content), 1<<16-1)
	}
	out := make([]piece, n)
	for i := range out {
		out[i] = p
		out[i].part, out[i].parts = uint16(i), uint16(n)
		out[i].body = content[i*maxPiece : min(len(content), (i+1)*maxPiece)]
	}
	return out, nil
}

// piecesOf cuts a chunk, whose payload is coded already.
func piecesOf(key [16]byte, c *chunk.Chunk, payload []byte) ([]piece, error) {
	return split(piece{
		key: key, kind: chunkPiece, no: c.No, firstScan: c.FirstScan, firstTick: c.FirstTick,
		scans: uint32(c.Scans), crc: c.CRC,
	}, payload)
}

// stands refuses a piece that is not the one that should stand there: one that is named
// again and again must not be gathered.
func (p *piece) stands(part, parts int) error {
	if int(p.part) != part || int(p.parts) != parts {
		return malformed("part %d of %d stands where part %d of %d should", p.part, p.parts, part, parts)
	}
	return nil
}

// join puts the pieces of one thing together again.
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

// chunkOf makes a chunk of its pieces; it shares their memory. The caller has seen
// that they are of the chunk.
func chunkOf(pieces []piece) (*chunk.Chunk, error) {
	payload, err := join(pieces)
	if err != nil {
		return nil, err
	}
	p := pieces[0]
	c := &chunk.Chunk{No: p.no, FirstScan: p.firstScan, FirstTick: p.firstTick, Scans: int(p.scans), CRC: p.crc}
	if err := chunk.ParsePayload(c, payload); err != nil {
		return nil, malformed("chunk %d: %v", p.no, err)
	}
	if crc := chunk.Checksum(c); crc != c.CRC {
		return nil, malformed("chunk %d: checksum %08x, want %08x", p.no, crc, c.CRC)
	}
	return c, nil
}
