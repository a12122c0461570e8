// Package arrowfile writes tables as Apache Arrow IPC, as a stream or as a file.
//
//	stream   schema message, record batches, end marker
//	file     ARROW1, the stream, footer (schema and places of the batches), its length, ARROW1
//
// A message is FF FF FF FF, the length of its metadata (a flatbuffer, padded to 8 bytes) and its
// body. A batch of the table becomes a record batch whose body is the columns' memory, not
// compressed: the format is for programs that read at once, Parquet for files that are kept.
//
// Source: Arrow Columnar Format 1.5, section "Serialization and Interprocess Communication".
package arrowfile

import (
	"encoding/binary"
	"fmt"
	"io"
	"unsafe"

	fb "github.com/google/flatbuffers/go"
	"github.com/wattmark/wattmark/store/exchange"
)

// WriteStream writes a table as an Arrow IPC stream: record batches of exchange.BatchRows rows, not
// compressed. The schema's metadata holds exchange.Meta under exchange.MetaKey, each field's its unit.
func WriteStream(w io.Writer, t *exchange.Table) error { return write(w, t, false) }

// WriteFile writes the same as an Arrow IPC file (Feather version 2), with an
// index at its end that lets readers jump and map it into memory.
func WriteFile(w io.Writer, t *exchange.Table) error { return write(w, t, true) }

// magic begins and ends a file; the beginning is padded to 8 bytes.
const magic = "ARROW1"

// Values of the format's enumerations.
const (
	metadataV5 = 4 // MetadataVersion

	headerSchema, headerBatch = 1, 3 // MessageHeader

	typeInt, typeFloat = 2, 3 // Type
	precisionDouble    = 2
)

// block is the place of a record batch in a file.
type block struct {
	offset, body int64
	metadata     int32 // with its prefix of 8 bytes
}

// writer writes messages. Its methods do nothing after the first error.
type writer struct {
	w   io.Writer
	at  int64 // bytes written
	err error
	b   *fb.Builder // used again for each message
}

// write writes the table. An error of reading the table leaves it without an end, so that no
// reader takes it as whole.
func write(to io.Writer, t *exchange.Table, file bool) error {
	meta, err := t.Meta.JSON()
	if err != nil {
		return fmt.Errorf("arrow: %w", err)
	}
	w := writer{w: to, b: fb.NewBuilder(1 << 12)}
	if file {
		w.bytes([]byte(magic + "\x00\x00"))
	}
	w.message(headerSchema, 0, func() fb.UOffsetT { return w.schema(t.Columns, string(meta)) })
	var blocks []block
	for b, err := range t.Batches {
		if err != nil {
			return err
		}
		if blocks = append(blocks, w.batch(t.Columns, b)); w.err != nil {
			break
		}
	}
	w.bytes(binary.LittleEndian.AppendUint64(nil, 0x00000000_ffffffff)) // end of the stream
	if file {
		w.footer(t.Columns, string(meta), blocks)
	}
	if w.err != nil {
		return fmt.Errorf("arrow: %w", w.err)
	}
	return nil
}

// bytes writes p.
func (w *writer) bytes(p []byte) {
	if w.err == nil {
		var n int
		n, w.err = w.w.Write(p)
		w.at += int64(n)
	}
}

// message writes the metadata of a message with a header and returns its length with the prefix.
// The caller writes the body of so many bytes.
func (w *writer) message(kind byte, body int64, header func() fb.UOffsetT) int32 {
	w.b.Reset()
	h := header()
	w.b.Finish(w.table(4, func() {
		w.b.PrependInt64Slot(3, body, 0)
		w.b.PrependUOffsetTSlot(2, h, 0)
		w.b.PrependInt16Slot(0, metadataV5, 0)
		w.b.PrependByteSlot(1, kind, 0)
	}))
	m := w.b.FinishedBytes()
	padded := (len(m) + 7) &^ 7
	w.bytes(binary.LittleEndian.AppendUint32([]byte{0xff, 0xff, 0xff, 0xff}, uint32(padded)))
	w.bytes(m)
	w.bytes(make([]byte, padded-len(m)))
	return int32(padded + 8)
}

// table builds a flatbuffers table of some fields.
func (w *writer) table(fields int, set func()) fb.UOffsetT {
	w.b.StartObject(fields)
	set()
	return w.b.EndObject()
}

// pairs builds a vector of KeyValue.
func (w *writer) pairs(of ...[2]string) fb.UOffsetT {
	var list []fb.UOffsetT
	for _, p := range of {
		k, v := w.b.CreateString(p[0]), w.b.CreateString(p[1])
		list = append(list, w.table(2, func() {
			w.b.PrependUOffsetTSlot(0, k, 0)
			w.b.PrependUOffsetTSlot(1, v, 0)
		}))
	}
	return w.b.CreateVectorOfTables(list)
}

