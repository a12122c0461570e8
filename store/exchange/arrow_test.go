package exchange_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/arrowfile"
)

func arrowTable(t *testing.T, s *madeSource, c exchange.Choice) *exchange.Table {
	t.Helper()
	tab, err := exchange.NewTable(t.Context(), s, s.Task(), "test", c)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// arrowValue reads one value of a column, whatever its type.
func arrowValue(a arrow.Array, i int) float64 {
	switch a := a.(type) {
	case *array.Int32:
		return float64(a.Value(i))
	case *array.Int64:
		return float64(a.Value(i))
	}
	return a.(*array.Float64).Value(i)
}

// both writes a table both ways and returns what reads them.
func both(t *testing.T, s *madeSource, c exchange.Choice) map[string]struct {
	schema *arrow.Schema
	next   func() (arrow.RecordBatch, error)
} {
	t.Helper()
	var stream, file bytes.Buffer
	if err := errors.Join(arrowfile.WriteStream(&stream, arrowTable(t, s, c)), arrowfile.WriteFile(&file, arrowTable(t, s, c))); err != nil {
		t.Fatal(err)
	}
	sr, err := ipc.NewReader(&stream)
	if err != nil {
		t.Fatal(err)
	}
	fr, err := ipc.NewFileReader(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	type reader = struct {
		schema *arrow.Schema
		next   func() (arrow.RecordBatch, error)
	}
	return map[string]reader{
		"stream": {sr.Schema(), sr.Read},
		"file":   {fr.Schema(), fr.Read},
	}
}

func TestStreamAndFile(t *testing.T) {
	s := &madeSource{Setup: madeSetup(true), Scans: 150_000, Gap: 5}
	for _, c := range []exchange.Choice{{Raw: true, HostTime: true}, {}} {
		for name, r := range both(t, s, c) {
			text, ok := r.schema.Metadata().GetValue(exchange.MetaKey)
			var m exchange.Meta
			if err := json.Unmarshal([]byte(text), &m); err != nil || !ok || m.Setup.ID != s.Setup.CalibrationID() || len(m.Setup.Channels) != 6 {
				t.Fatalf("%s: metadata %v, %v", name, ok, err)
			}
			want := arrowTable(t, s, c)
			rows := 0
			for b, err := range want.Batches {
				if err != nil {
					t.Fatal(err)
				}
				rec, err := r.next()
				if err != nil {
					t.Fatalf("%s: after %d rows: %v", name, rows, err)
				}
				compareArrow(t, rec, want.Columns, b)
				rows += b.Rows
			}
			if _, err := r.next(); !errors.Is(err, io.EOF) || rows != s.Scans {
				t.Errorf("%s: %d rows, then %v", name, rows, err)
			}
		}
	}
}

func compareArrow(t *testing.T, rec arrow.RecordBatch, columns []exchange.Column, b *exchange.Batch) {
	t.Helper()
	if int(rec.NumRows()) != b.Rows {
		t.Fatalf("%d rows, want %d", rec.NumRows(), b.Rows)
	}
	for c, col := range columns {
		if unit, _ := rec.Schema().Field(c).Metadata.GetValue("unit"); unit != col.Unit || rec.ColumnName(c) != col.Name {
			t.Fatalf("column %s in %q, want %s in %q", rec.ColumnName(c), unit, col.Name, col.Unit)
		}
		v := &b.Columns[c]
		for i := range b.Rows {
			want := 0.0
			switch col.Type {
			case exchange.Int32:
				want = float64(v.I32[i])
			case exchange.Int64:
				want = float64(v.I64[i])
			default:
				want = v.F64[i]
			}
			if got := arrowValue(rec.Column(c), i); got != want {
				t.Fatalf("column %s, row %d: %v, want %v", col.Name, i, got, want)
			}
		}
	}
}

func TestArrowErrorsAreTold(t *testing.T) {
	s := &madeSource{Setup: madeSetup(false), Scans: 200_000}
	broken := errors.New("broken")
	for _, write := range []func(io.Writer, *exchange.Table) error{arrowfile.WriteStream, arrowfile.WriteFile} {
		if err := write(failing{broken}, arrowTable(t, s, exchange.Choice{})); !errors.Is(err, broken) {
			t.Errorf("a full disk: %v", err)
		}
		tab := arrowTable(t, s, exchange.Choice{})
		tab.Batches = func(yield func(*exchange.Batch, error) bool) { yield(nil, broken) }
		if err := write(io.Discard, tab); !errors.Is(err, broken) {
			t.Errorf("a broken source: %v", err)
		}
	}
}
