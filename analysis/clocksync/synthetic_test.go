package clocksync

import (
	"iter"
	"math"
	"math/rand/v2"

	"wattmark/analysis/validate"
	"wattmark/measure"
)

// bench is a synthetic measurement whose clocks are known.
type bench struct {
	offset, drift float64 // t_host = t_meter + offset − drift·(t_meter − first start's)
	jumpAt, jump  float64 // host time behind which the offset is larger by jump
	onset         float64 // the power follows the time stamps late by this
	late, early   float64 // starts are seen late by this besides, ends early
	noise         float64 // W
	rise, fall    float64 // s
	rate          float64 // samples a second
	from, to      float64 // host's time in which the meter runs
	jitter        float64 // s, of single time stamps, one standard deviation
	rest          float64 // W
	work          float64 // W above rest
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
					float64(x.From) + b.onset + b.late + b.jitter*r.NormFloat64(), float64(x.To) + b.onset - b.early + b.jitter*r.NormFloat64(),
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
