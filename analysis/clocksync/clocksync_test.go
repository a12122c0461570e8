package clocksync

import (
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

func find(t *testing.T, b *bench) *Fit {
	t.Helper()
	f, err := Find(b.trace(), b.kernels)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The intervals must hold the truth as often as they say, over clocks, kernels and
// noises of chance.
func TestIntervalsCover(t *testing.T) {
	n := coverage.Trials(1000)
	var offset, drift int
	var zo, zd float64
	for seed := range uint64(n) {
		b, _ := usual(seed)
		f := find(t, b)
		eo := float64(f.Offset) - b.offset
		ed := f.DriftPPM - 1e6*b.drift
		if math.Abs(eo) <= float64(f.OffsetU) {
			offset++
		}
		if math.Abs(ed) <= f.DriftUPPM {
			drift++
		}
		zo += eo * eo / float64(f.OffsetU*f.OffsetU)
		zd += ed * ed / f.DriftUPPM / f.DriftUPPM
	}
	t.Logf("offset %.1f %%, drift %.1f %% of %d; mean square of error over U: %.3f and %.3f (0.25 wanted)",
		100*float64(offset)/float64(n), 100*float64(drift)/float64(n), n, zo/float64(n), zd/float64(n))
	for name, k := range map[string]int{"offset": offset, "drift": drift} {
		if share := float64(k) / float64(n); !coverage.Within(share, 0.93, 0.97, n) {
			t.Errorf("%s: %.1f %% of the intervals hold the truth, want 93 to 97", name, 100*share)
		}
	}
}

func TestFindsWhatIsThere(t *testing.T) {
	for name, change := range map[string]func(*bench, *rand.Rand){
		"as usual":         func(*bench, *rand.Rand) {},
		"an hour off":      func(b *bench, _ *rand.Rand) { b.offset = 3600.05 },
		"minutes off":      func(b *bench, _ *rand.Rand) { b.offset = -251.3 },
		"a fast clock":     func(b *bench, _ *rand.Rand) { b.drift = 1100e-6 },
		"much noise":       func(b *bench, _ *rand.Rand) { b.noise = 25 },
		"slow edges":       func(b *bench, _ *rand.Rand) { b.rise, b.fall = 2e-3, 3e-3 },
		"one kernel":       func(b *bench, _ *rand.Rand) { b.kernels = []validate.Kernel{kernel(0, 2)}; b.to = 3 },
		"regular":          func(b *bench, r *rand.Rand) { b.kernels = square(r, 24, 0.05, 0.05, 0) },
		"short kernels":    func(b *bench, r *rand.Rand) { b.kernels = square(r, 40, 0.012, 0.015, 0.3); b.to = 2 },
		"kernels in a row": func(b *bench, r *rand.Rand) { b.kernels = split(b.kernels) },
		"a long run": func(b *bench, r *rand.Rand) { // its drift would blur the correlation
			b.drift, b.kernels = 800e-6, square(r, 600, 0.05, 0.05, 0.2)
			b.to = float64(b.kernels[599].To) + 1
		},
		"a slow meter":       func(b *bench, _ *rand.Rand) { b.rate = 400 },
		"begins in the work": func(b *bench, _ *rand.Rand) { b.from = 0.52 },
	} {
		t.Run(name, func(t *testing.T) {
			b, r := usual(5)
			change(b, r)
			f := find(t, b)
			e, u := float64(f.Offset)-b.offset, float64(f.OffsetU)
			t.Logf("offset off by %.3f ms of %.3f, drift %.1f ± %.1f of %.1f ppm, %d edges, scatter %.3f ms, late "+
				"%.3f ms", 1e3*e, 1e3*u, f.DriftPPM, f.DriftUPPM, 1e6*b.drift, f.Used, 1e3*float64(f.Scatter), 1e3*float64(f.Late))
			if math.Abs(e) > 1.6*u || u > 3e-3 {
				t.Errorf("offset %v ± %v, want %.6f", f.Offset, f.OffsetU, b.offset)
			}
			if d := f.DriftPPM - 1e6*b.drift; math.Abs(d) > 1.6*f.DriftUPPM {
				t.Errorf("drift %.1f ± %.1f ppm, want %.1f", f.DriftPPM, f.DriftUPPM, 1e6*b.drift)
			}
			if len(f.Jumps) > 0 {
				t.Errorf("jumps that are not there: %+v", f.Jumps)
			}
		})
	}
}

// split cuts each kernel into many with microseconds between them.
func split(ks []validate.Kernel) (out []validate.Kernel) {
	for _, k := range ks {
		const n = 7
		l := float64(k.Length()) / n
		for i := range n {
			from := float64(k.From) + float64(i)*l
			out = append(out, kernel(from, from+l-3e-6))
		}
		out[len(out)-1].To = k.To
	}
	return out
}

func TestFindsJumps(t *testing.T) {
	for _, size := range []float64{0.7e-3, 1e-3, -1e-3, 5e-3, 22.333e-3, -0.7e-3} {
		b, _ := usual(11)
		b.onset = 0
		i := len(b.kernels) / 2
		b.jumpAt, b.jump = (float64(b.kernels[i].To)+float64(b.kernels[i+1].From))/2, size
		f := find(t, b)
		if len(f.Jumps) != 1 {
			t.Errorf("a jump of %v ms: found %+v", 1e3*size, f.Jumps)
			continue
		}
		j := f.Jumps[0]
		t.Logf("%.3f ms: found %.3f ± %.3f ms at %v ± %v, edges %v", 1e3*size, 1e3*float64(j.Size), 1e3*float64(j.U),
			j.At, j.UAt, j.Edges)
		if d := math.Abs(float64(j.Size) - size); d > 1.6*float64(j.U) || j.U > 0.5e-3 {
			t.Errorf("a jump of %v ms: found %v ± %v", 1e3*size, j.Size, j.U)
		}
		at := float64(j.At) + b.offset
		if math.Abs(at-b.jumpAt) > float64(j.UAt)+2e-3+math.Abs(size) {
			t.Errorf("a jump at %.4f s: found at %.4f ± %.4f s", b.jumpAt, at, float64(j.UAt))
		}
		if math.Abs(float64(f.Offset)-b.offset) > float64(f.OffsetU) {
			t.Errorf("with a jump of %v ms: offset %v ± %v, want %v", 1e3*size, f.Offset, f.OffsetU, b.offset)
		}
		for _, h := range []float64{b.jumpAt - 0.3, b.jumpAt + 0.3} {
			if got := float64(f.Host(measure.Seconds(b.meter(h)))); math.Abs(got-h) > float64(f.OffsetU) {
				t.Errorf("%.3f s on the host is mapped to %.6f", h, got)
			}
		}
	}
}

// Without jumps hardly any may be found.
func TestFindsNoJumpsInNoise(t *testing.T) {
	found := 0
	for seed := range uint64(100) {
		b, _ := usual(1000 + seed)
		found += len(find(t, b).Jumps)
	}
	if found > 1 {
		t.Errorf("%d jumps in 100 measurements without any", found)
	}
}

func TestLateLaunchIsNoJump(t *testing.T) {
	b, _ := usual(3)
	late := b.kernels[0]
	late.From -= 0.6e-3 // the host says so, the power comes later
	shown := append([]validate.Kernel{late}, b.kernels[1:]...)
	f, err := Find(b.trace(), shown)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Jumps) != 0 || len(f.Single) != 1 || f.Single[0].End ||
		math.Abs(float64(f.Single[0].Residual)+0.6e-3) > 0.4e-3 {
		t.Errorf("jumps %+v, single %+v: want one start 0.6 ms late", f.Jumps, f.Single)
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*bench)
		is     error
		want   string
	}{
		{"no kernels", func(b *bench) { b.kernels = nil }, ErrActivity, "no start and end"},
		{"another run", func(b *bench) { b.work = 0 }, ErrActivity, "correlate"},
		{"too few samples", func(b *bench) { b.to = b.from + 0.002 }, ErrActivity, "samples"},
		{"cut on both sides of regular work", func(b *bench) {
			b.kernels = square(rand.New(rand.NewPCG(1, 1)), 40, 0.05, 0.05, 0)
			b.from, b.to = 1.02, 2.02
		}, ErrAmbiguous, "repeats"},
		{"edges that are elsewhere", func(b *bench) {
			shown := b.kernels
			b.kernels = nil
			for i, k := range shown { // each one moved by another part of its room
				d := measure.Seconds(0.02 * math.Sin(float64(7*i*i)))
				b.kernels = append(b.kernels, kernel(float64(k.From+d), float64(k.To+d)))
			}
		}, ErrActivity, "scatter"},
		{"kernels too short for the meter", func(b *bench) {
			b.rate, b.noise = 50, 0.1
			b.kernels = square(rand.New(rand.NewPCG(1, 1)), 40, 0.05, 0.05, 0)
		}, ErrClocks, "samples"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _ := usual(2)
			trace := b.trace()
			c.change(b)
			if len(b.kernels) > 0 {
				trace = b.trace()
			}
			shown := b.kernels
			if c.want == "scatter" {
				fresh, _ := usual(2)
				shown = fresh.kernels
			}
			f, err := Find(trace, shown)
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %+v, %v; want an error with %q", f, err, c.want)
			}
		})
	}
}

