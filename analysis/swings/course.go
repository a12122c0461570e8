package swings

import (
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/stat"
)

// mostPhases bounds the parts of a step.
const mostPhases = 64

// common is how far a step's length may lie from the median, as a factor: a step beyond it is another kind of step.
const common = 1.5

// course averages the power by the phase between two begins of a step.
type course struct {
	starts   []measure.Seconds
	shortest measure.Seconds
	longest  measure.Seconds
	at       int // the step that the next scan is of, -1 before the first
	broken   bool
	sums     []float64
	counts   []int
	phases   []moments
	lengths  []float64
	energies []float64
	out      int
}

// moments are the sums of a phase over the steps.
type moments struct{ sum, sq float64 }

func newCourse(cfg Config) *course {
	lengths := stats.Differences(cfg.Starts)
	slices.Sort(lengths)
	median := measure.Seconds(lengths[len(lengths)/2])
	n := max(min(int(median/common/cfg.Step), mostPhases), 1)
	return &course{
		starts: cfg.Starts, shortest: median / common, longest: median * common, at: -1,
		sums: make([]float64, n), counts: make([]int, n), phases: make([]moments, n),
	}
}

func (c *course) add(t measure.Seconds, p measure.Watt, hole bool) {
	for c.at+1 < len(c.starts) && t >= c.starts[c.at+1] {
		c.close()
		c.at++
		// A step whose begin lies in a hole, or before the first scan, is not whole.
		c.broken = hole
	}
	if c.at < 0 || c.at+1 >= len(c.starts) {
		return
	}
	c.broken = c.broken || hole
	phase := (t - c.starts[c.at]) / (c.starts[c.at+1] - c.starts[c.at])
	i := min(int(float64(phase)*float64(len(c.sums))), len(c.sums)-1)
	c.sums[i] += float64(p)
	c.counts[i]++
}

// close takes the step that has ended.
func (c *course) close() {
	if c.at < 0 || c.at+1 >= len(c.starts) {
		return
	}
	length := c.starts[c.at+1] - c.starts[c.at]
	if c.broken || length < c.shortest || length > c.longest || slices.Contains(c.counts, 0) {
		c.out++
	} else {
		var level float64
		for i, n := range c.counts {
			w := c.sums[i] / float64(n)
			c.phases[i].sum += w
			c.phases[i].sq += w * w
			level += w / float64(len(c.counts))
		}
		c.lengths = append(c.lengths, float64(length))
		c.energies = append(c.energies, level*float64(length))
	}
	clear(c.sums)
	clear(c.counts)
}

// result returns the mean course; nil for fewer than two steps.
func (c *course) result(cfg Config) *Course {
	n := float64(len(c.lengths))
	if n < 2 {
		return nil
	}
	length, sd := stat.MeanStdDev(c.lengths, nil)
	energy, scatter := stat.MeanStdDev(c.energies, nil)
	out := &Course{
		Steps: len(c.lengths), Out: c.out, Length: measure.Seconds(length), SD: measure.Seconds(sd),
		Energy: measure.Joule(energy), U: measure.Joule(2 * math.Hypot(scatter/math.Sqrt(n), cfg.Gain*energy)),
	}
	for i, m := range c.phases {
		w := m.sum / n
		se := math.Sqrt(max(m.sq/n-w*w, 0) / (n - 1))
		out.Phases = append(out.Phases, Phase{
			At: (float64(i) + 0.5) / float64(len(c.phases)), Power: measure.Watt(w),
			U: measure.Watt(2 * math.Hypot(se, cfg.Gain*w)),
		})
	}
	return out
}
