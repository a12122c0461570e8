package exchange_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/parquetfile"
)

func parquetTable(t testing.TB, s *madeSource, c exchange.Choice) *exchange.Table {
	t.Helper()
	tab, err := exchange.NewTable(t.Context(), s, s.Task(), "test", c)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// parquetColumns reads a file back with another library than the one that wrote it.
func parquetColumns(t *testing.T, raw []byte) (map[string][]float64, exchange.Meta) {
	t.Helper()
	f, err := file.NewParquetReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var m exchange.Meta
	text := f.MetaData().KeyValueMetadata().FindValue(exchange.MetaKey)
	if text == nil {
		t.Fatal("no metadata")
	}
	if err := json.Unmarshal([]byte(*text), &m); err != nil {
		t.Fatalf("metadata: %v", err)
	}
	out := map[string][]float64{}
	for g := range f.NumRowGroups() {
		for i := range f.MetaData().Schema.NumColumns() {
			c, err := f.RowGroup(g).Column(i)
			if err != nil {
				t.Fatal(err)
			}
			values, err := allValues(c)
			if err != nil {
				t.Fatalf("column %s: %v", c.Descriptor().Name(), err)
			}
			out[c.Descriptor().Name()] = append(out[c.Descriptor().Name()], values...)
		}
	}
	return out, m
}

// allValues reads the values of a column chunk.
func allValues(c file.ColumnChunkReader) (out []float64, err error) {
	for c.HasNext() && err == nil {
		var n int64
		switch c := c.(type) {
		case *file.Int32ColumnChunkReader:
			v := make([]int32, 1000)
			n, _, err = c.ReadBatch(1000, v, nil, nil)
			out = appendAll(out, v[:n])
		case *file.Int64ColumnChunkReader:
			v := make([]int64, 1000)
			n, _, err = c.ReadBatch(1000, v, nil, nil)
			out = appendAll(out, v[:n])
		case *file.Float64ColumnChunkReader:
			v := make([]float64, 1000)
			n, _, err = c.ReadBatch(1000, v, nil, nil)
			out = append(out, v[:n]...)
		default:
			return nil, fmt.Errorf("a column of type %T", c)
		}
	}
	return out, errors.Join(err, c.Err())
}

func appendAll[T int32 | int64](out []float64, v []T) []float64 {
	for _, x := range v {
		out = append(out, float64(x))
	}
	return out
}

// energy integrates the scans of a source in the product's own way.
func energy(t *testing.T, s *madeSource, from, to measure.Seconds) measure.Joule {
	t.Helper()
	g, err := measure.NewIntegrator(&s.Setup, from, to)
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range s.Blocks(t.Context()) {
		if err == nil {
			err = g.Add(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := g.Result(measure.Edges{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Total.Energy
}

// trapezoid integrates columns.
func trapezoid(at, power []float64) (e float64) {
	for i := 1; i < len(at); i++ {
		e += (at[i] - at[i-1]) * (power[i] + power[i-1]) / 2
	}
	return e
}

// The joules that another library reads are those that the product computes: from
// the derived columns, and from the counts with nothing but the metadata.
func TestAnotherReaderFindsTheJoules(t *testing.T) {
	for _, stamped := range []bool{false, true} {
		s := &madeSource{Setup: madeSetup(stamped), Scans: 200_000, Gap: 37}
		var raw, derived bytes.Buffer
		if err := parquetfile.Write(&raw, parquetTable(t, s, exchange.Choice{Raw: true})); err != nil {
			t.Fatal(err)
		}
		if err := parquetfile.Write(&derived, parquetTable(t, s, exchange.Choice{HostTime: true})); err != nil {
			t.Fatal(err)
		}
		d, _ := parquetColumns(t, derived.Bytes())
		n := len(d["t_s"])
		if n != s.Scans || len(d["host_ns"]) != n {
			t.Fatalf("%d rows, want %d", n, s.Scans)
		}
		want := float64(energy(t, s, measure.Seconds(d["t_s"][0]), measure.Seconds(d["t_s"][n-1])))
		if got := trapezoid(d["t_s"], d["power_w"]); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("stamped %v: derived columns give %v J, want %v J", stamped, got, want)
		}
		r, m := parquetColumns(t, raw.Bytes())
		at, power := fromCounts(t, r, &m)
		if got := trapezoid(at, power); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("stamped %v: counts give %v J, want %v J", stamped, got, want)
		}
	}
}

// fromCounts does what docs/export.md tells a reader of raw counts to do.
func fromCounts(t *testing.T, cols map[string][]float64, m *exchange.Meta) (at, power []float64) {
	t.Helper()
	value := func(channel string, i int) float64 {
		for _, c := range m.Columns {
			if c.Channel != channel {
				continue
			}
			for _, ch := range m.Setup.Channels {
				if ch.Name == channel {
					return ch.Offset + ch.Gain*cols[c.Name][i]
				}
			}
		}
		t.Fatalf("no channel %s", channel)
		return 0
	}
	for i, tick := range cols["tick"] {
		at = append(at, tick/m.Setup.TickHz)
		p := 0.0
		for _, r := range m.Setup.Rails {
			x, y := value(r.X, i), value(r.Y, i)
			switch r.Wiring {
			case "clamp":
				p += x * y
			case "shunt":
				p += (x - y) / r.ShuntOhm * y
			default:
				t.Fatalf("wiring %s", r.Wiring)
			}
		}
		power = append(power, p)
	}
	return at, power
}

// What is kept does not grow with what was written, but for the footer. The least
// heap near the end counts: pools of the compressor come and go.
func TestParquetMemoryIsFlat(t *testing.T) {
	held := func(scans int) uint64 {
		s := &madeSource{Setup: madeSetup(false), Scans: scans, Repeat: true}
		tab := parquetTable(t, s, exchange.Choice{Raw: true})
		batches, rows, least := tab.Batches, 0, uint64(math.MaxUint64)
		tab.Batches = func(yield func(*exchange.Batch, error) bool) {
			for b, err := range batches {
				if rows += exchange.BatchRows; rows > scans-1<<20 {
					runtime.GC()
					runtime.GC()
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					least = min(least, m.HeapAlloc)
				}
				if !yield(b, err) {
					return
				}
			}
		}
		if err := parquetfile.Write(io.Discard, tab); err != nil {
			t.Fatal(err)
		}
		return least
	}
	small, large := held(2<<20), held(10<<20)
	t.Logf("heap near the end of 2 Mi scans %d KiB, of 10 Mi %d KiB", small>>10, large>>10)
	if large > small+2<<20 {
		t.Errorf("the heap grew from %d to %d bytes with five times the scans", small, large)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A full disk is told, and so is a source that fails.
func TestParquetErrorsAreTold(t *testing.T) {
	full := errors.New("disk full")
	s := &madeSource{Setup: madeSetup(false), Scans: 3 << 20, Repeat: true}
	n := 0
	err := parquetfile.Write(writerFunc(func(b []byte) (int, error) {
		if n += len(b); n > 1<<18 {
			return 0, full
		}
		return len(b), nil
	}), parquetTable(t, s, exchange.Choice{Raw: true}))
	if !errors.Is(err, full) {
		t.Errorf("a full disk: %v", err)
	}
	tab, broken := parquetTable(t, s, exchange.Choice{}), errors.New("broken")
	tab.Batches = func(yield func(*exchange.Batch, error) bool) { yield(nil, broken) }
	if err := parquetfile.Write(io.Discard, tab); !errors.Is(err, broken) {
		t.Errorf("a broken source: %v", err)
	}
}

// BenchmarkParquetRaw writes counts as they come decoded from chunks, on one core. MB/s
// is of counts at the 2 bytes that a 16-bit converter gives.
func BenchmarkParquetRaw(b *testing.B) { benchParquet(b, exchange.Choice{Raw: true}) }

// BenchmarkParquetDerived is the same with volts, amperes and watts.
func BenchmarkParquetDerived(b *testing.B) { benchParquet(b, exchange.Choice{}) }

func benchParquet(b *testing.B, c exchange.Choice) {
	const scans = 4 << 20
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := &madeSource{Setup: madeSetup(false), Scans: scans}
	if err := s.Keep(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(scans * 6 * 2)
	var bytes int64
	for b.Loop() {
		bytes = 0
		w := writerFunc(func(p []byte) (int, error) { bytes += int64(len(p)); return len(p), nil })
		if err := parquetfile.Write(w, parquetTable(b, s, c)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(bytes)/scans, "B/scan")
}
