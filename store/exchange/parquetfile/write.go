// Package parquetfile writes tables as Apache Parquet.
//
//	int32, int64 ── DELTA_BINARY_PACKED ─┐
//	double ── plain ─────────────────────┴─ Zstandard, fastest ── row groups of groupRows scans
//
// Counts and ticks differ little from row to row, so their differences take a few bits each.
// No column has missing values, hence no definition levels.
package parquetfile

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/wattmark/wattmark/store/exchange"
)

// groupRows is the number of rows of a row group: enough that the footer, which
// has an entry a group and column and is kept until the end, stays small; little
// enough that a group's coded pages are tens of megabytes.
const groupRows = 16 * exchange.BatchRows

// pageBytes bounds a page before it is coded.
const pageBytes = 1 << 20

// Write writes a table. Whole numbers are coded by their differences (DELTA_BINARY_PACKED), floats as they
// are; pages are compressed with Zstandard. The file's metadata holds exchange.Meta under exchange.MetaKey,
// and the units by column under "wattmark.units". One coded row group is kept in memory.
func Write(w io.Writer, t *exchange.Table) error {
	meta, err := t.Meta.JSON()
	if err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	units, fields := map[string]string{}, parquet.Group{}
	for _, c := range t.Columns {
		units[c.Name] = c.Unit
		switch c.Type {
		case exchange.Int32:
			fields[c.Name] = parquet.Encoded(parquet.Leaf(parquet.Int32Type), &parquet.DeltaBinaryPacked)
		case exchange.Int64:
			fields[c.Name] = parquet.Encoded(parquet.Leaf(parquet.Int64Type), &parquet.DeltaBinaryPacked)
		default: // a dictionary of floats would be as large as their column
			fields[c.Name] = parquet.Leaf(parquet.DoubleType)
		}
	}
	unitsText, err := json.Marshal(units)
	if err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	out := parquet.NewGenericWriter[any](
		w, parquet.NewSchema("schema", ordered{fields, t.Columns}),
		parquet.CreatedBy("wattmark", "", ""), parquet.DataPageVersion(1),
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}), parquet.PageBufferSize(pageBytes),
		parquet.KeyValueMetadata(exchange.MetaKey, string(meta)),
		parquet.KeyValueMetadata(exchange.MetaKey+".units", string(unitsText)),
	)
	g := groups{out: out}
	for b, err := range t.Batches {
		if err != nil {
			return err // without a footer no reader takes the file as whole
		}
		if err := g.add(t.Columns, b); err != nil {
			return fmt.Errorf("parquet: %w", err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	return nil
}

// ordered is a group whose fields keep the table's order of columns.
type ordered struct {
	parquet.Group
	columns []exchange.Column
}

// Fields returns the columns in the table's order.
func (o ordered) Fields() []parquet.Field {
	fields := o.Group.Fields()
	place := func(f parquet.Field) int {
		return slices.IndexFunc(o.columns, func(c exchange.Column) bool { return c.Name == f.Name() })
	}
	slices.SortFunc(fields, func(a, b parquet.Field) int { return place(a) - place(b) })
	return fields
}

// groups writes batches into row groups.
type groups struct {
	out    *parquet.GenericWriter[any]
	rows   int             // of the open row group
	values []parquet.Value // of one column of a batch, used again
}

// add writes a batch, column by column, into the open row group, and ends the group at its size.
func (g *groups) add(columns []exchange.Column, b *exchange.Batch) error {
	writers := g.out.ColumnWriters()
	for i, c := range columns {
		v := &b.Columns[i]
		g.values = g.values[:0]
		switch c.Type {
		case exchange.Int32:
			for _, x := range v.I32 {
				g.values = append(g.values, parquet.Int32Value(x))
			}
		case exchange.Int64:
			for _, x := range v.I64 {
				g.values = append(g.values, parquet.Int64Value(x))
			}
		default:
			for _, x := range v.F64 {
				g.values = append(g.values, parquet.DoubleValue(x))
			}
		}
		if _, err := writers[i].WriteRowValues(g.values); err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	if g.rows += b.Rows; g.rows < groupRows {
		return nil
	}
	g.rows = 0
	return g.out.Flush()
}
