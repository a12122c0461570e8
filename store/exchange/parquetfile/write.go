// Package parquetfile writes tables as Apache Parquet.
package parquetfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"wattmark/store/exchange"
)

// groupRows is the number of rows of a row group: enough that the footer, which
// has an entry a group and column and is kept until the end, stays small; little
// enough that a group's coded pages are tens of megabytes.
const groupRows = 16 * exchange.BatchRows

// Write writes a table. Whole numbers are coded by their differences
// (DELTA_BINARY_PACKED), floats as they are; pages are compressed with Zstandard. The
// file's metadata holds exchange.Meta under exchange.MetaKey, and the units by
// column under "wattmark.units". What is kept in memory is one row group, coded.
func Write(w io.Writer, t *exchange.Table) (err error) {
	sc, props, err := layout(t.Columns)
	if err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	meta, err := keyValues(t)
	if err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	out, err := file.NewParquetWriterWithError(nopCloser{w}, sc, file.WithWriterProps(props), file.WithWriteMetadata(meta))
	if err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	g := groups{out: out, columns: t.Columns}
	for b, err := range t.Batches {
		if err == nil {
			err = g.add(b)
		}
		if err != nil {
			return err
		}
	}
	if err := errors.Join(g.close(), out.Close()); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	return nil
}

// nopCloser keeps the writer from closing what is not its own.
type nopCloser struct{ io.Writer }

func layout(columns []exchange.Column) (*schema.GroupNode, *parquet.WriterProperties, error) {
	opts := []parquet.WriterProperty{
		parquet.WithDictionaryDefault(false), parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1),
		parquet.WithVersion(parquet.V2_LATEST), parquet.WithDataPageVersion(parquet.DataPageV1), parquet.WithStats(true),
		parquet.WithBatchSize(exchange.BatchRows), parquet.WithMaxRowGroupLength(groupRows), parquet.WithCreatedBy("wattmark"),
	}
	var fields schema.FieldList
	for _, c := range columns {
		physical := map[exchange.Type]parquet.Type{
			exchange.Int32: parquet.Types.Int32, exchange.Int64: parquet.Types.Int64, exchange.Float64: parquet.Types.Double,
		}[c.Type]
		node, err := schema.NewPrimitiveNode(c.Name, parquet.Repetitions.Required, physical, -1, -1)
		if err != nil {
			return nil, nil, err
		}
		fields = append(fields, node)
		if c.Type != exchange.Float64 {
			opts = append(opts, parquet.WithEncodingFor(c.Name, parquet.Encodings.DeltaBinaryPacked))
		}
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1)
	return root, parquet.NewWriterProperties(opts...), err
}

func keyValues(t *exchange.Table) (metadata.KeyValueMetadata, error) {
	kv := metadata.NewKeyValueMetadata()
	text, err := t.Meta.JSON()
	if err != nil {
		return nil, err
	}
	units := map[string]string{}
	for _, c := range t.Columns {
		units[c.Name] = c.Unit
	}
	u, err := json.Marshal(units)
	if err != nil {
		return nil, err
	}
	return kv, errors.Join(kv.Append(exchange.MetaKey, string(text)), kv.Append(exchange.MetaKey+".units", string(u)))
}

// groups writes batches into row groups.
type groups struct {
	out     *file.Writer
	columns []exchange.Column
	open    file.BufferedRowGroupWriter
	rows    int
}

func (g *groups) add(b *exchange.Batch) (err error) {
	if g.open == nil {
		if g.open, err = g.out.AppendBufferedRowGroupChecked(); err != nil {
			return fmt.Errorf("parquet: %w", err)
		}
	}
	for i := range g.columns {
		col, err := g.open.Column(i)
		if err != nil {
			return fmt.Errorf("parquet: column %s: %w", g.columns[i].Name, err)
		}
		v := &b.Columns[i]
		switch w := col.(type) {
		case *file.Int32ColumnChunkWriter:
			_, err = w.WriteBatch(v.I32, nil, nil)
		case *file.Int64ColumnChunkWriter:
			_, err = w.WriteBatch(v.I64, nil, nil)
		case *file.Float64ColumnChunkWriter:
			_, err = w.WriteBatch(v.F64, nil, nil)
		default:
			err = fmt.Errorf("a writer of type %T", col)
		}
		if err != nil {
			return fmt.Errorf("parquet: column %s: %w", g.columns[i].Name, err)
		}
	}
	if g.rows += b.Rows; g.rows >= groupRows {
		return g.close()
	}
	return nil
}

func (g *groups) close() error {
	if g.open == nil {
		return nil
	}
	err := g.open.Close()
	g.open, g.rows = nil, 0
	return err
}
