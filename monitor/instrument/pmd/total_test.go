package pmd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"
)

// serial makes records with the given steps of the stamp; counts follow the index.
func serial(steps []int) []byte {
	var out []byte
	stamp := 65000
	for i, s := range steps {
		stamp += s
		out = binary.LittleEndian.AppendUint16(out, uint16(stamp))
		for c := range Channels {
			v := 1580 // 12 V
			if c%2 == 1 {
				v = i%7 - 3 // also negative
			}
			out = binary.LittleEndian.AppendUint16(out, uint16(v<<4))
		}
	}
	return out
}

func constant(n, step int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = step
	}
	return out
}

func TestTotals(t *testing.T) {
	steps := constant(400, 602)
	steps[200] = 3000 // three records lost
	i, n, at := 0, 0, 0.0
	for s, err := range Totals(iotest.OneByteReader(bytes.NewReader(serial(steps))), Defaults()) {
		if err != nil {
			t.Fatal(err)
		}
		step := float64(steps[i])
		if i == 199 { // the loss may have bitten into it: it is not believed
			i++
			step += float64(steps[i])
		}
		if i > 0 {
			at += step / Defaults().TickHz
		}
		want := 4 * 1580 * voltsPerCount * float64(i%7-3) * amperesPerCount
		if math.Abs(float64(s.At)-at) > 1e-12 || math.Abs(float64(s.Power)-want) > 1e-9 {
			t.Fatalf("record %d: %v, want %v W at %v s", i, s, want, at)
		}
		if (s.Lost > 0) != (i == 200) || i == 200 && math.Abs(float64(s.Lost)*Defaults().TickHz-(3602-ticksPerScan)) > 1 {
			t.Fatalf("record %d: lost %v", i, s.Lost)
		}
		i++
		n++
	}
	if n != len(steps)-1 {
		t.Errorf("%d records of %d", n, len(steps))
	}
}

func TestTotalsOfDamagedBytes(t *testing.T) {
	raw := serial(constant(300, 602))
	cut := append(append([]byte{}, raw[5:100*RecordBytes]...), raw[100*RecordBytes+7:]...) // begins within one, loses a part of another
	var n int
	var skipped uint64
	for s, err := range Totals(bytes.NewReader(cut), Defaults()) {
		if err != nil {
			t.Fatal(err)
		}
		n, skipped = n+1, skipped+s.Skipped
	}
	if n < 296 || skipped == 0 {
		t.Errorf("%d records, %d bytes skipped", n, skipped)
	}
}

func TestTotalsFail(t *testing.T) {
	broken := errors.New("broken")
	var last error
	for _, err := range Totals(io.MultiReader(bytes.NewReader(serial(constant(20, 602))), iotest.ErrReader(broken)), Defaults()) {
		last = err
	}
	if !errors.Is(last, broken) {
		t.Errorf("%v", last)
	}
	for _, err := range Totals(bytes.NewReader(nil), Options{}) {
		last = err
	}
	if last == nil || errors.Is(last, broken) {
		t.Errorf("options without a rate: %v", last)
	}
}

func BenchmarkTotals(b *testing.B) {
	const n = 100_000
	raw := serial(constant(n, 602))
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		k := 0
		for _, err := range Totals(bytes.NewReader(raw), Defaults()) {
			if err != nil {
				b.Fatal(err)
			}
			k++
		}
		if k != n {
			b.Fatal(k)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/sample")
}