func TestPassesErrorsOn(t *testing.T) {
	broken := errors.New("the file ends in the middle")
	b, _ := usual(2)
	for _, after := range []int{0, 100, 5000} {
		trace := func() iter.Seq2[validate.Sample, error] {
			return func(yield func(validate.Sample, error) bool) {
				n := 0
				for s := range b.trace()() {
					if n++; n > after {
						yield(validate.Sample{}, broken)
						return
					}
					if !yield(s, nil) {
						return
					}
				}
			}
		}
		if _, err := Find(trace, b.kernels); !errors.Is(err, broken) {
			t.Errorf("after %d samples: %v", after, err)
		}
	}
	nan := measure.Watt(math.NaN())
	bad := func() iter.Seq2[validate.Sample, error] {
		return func(yield func(validate.Sample, error) bool) {
			_ = yield(validate.Sample{At: 0, Power: 1}, nil) && yield(validate.Sample{At: 1, Power: nan}, nil)
		}
	}
	if _, err := Find(bad, b.kernels); err == nil || !strings.Contains(err.Error(), "sample 2") {
		t.Errorf("a sample that is no number: %v", err)
	}
}

// A trace that is longer than the bins reach is joined, and found all the same.
func TestLongTraces(t *testing.T) {
	c := &coarse{width: 1}
	for i := range 3 * maxBins {
		if err := c.add(validate.Sample{At: measure.Seconds(i), Power: measure.Watt(i % 2)}); err != nil {
			t.Fatal(err)
		}
	}
	if c.width != 4 || len(c.sum) > maxBins || c.samples != 3*maxBins {
		t.Fatalf("bins of %v, %d of them, %d samples", c.width, len(c.sum), c.samples)
	}
	c.fill()
	if c.sum[0] != 0.5 || c.sum[len(c.sum)-1] != 0.5 {
		t.Errorf("means %v and %v, want 0.5", c.sum[0], c.sum[len(c.sum)-1])
	}
}

