package correct

import (
	"math"
	"slices"

	"wattmark/measure"
)

// histogram is time over power.
type histogram struct {
	bottom, top, width float64
	time, smooth       []float64
	powers, weights    []float64
}

type peak struct{ bin, from, to int }

func newHistogram(rs []Reading, sigma float64) *histogram {
	h := &histogram{}
	for i, r := range rs {
		w := 0.0
		if i > 0 {
			w += float64(r.At-rs[i-1].At) / 2
		}
		if i+1 < len(rs) {
			w += float64(rs[i+1].At-r.At) / 2
		}
		h.powers, h.weights = append(h.powers, float64(r.Power)), append(h.weights, w)
	}
	sorted := slices.Clone(h.powers)
	slices.Sort(sorted)
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }
	h.bottom, h.top = at(0.01), at(0.99)
	pad := 0.1*(h.top-h.bottom) + 4*sigma
	low := h.bottom - pad
	h.width = (h.top - h.bottom + 2*pad) / levelBins
	h.time = make([]float64, levelBins)
	for i, p := range h.powers {
		if b := int((p - low) / h.width); p >= low && b < levelBins {
			h.time[b] += h.weights[i]
		}
	}
	h.smooth = smooth(h.time, max(1.5*sigma, (h.top-h.bottom)/80)/h.width)
	return h
}

// power is the middle of a bin.
func (h *histogram) power(bin int) float64 {
	pad := (h.width*levelBins - (h.top - h.bottom)) / 2
	return h.bottom - pad + (float64(bin)+0.5)*h.width
}

// smooth lays a bell of a width in bins over each bin.
func smooth(v []float64, width float64) []float64 {
	out := make([]float64, len(v))
	reach := int(4*width) + 1
	for i, x := range v {
		if x == 0 {
			continue
		}
		for j := max(0, i-reach); j <= min(len(v)-1, i+reach); j++ {
			d := float64(j-i) / width
			out[j] += x * math.Exp(-d*d/2)
		}
	}
	return out
}

// peaks are the powers at which time was spent, with the bins that are theirs.
func (h *histogram) peaks() (out []peak) {
	last := len(h.smooth) - 1
	for i, v := range h.smooth {
		if v > 0 && (i == 0 || v > h.smooth[i-1]) && (i == last || v >= h.smooth[i+1]) {
			out = append(out, peak{bin: i})
		}
	}
	for changed := true; changed; {
		changed = false
		h.bound(out)
		for i, p := range out {
			share, all := 0.0, 0.0
			for b, w := range h.time {
				all += w
				if b >= p.from && b < p.to {
					share += w
				}
			}
			if len(out) > 1 && (share < modeShare*all || h.shallow(out, i)) {
				out, changed = slices.Delete(out, i, i+1), true
				break
			}
		}
	}
	return out
}

// shallow tells whether a peak is a shoulder of a higher neighbour.
func (h *histogram) shallow(peaks []peak, i int) bool {
	mine := h.smooth[peaks[i].bin]
	for _, j := range []int{i - 1, i + 1} {
		if j < 0 || j >= len(peaks) || h.smooth[peaks[j].bin] < mine {
			continue
		}
		v := h.lowest(min(peaks[i].bin, peaks[j].bin), max(peaks[i].bin, peaks[j].bin))
		if h.smooth[v] > modeValley*mine {
			return true
		}
	}
	return false
}

// bound gives each peak the bins up to the valleys beside it.
func (h *histogram) bound(peaks []peak) {
	for i := range peaks {
		peaks[i].from, peaks[i].to = 0, len(h.time)
		if i > 0 {
			peaks[i].from = h.lowest(peaks[i-1].bin, peaks[i].bin)
			peaks[i-1].to = peaks[i].from
		}
	}
}

// lowest is the middle of the emptiest bins between two.
func (h *histogram) lowest(a, b int) int {
	least := math.Inf(1)
	for i := a; i <= b; i++ {
		least = min(least, h.smooth[i])
	}
	first, last := -1, a
	for i := a; i <= b; i++ {
		if h.smooth[i] <= least*1.0001+1e-300 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	return (first + last) / 2
}

// mode tells power, spread and share of a peak, from the readings in its bins that
// lie near it.
func (h *histogram) mode(peaks []peak, i int) Mode {
	p := peaks[i]
	low, high := h.power(p.from)-h.width/2, h.power(p.to-1)+h.width/2
	var in, off []float64
	share, all := 0.0, 0.0
	for k, v := range h.powers {
		all += h.weights[k]
		if v >= low && v < high {
			in = append(in, v)
			share += h.weights[k]
		}
	}
	m := h.power(p.bin)
	near := in[:0:0]
	for _, v := range in {
		if math.Abs(v-m) < (h.top-h.bottom)/20 {
			near = append(near, v)
		}
	}
	if len(near) > 0 {
		m = median(near)
	}
	for _, v := range near {
		off = append(off, math.Abs(v-m))
	}
	sd := 0.0
	if len(off) > 0 {
		sd = 1.4826 * median(off)
	}
	return Mode{Power: measure.Watt(m), SD: measure.Watt(sd), Share: share / all}
}

// otsu is the bin that parts the time in two classes of least variance.
func (h *histogram) otsu() int {
	total, sum := 0.0, 0.0
	for b, w := range h.time {
		total += w
		sum += w * float64(b)
	}
	best, most, w0, s0 := 0, -1.0, 0.0, 0.0
	for b, w := range h.time {
		w0 += w
		s0 += w * float64(b)
		if w0 == 0 || w0 == total {
			continue
		}
		d := s0/w0 - (sum-s0)/(total-w0)
		if v := w0 * (total - w0) * d * d; v > most {
			best, most = b+1, v
		}
	}
	return best
}
