// Package arrowfile writes tables as Apache Arrow IPC, as a stream or as a file.
package arrowfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"wattmark/store/exchange"
)

// WriteStream writes a table as an Arrow IPC stream: record batches of
// exchange.BatchRows rows, not compressed. The schema's metadata holds
// exchange.Meta under exchange.MetaKey, each field's its unit.
func WriteStream(w io.Writer, t *exchange.Table) error {
	sc, err := layout(t)
	if err != nil {
		return err
	}
	return write(ipc.NewWriter(w, ipc.WithSchema(sc)), sc, t)
}

// WriteFile writes the same as an Arrow IPC file (Feather version 2), with an
// index at its end that lets readers jump and map it into memory.
func WriteFile(w io.Writer, t *exchange.Table) error {
	sc, err := layout(t)
	if err != nil {
		return err
	}
	out, err := ipc.NewFileWriter(w, ipc.WithSchema(sc))
	if err != nil {
		return fmt.Errorf("arrow: %w", err)
	}
	return write(out, sc, t)
}

var types = map[exchange.Type]arrow.DataType{
	exchange.Int32: arrow.PrimitiveTypes.Int32, exchange.Int64: arrow.PrimitiveTypes.Int64, exchange.Float64: arrow.PrimitiveTypes.Float64,
}

func layout(t *exchange.Table) (*arrow.Schema, error) {
	var fields []arrow.Field
	for _, c := range t.Columns {
		keys, values := []string{"unit", "about"}, []string{c.Unit, c.About}
		if c.Channel != "" {
			keys, values = append(keys, "channel"), append(values, c.Channel)
		}
		fields = append(fields, arrow.Field{Name: c.Name, Type: types[c.Type], Metadata: arrow.NewMetadata(keys, values)})
	}
	text, err := t.Meta.JSON()
	if err != nil {
		return nil, fmt.Errorf("arrow: %w", err)
	}
	meta := arrow.NewMetadata([]string{exchange.MetaKey}, []string{string(text)})
	return arrow.NewSchema(fields, &meta), nil
}

// writer is either of the two.
type writer interface {
	Write(rec arrow.RecordBatch) error
	Close() error
}

func write(out writer, sc *arrow.Schema, t *exchange.Table) error {
	for b, err := range t.Batches {
		if err != nil {
			return err
		}
		if err := out.Write(record(sc, t.Columns, b)); err != nil {
			return errors.Join(fmt.Errorf("arrow: %w", err), out.Close())
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("arrow: %w", err)
	}
	return nil
}

// record lends a batch's memory to a record: it is written before the batch is
// used again.
func record(sc *arrow.Schema, columns []exchange.Column, b *exchange.Batch) arrow.RecordBatch {
	cols := make([]arrow.Array, len(columns))
	for i, c := range columns {
		v := &b.Columns[i]
		var raw []byte
		switch c.Type {
		case exchange.Int32:
			raw = arrow.Int32Traits.CastToBytes(v.I32)
		case exchange.Int64:
			raw = arrow.Int64Traits.CastToBytes(v.I64)
		default:
			raw = arrow.Float64Traits.CastToBytes(v.F64)
		}
		data := array.NewData(types[c.Type], b.Rows, []*memory.Buffer{nil, memory.NewBufferBytes(raw)}, nil, 0, 0)
		cols[i] = array.MakeFromData(data)
	}
	return array.NewRecordBatch(sc, cols, int64(b.Rows))
}