func BenchmarkFind(b *testing.B) {
	m, _ := usual(1)
	var samples []validate.Sample
	for s := range m.trace()() {
		samples = append(samples, s)
	}
	trace := func() iter.Seq2[validate.Sample, error] {
		return func(yield func(validate.Sample, error) bool) {
			for _, s := range samples {
				if !yield(s, nil) {
					return
				}
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Find(trace, m.kernels); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(samples)), "samples")
}

// bench is a synthetic measurement whose clocks are known.
type bench struct {
	offset, drift float64               // t_host = t_meter + offset − drift·(t_meter − first start's)
	jumpAt, jump  float64               // host time behind which the offset is larger by jump
	wander        func(float64) float64 // of the offset by the host's time, s; nil for none
	onset         float64               // the power follows the time stamps late by this
	late, early   float64               // starts are seen late by this besides, ends early
	noise         float64               // W
	rise, fall    float64               // s
	rate          float64               // samples a second
	from, to      float64               // host's time in which the meter runs
	jitter        float64               // s, of single time stamps, one standard deviation
	rest          float64               // W
	work          float64               // W above rest
	kernels       []validate.Kernel
	seed          uint64
}

// square is work that alternates, each stretch a little different.
func square(r *rand.Rand, n int, on, off, irregular float64) (out []validate.Kernel) {
	t := 0.0
	for range n {
		l := on * (1 + irregular*r.Float64())
		out = append(out, kernel(t, t+l))
		t += l + off*(1+irregular*r.Float64())
	}
	return out
}

func kernel(from, to float64) validate.Kernel {
	return validate.Kernel{Name: "kernel", Span: validate.Span{From: measure.Seconds(from), To: measure.Seconds(to)}}
}

// meter maps the host's time to the meter's.
func (b *bench) meter(host float64) float64 {
	first := float64(b.kernels[0].From) - b.offset
	off := b.offset
	if b.jump != 0 && host > b.jumpAt {
		off += b.jump
	}
	if b.wander != nil {
		off += b.wander(host)
	}
	// host = m + off − drift·(m − first)
	return (host - off - b.drift*first) / (1 - b.drift)
}

// trace makes the samples: a first-order rise and fall about each stretch of work.
func (b *bench) trace() Trace {
	return func() iter.Seq2[validate.Sample, error] {
		return func(yield func(validate.Sample, error) bool) {
			r := rand.New(rand.NewPCG(b.seed, 99))
			last, k := math.Inf(-1), 0
			stamps := make([][2]float64, len(b.kernels))
			for i, x := range b.kernels {
				stamps[i] = [2]float64{
					float64(x.From) + b.onset + b.late + b.jitter*r.NormFloat64(), float64(x.To) + b.onset - b.early +
						b.jitter*r.NormFloat64(),
				}
			}
			for h := b.from; h < b.to; h += (1 + 0.2*(r.Float64()-0.5)) / b.rate {
				for k+1 < len(stamps) && h > stamps[k+1][0] {
					k++
				}
				p := b.rest + b.noise*r.NormFloat64()
				switch s := stamps[k]; {
				case h < s[0]:
				case h < s[1]:
					p += b.work * min(1, (h-s[0])/b.rise)
				default: // it is back at rest at the stamp of its end
					p += 0
				}
				if s := stamps[k]; h < s[1] && h > s[1]-b.fall {
					p -= b.work * (h - s[1] + b.fall) / b.fall
				}
				m := b.meter(h)
				if m <= last {
					continue
				}
				last = m
				if !yield(validate.Sample{At: measure.Seconds(m), Power: measure.Watt(p)}, nil) {
					return
				}
			}
		}
	}
}

// usual is a measurement like a public one.
func usual(seed uint64) (*bench, *rand.Rand) {
	r := rand.New(rand.NewPCG(seed, 7))
	b := &bench{
		offset: 20 * (r.Float64() - 0.5), drift: 500e-6 * r.NormFloat64(), onset: 0.15e-3 * r.NormFloat64(),
		noise: 2, rise: 0.4e-3, fall: 0.4e-3, rate: 4800, jitter: 0.1e-3, rest: 60, work: 130, seed: seed,
	}
	apart, share := 0.4e-3*r.Float64(), r.Float64()
	b.late, b.early = apart*share, apart*(1-share)
	b.kernels = square(r, 24, 0.05, 0.05, 0.2)
	b.from, b.to = -0.4, float64(b.kernels[len(b.kernels)-1].To)+0.4
	return b, r
}
