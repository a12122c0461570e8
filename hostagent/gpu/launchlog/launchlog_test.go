package launchlog

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure/marker"
)

func randomKernel(rng *rand.Rand, names uint32) Kernel {
	k := Kernel{
		Name: rng.Uint32N(names), Start: rng.Int64N(math.MaxInt64 / 2), Device: rng.Uint32N(8), Stream: rng.Uint32(),
		Correlation: rng.Uint32(), Graph: rng.Uint32(),
	}
	k.End = k.Start + rng.Int64N(1e12)
	for i := range 3 {
		k.Grid[i], k.Block[i] = rng.Uint32(), rng.Uint32()
	}
	return k
}

func readAll(t testing.TB, b []byte) (Process, []Kernel, error) {
	t.Helper()
	l, err := Open(bytes.NewReader(b))
	if err != nil {
		return Process{}, nil, err
	}
	var out []Kernel
	for {
		var k Kernel
		if err := l.Next(&k); errors.Is(err, io.EOF) {
			return l.Process, out, nil
		} else if err != nil {
			return l.Process, out, err
		}
		out = append(out, k)
	}
}

func sampleLog(t testing.TB) ([]byte, []Kernel) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	w := NewWriter(&b, 4711, 130001, 1_700_000_000_000_000_000)
	w.Device(0, [16]byte{1, 2, 3})
	var want []Kernel
	for i := range 5000 {
		if i%1000 == 0 {
			if n, ok := w.Name([]byte(strings.Repeat("k", i/1000+1))); !ok || n != uint32(i/1000) {
				t.Fatal(n, ok)
			}
		}
		k := randomKernel(rng, uint32(i/1000+1))
		w.Kernel(&k)
		w.Reported(1)
		want = append(want, k)
	}
	w.Dropped(3)
	w.Dropped(4)
	w.Trouble("little")
	w.Marker(&Marker{
		Kind: marker.Stop, First: -4,
		Edges: []int64{1_700_000_000_000_000_005, 1_700_000_000_000_000_009},
	})
	w.Range(&Range{Kind: Push, Thread: 1 << 31, Domain: 5, At: 1_700_000_000_000_000_007, Name: 3})
	w.Range(&Range{Kind: End, Thread: 2, ID: 1 << 63, At: 1_699_999_999_999_999_999})
	w.Call(math.MaxUint32, Call{7, 1_700_000_000_000_000_008})
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), want
}

func TestWhatWasWrittenIsRead(t *testing.T) {
	b, want := sampleLog(t)
	p, got, err := readAll(t, b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Process{
		PID: 4711, CUPTI: 130001, Started: 1_700_000_000_000_000_000,
		Names:   []string{"k", "kk", "kkk", "kkkk", "kkkkk"},
		Devices: map[uint32][16]byte{0: {1, 2, 3}}, Trouble: []string{"little"},
		Markers: []Marker{{marker.Stop, -4, []int64{1_700_000_000_000_000_005, 1_700_000_000_000_000_009}}},
		Ranges: []Range{
			{Kind: Push, Thread: 1 << 31, Domain: 5, At: 1_700_000_000_000_000_007, Name: 3},
			{Kind: End, Thread: 2, ID: 1 << 63, At: 1_699_999_999_999_999_999},
		},
		Calls:   map[uint32]Call{math.MaxUint32: {7, 1_700_000_000_000_000_008}},
		Kernels: 5000, Reported: 5000, Dropped: 7, Whole: true,
	}, p); diff != "" {
		t.Error(diff)
	}
}

// A program that is killed leaves a log that ends anywhere.
func TestALogCutAnywhere(t *testing.T) {
	b, want := sampleLog(t)
	for _, n := range []int{len(b) - 1, len(b) - 2, len(b) / 2, len(b) / 3, 100, 40} {
		p, got, err := readAll(t, b[:n])
		if err != nil || p.Whole || len(got) > len(want) {
			t.Errorf("cut at %d: %v, whole %v", n, err, p.Whole)
		}
		if diff := cmp.Diff(want[:len(got)], got); len(got) > 0 && diff != "" {
			t.Error(diff)
		}
	}
	if _, _, err := readAll(t, b[:5]); !errors.Is(err, ErrNotLog) {
		t.Errorf("no head: %v", err)
	}
}

func TestDamageIsNoticed(t *testing.T) {
	head := func(more ...byte) []byte {
		var b bytes.Buffer
		w := NewWriter(&b, 1, 2, 3)
		_ = w.Flush()
		return append(b.Bytes(), more...)
	}
	for name, b := range map[string][]byte{
		"an unknown entry":     head('?'),
		"a name that is not":   head('K', 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1),
		"a negative length":    head('N', 1, 'k', 'K', 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1),
		"a count that differs": head('E', 1, 1, 0),
		"a marker of nothing":  head('M', 1, 0, 0),
		"a marker too long":    head('M', 1, 0xff, 0xff, 0x7f, 0),
		"a text too long":      head('N', 0xff, 0xff, 0xff, 0x7f),
	} {
		if _, _, err := readAll(t, b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAFullDiskIsToldAtTheEnd(t *testing.T) {
	w := NewWriter(failing{}, 1, 2, 3)
	_, _ = w.Name([]byte("k"))
	for range 100000 {
		w.Kernel(&Kernel{})
	}
	if err := w.End(); !errors.Is(err, io.ErrClosedPipe) || cap(w.buf) > 4*flushBytes {
		t.Errorf("%v, %d bytes kept", err, cap(w.buf))
	}
}

func BenchmarkWriter(b *testing.B) {
	w := NewWriter(io.Discard, 1, 2, 3)
	_, _ = w.Name([]byte("k"))
	b.ReportAllocs()
	for i := range b.N {
		w.Kernel(&Kernel{
			Start: int64(i) * 5000, End: int64(i)*5000 + 3000, Correlation: uint32(i),
			Grid: [3]uint32{128, 1, 1}, Block: [3]uint32{256, 1, 1},
		})
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "kernels/s")
}

func FuzzReader(f *testing.F) {
	b, _ := sampleLog(f)
	f.Add(b[:200])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, got, _ := readAll(t, b)
		if len(got) > len(b) || len(p.Names) > len(b) {
			t.Errorf("%d kernels and %d names out of %d bytes", len(got), len(p.Names), len(b))
		}
		for _, k := range got {
			if k.End < k.Start || int(k.Name) >= len(p.Names) {
				t.Errorf("%+v", k)
			}
		}
	})
}
