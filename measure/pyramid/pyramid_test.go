package pyramid

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// wave is a power that steps, ripples and now and then spikes.
func wave(n int, seed uint64) []measure.Watt {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]measure.Watt, n)
	level := 100.0
	for i := range out {
		if rng.IntN(5000) == 0 {
			level = 50 + 600*rng.Float64()
		}
		out[i] = measure.Watt(level + 5*rng.NormFloat64())
		if rng.IntN(100_000) == 0 {
			out[i] += 300
		}
	}
	return out
}

// add gives a builder scans, run by run as it wants them.
func add(b *Builder, first uint64, cols [][]measure.Watt) error {
	e := make([]measure.Extreme, len(cols))
	for at := uint64(0); at < uint64(len(cols[0])); {
		n := min(Base-(first+at)%Base, uint64(len(cols[0]))-at)
		for s, col := range cols {
			e[s] = measure.Extreme{Min: slices.Min(col[at : at+n]), Max: slices.Max(col[at : at+n])}
			for _, w := range col[at : at+n] {
				e[s].Sum += float64(w)
			}
		}
		if err := b.Add(first+at, int(n), e); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// pages collects what a builder hands on.
type pages map[string]*Page

func (p pages) put(x *Page) error {
	c := NewPage(x.Level, x.Number, len(x.Series))
	if err := c.Parse(x.Append(nil)); err != nil {
		return err
	}
	p[fmt.Sprint(x.Level, "/", x.Number)] = c
	return nil
}

func build(t testing.TB, cols [][]measure.Watt, gap [2]int) pages {
	t.Helper()
	out := pages{}
	b := NewBuilder(len(cols), out.put)
	rng := rand.New(rand.NewPCG(3, 3))
	n := len(cols[0])
	for at := 0; at < n; {
		m := min(1+rng.IntN(9000), n-at)
		if at < gap[0] {
			m = min(m, gap[0]-at)
		}
		part := make([][]measure.Watt, len(cols))
		for s := range cols {
			part[s] = cols[s][at : at+m]
		}
		if err := add(b, uint64(at), part); err != nil {
			t.Fatal(err)
		}
		if at += m; at == gap[0] {
			at = gap[1]
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// Every bin of every level holds what its scans say: bounds that bound, as tightly
// as a page's 16 bits allow, and the mean.
func TestBinsAreTheirScans(t *testing.T) {
	const n = 4_600_034
	cols := [][]measure.Watt{wave(n, 1), wave(n, 2)}
	gap := [2]int{600_002, 840_010}
	got := build(t, cols, gap)
	bins := 0
	for level := range Levels {
		for number := uint64(0); number*PageScans(level) < n; number++ {
			p := got[fmt.Sprint(level, "/", number)]
			if from := number * PageScans(level); p == nil && from >= uint64(gap[0]) && from+PageScans(level) <= uint64(gap[1]) {
				continue // nothing of it was there
			}
			if p == nil {
				t.Fatalf("level %d has no page %d", level, number)
			}
			for s, col := range cols {
				for i, b := range p.Series[s] {
					checkBin(t, b, col, gap, number*PageScans(level)+uint64(i)*BinScans(level), BinScans(level))
					bins++
				}
			}
		}
	}
	if want := 2 * PageBins * (36 - 1 + 5 + 1 + 1 + 1); bins != want || len(got) != 43 {
		t.Errorf("%d bins in %d pages, want %d", bins, len(got), want)
	}
}

func checkBin(t *testing.T, b Bin, col []measure.Watt, gap [2]int, from, scans uint64) {
	t.Helper()
	want := empty()
	for i := from; i < from+scans && i < uint64(len(col)); i++ {
		if int(i) < gap[0] || int(i) >= gap[1] {
			want.Join(Bin{col[i], col[i], float64(col[i]), 1})
		}
	}
	const fine = 0.05 // W: a thousand watts in 65535 steps, three of them
	switch {
	case b.N != want.N:
		t.Fatalf("bin at %d: %d scans, want %d", from, b.N, want.N)
	case b.N == 0:
		if !math.IsNaN(float64(b.Min)) {
			t.Fatalf("bin at %d: %v without scans", from, b)
		}
	case b.Min > want.Min || b.Max < want.Max || want.Min-b.Min > fine || b.Max-want.Max > fine || math.Abs(float64(b.Mean()-want.Mean())) > fine:
		t.Fatalf("bin at %d: %+v, want %+v", from, b, want)
	}
}

// A builder that begins again behind complete pages makes the same pyramid.
func TestResume(t *testing.T) {
	const n = 6_000_000
	cols := [][]measure.Watt{wave(n, 9)}
	whole := build(t, cols, [2]int{n, n})
	for _, last := range []uint64{0, 7, 15, 16, 40} {
		kept := pages{}
		first := NewBuilder(1, kept.put)
		stop := (last+1)*PageScans(0) + 1 // one scan more closes the page
		if err := add(first, 0, [][]measure.Watt{cols[0][:stop]}); err != nil {
			t.Fatal(err)
		}
		again := NewBuilder(1, kept.put)
		err := again.Resume(last, func(level int, number uint64) (*Page, error) { return kept[fmt.Sprint(level, "/", number)], nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := add(again, again.Next(), [][]measure.Watt{cols[0][again.Next():]}); err != nil {
			t.Fatal(err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if len(kept) != len(whole) {
			t.Errorf("after page %d: %d pages, want %d", last, len(kept), len(whole))
		}
		for key, p := range whole {
			q := kept[key]
			for i, b := range p.Series[0] {
				if q == nil || b.N != q.Series[0][i].N || b.N > 0 && math.Abs(float64(b.Max-q.Series[0][i].Max)) > 0.1 {
					t.Fatalf("after page %d: page %s differs at bin %d", last, key, i)
				}
			}
		}
	}
}

// Columns take of stored pages what their bins hold, each in the column that its first
// scan lies in.
func TestColumnsOfStoredPages(t *testing.T) {
	const n = 700_000
	cols := [][]measure.Watt{wave(n, 5), wave(n, 6)}
	kept := build(t, cols, [2]int{200_003, 210_000})
	rng := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		level := rng.IntN(2)
		first := rng.Uint64N(n)
		scans := 1 + rng.Uint64N(n-first+5000)
		columns := 1 + rng.IntN(int(max(1, min(400, scans/BinScans(level)))))
		got, want := NewColumns(2, columns, first, scans), NewColumns(2, columns, first, scans)
		for number := first / PageScans(level); number*PageScans(level) < first+scans; number++ {
			p := kept[fmt.Sprint(level, "/", number)]
			if p == nil {
				continue
			}
			if err := got.JoinStored(level, number, p.Append(nil)); err != nil {
				t.Fatal(err)
			}
			for i := range PageBins {
				if at := number*PageScans(level) + uint64(i)*BinScans(level); at+BinScans(level) > first && at < first+scans {
					c := uint64(0)
					if at > first {
						c = (at - first) * uint64(columns) / scans
					}
					for s := range want.Bins {
						want.Bins[s][c].Join(p.Series[s][i])
					}
				}
			}
		}
		for s := range want.Bins {
			for c, w := range want.Bins[s] {
				g := got.Bins[s][c]
				if g.N != w.N || w.N > 0 && (math.Abs(float64(g.Min-w.Min)) > 0.05 || math.Abs(float64(g.Max-w.Max)) > 0.05 || math.Abs(float64(g.Mean()-w.Mean())) > 0.05) {
					t.Fatalf("level %d, scans %d+%d, column %d of %d: %+v, want %+v", level, first, scans, c, columns, g, w)
				}
			}
		}
	}
	p := kept["0/0"].Append(nil)
	if err := NewColumns(3, 1, 0, n).JoinStored(0, 0, p); !errors.Is(err, ErrPage) {
		t.Errorf("a page of two series as one of three: %v", err)
	}
	p[0] = 1
	if err := NewColumns(2, 1, 0, n).JoinStored(0, 0, p); !errors.Is(err, ErrPage) {
		t.Errorf("a page of another version: %v", err)
	}
}

func TestWhatABuilderRefuses(t *testing.T) {
	b := NewBuilder(2, func(*Page) error { return nil })
	e := make([]measure.Extreme, 2)
	if b.Add(5, 10, e) != nil || b.Add(14, 10, e) == nil || b.Add(15, 10, e[:1]) == nil || b.Add(15, 114, e) == nil || b.Add(15, 0, e) == nil || b.Add(15, 113, e) != nil {
		t.Error("scans that come again or cross a bin's end, or a series that is missing, must be refused; others not")
	}
}

func FuzzParse(f *testing.F) {
	p := NewPage(0, 0, 2)
	for i, w := range wave(PageBins, 1) {
		p.Series[0][i] = Bin{w, w + 1, float64(w), 1}
	}
	f.Add(p.Append(nil))
	f.Add([]byte{pageVersion, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Page
		if p.Parse(b) != nil {
			return
		}
		if err := NewColumns(len(p.Series), 7, 1000, 100_000).JoinStored(0, 0, b); err != nil {
			t.Error(err)
		}
		for _, bins := range p.Series {
			for _, x := range bins {
				if x.N > 0 && math.IsNaN(float64(x.Min)) {
					t.Errorf("%+v", x)
				}
			}
		}
	})
}

func BenchmarkBuilder(b *testing.B) {
	e := make([]measure.Extreme, 4)
	buf := make([]byte, 0, 1<<16)
	x := NewBuilder(len(e), func(p *Page) error { buf = p.Append(buf[:0]); return nil })
	b.ReportAllocs()
	for i := range b.N {
		e[0].Sum = float64(i)
		if err := x.Add(uint64(i)*Base, Base, e); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*Base/b.Elapsed().Seconds()/1e6, "Mscans/s")
}