// schema builds the Schema: none of the columns has missing values.
func (w *writer) schema(columns []exchange.Column, meta string) fb.UOffsetT {
	var fields []fb.UOffsetT
	for _, c := range columns {
		kind := byte(typeInt)
		if c.Type == exchange.Float64 {
			kind = typeFloat
		}
		of := w.table(2, func() {
			if kind == typeFloat {
				w.b.PrependInt16Slot(0, precisionDouble, 0)
				return
			}
			w.b.PrependInt32Slot(0, int32(8*width(c.Type)), 0)
			w.b.PrependBoolSlot(1, true, false)
		})
		about := [][2]string{{"unit", c.Unit}, {"about", c.About}}
		if c.Channel != "" {
			about = append(about, [2]string{"channel", c.Channel})
		}
		name, kv, children := w.b.CreateString(c.Name), w.pairs(about...), w.b.CreateVectorOfTables(nil)
		fields = append(fields, w.table(7, func() {
			w.b.PrependUOffsetTSlot(0, name, 0)
			w.b.PrependByteSlot(2, kind, 0)
			w.b.PrependUOffsetTSlot(3, of, 0)
			w.b.PrependUOffsetTSlot(5, children, 0)
			w.b.PrependUOffsetTSlot(6, kv, 0)
		}))
	}
	list, kv := w.b.CreateVectorOfTables(fields), w.pairs([2]string{exchange.MetaKey, meta})
	return w.table(4, func() {
		w.b.PrependUOffsetTSlot(1, list, 0)
		w.b.PrependUOffsetTSlot(2, kv, 0)
	})
}

// batch writes a record batch: a column is an empty bitmap, for no value is missing, and its
// values, padded to 8 bytes.
func (w *writer) batch(columns []exchange.Column, b *exchange.Batch) block {
	at, body := w.at, int64(0)
	starts := make([]int64, len(columns))
	for i, c := range columns {
		starts[i] = body
		body += (int64(b.Rows*width(c.Type)) + 7) &^ 7
	}
	n := w.message(headerBatch, body, func() fb.UOffsetT {
		// Vectors of structs are built backwards.
		w.b.StartVector(16, len(columns), 8)
		for range columns {
			w.b.PrependInt64(0) // missing values
			w.b.PrependInt64(int64(b.Rows))
		}
		nodes := w.b.EndVector(len(columns))
		w.b.StartVector(16, 2*len(columns), 8)
		for i := len(columns) - 1; i >= 0; i-- {
			w.b.PrependInt64(int64(b.Rows * width(columns[i].Type)))
			w.b.PrependInt64(starts[i])
			w.b.PrependInt64(0)
			w.b.PrependInt64(starts[i])
		}
		buffers := w.b.EndVector(2 * len(columns))
		return w.table(4, func() {
			w.b.PrependInt64Slot(0, int64(b.Rows), 0)
			w.b.PrependUOffsetTSlot(1, nodes, 0)
			w.b.PrependUOffsetTSlot(2, buffers, 0)
		})
	})
	for i, c := range columns {
		// Memory is little-endian, as the format wants it, on all machines that the program is built for.
		v := cast(b.Columns[i].F64)
		switch c.Type {
		case exchange.Int32:
			v = cast(b.Columns[i].I32)
		case exchange.Int64:
			v = cast(b.Columns[i].I64)
		}
		w.bytes(v)
		w.bytes(make([]byte, -len(v)&7))
	}
	return block{at, body, n}
}

// footer writes the footer of a file.
func (w *writer) footer(columns []exchange.Column, meta string, blocks []block) {
	w.b.Reset()
	schema := w.schema(columns, meta)
	w.b.StartVector(24, len(blocks), 8)
	for i := len(blocks) - 1; i >= 0; i-- {
		w.b.Prep(8, 24)
		w.b.PrependInt64(blocks[i].body)
		w.b.Pad(4)
		w.b.PrependInt32(blocks[i].metadata)
		w.b.PrependInt64(blocks[i].offset)
	}
	places := w.b.EndVector(len(blocks))
	none := w.b.CreateVectorOfTables(nil)
	w.b.Finish(w.table(5, func() {
		w.b.PrependUOffsetTSlot(1, schema, 0)
		w.b.PrependUOffsetTSlot(2, none, 0)
		w.b.PrependUOffsetTSlot(3, places, 0)
		w.b.PrependInt16Slot(0, metadataV5, 0)
	}))
	f := w.b.FinishedBytes()
	w.bytes(f)
	w.bytes(binary.LittleEndian.AppendUint32(nil, uint32(len(f))))
	w.bytes([]byte(magic))
}

// width is the bytes of a value.
func width(t exchange.Type) int {
	if t == exchange.Int32 {
		return 4
	}
	return 8
}

// cast returns the memory of values.
func cast[T int32 | int64 | float64](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0]))) // #nosec G103
}
