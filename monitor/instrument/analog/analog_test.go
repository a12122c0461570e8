package analog

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

func TestCheck(t *testing.T) {
	d := Device{Inputs: 4, Ranges: []float64{10, 1}}
	good := func() []Input { return []Input{{AIN: 1, Unit: "A", PerVolt: 10, Range: 1}, {AIN: 0}} }
	if err := d.Check(good()); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func([]Input) []Input{
		"1 to 4":         func([]Input) []Input { return nil },
		"each once":      func(i []Input) []Input { i[1].AIN = 1; return i },
		"ain 4":          func(i []Input) []Input { i[1].AIN = 4; return i },
		"already":        func(i []Input) []Input { i[0].Name = "ain0"; return i },
		"V, A or W":      func(i []Input) []Input { i[0].Unit = "Ohm"; return i },
		"must be finite": func(i []Input) []Input { i[0].PerVolt = math.NaN(); return i },
		"want 10, 1":     func(i []Input) []Input { i[0].Range = 5; return i },
	} {
		if err := d.Check(change(good())); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestChannel(t *testing.T) {
	c := Input{AIN: 3, Unit: "A", PerVolt: -10}.Channel(Scale{
		Gain: 0.001, Zero: 100, UGain: 0.01, UOffset: 0.02,
		Noise: 2, Max: 1000,
	})
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.Name != "ain3" || c.Unit != measure.UnitAmpere || math.Abs(c.Value(300)+2) > 1e-12 || c.UOffset != 0.2 ||
		math.Abs(c.Noise-0.02) > 1e-12 {
		t.Errorf("%+v", c)
	}
}

func TestScansKeepTheirSign(t *testing.T) {
	var got []measure.Count
	b := []byte{0, 0x80, 0xff, 0x7f, 0xff, 0xff, 1, 0, 9}
	take := func(c []measure.Count) error { got = append(got, c...); return nil }
	if err := Scans(b, make([]measure.Count, 2), take); err != nil ||
		!slices.Equal(got, []measure.Count{-32768, 32767, -1, 1}) {
		t.Errorf("%v, %v", got, err)
	}
	if err := Scans(b, nil, take); err != nil || len(got) != 4 {
		t.Errorf("scans of no input: %v, %v", got, err)
	}
	enough, n := errors.New("enough"), 0
	if err := Scans(b, make([]measure.Count, 1), func([]measure.Count) error { n++; return enough }); !errors.Is(err,
		enough) || n != 1 {
		t.Errorf("%v after %d scans: take's error ends it", err, n)
	}
}

// BenchmarkDecodeScans is the way of raw counts that the drivers of data
// acquisition boxes share, with six inputs.
func BenchmarkDecodeScans(b *testing.B) {
	const n, inputs = 10_000, 6
	data, counts := make([]byte, BytesCode*n*inputs), make([]measure.Count, inputs)
	for i := range data {
		data[i] = byte(i * 37)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Scans(data, counts, func([]measure.Count) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*n*inputs/b.Elapsed().Seconds(), "samples/s")
}
