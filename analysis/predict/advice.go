package predict

import (
	"fmt"
	"slices"

	"wattmark/measure"
)

// Advice is where to measure for a calibration.
type Advice struct {
	// Blocks to measure: two small sizes and a medium one, and a large one where
	// the device works better at scale.
	Blocks []uint64 `json:"blocks"`
	Why    []string `json:"why"`
}

// SamplePeriod is what the paper samples power at (20 Hz).
const SamplePeriod = measure.Seconds(0.05)

// leastReadings keeps what the ends of a launch add to a sampled energy below
// about five percent: each end is off by up to half a period.
const leastReadings = 20

// Advise proposes calibration points for a GPU, as whole rounds: points within a
// round would put the staircase into the slope. largest is the largest number of
// blocks that is to be predicted; 0 for none in mind.
func Advise(sms, resident, largest uint64) (Advice, error) {
	o, err := Options{SMs: sms, Resident: resident}.defaults()
	if err != nil {
		return Advice{}, err
	}
	r := o.SMs * o.Resident
	a := Advice{Blocks: []uint64{r, 2 * r, 16 * r}, Why: []string{
		fmt.Sprintf("whole rounds of %d blocks: the slope then is that of Eq. 5", r),
		"two small sizes and a medium one are what the line needs (section V-B); the reverse serves as well",
		fmt.Sprintf("by the GPU's own sensor, sample every %v and let the shortest launch last %v or more: put a loop into the kernel (Table III)", SamplePeriod, leastReadings*SamplePeriod),
		"by nvidia-smi, switch persistence mode on, log pstate as well, and keep P0 alone",
		"on a device that works better at scale (the paper's K20Xm) one point must be large",
	}}
	if largest > 16*r {
		a.Blocks = append(a.Blocks, largest/r*r)
	}
	return a, nil
}

// Review says what is doubtful about calibration points: nothing, at best.
func Review(points []Point, o Options) (out []string) {
	o, err := o.defaults()
	if err != nil || checkPoints(points) != nil {
		return nil
	}
	r := o.SMs * o.Resident
	sorted := slices.SortedFunc(slices.Values(points), byBlocks)
	first, last := sorted[0], sorted[len(sorted)-1]
	ragged := 0
	for _, p := range sorted {
		if p.Blocks%r != 0 {
			ragged++
		}
	}
	if ragged > 0 && last.Blocks < 20*r {
		out = append(out, fmt.Sprintf("%d of %d points are no whole rounds of %d blocks: where time goes by steps, the slope depends on where they stand", ragged, len(points), r))
	}
	if last.Blocks < 3*first.Blocks {
		out = append(out, fmt.Sprintf("the points reach from %d to %d blocks only: a wider span makes a surer slope", first.Blocks, last.Blocks))
	}
	if last.Blocks <= r {
		out = append(out, fmt.Sprintf("no point goes beyond one round of %d blocks: nothing is known of how rounds follow each other", r))
	}
	if len(points) == leastPoints && o.Weights != Stated {
		out = append(out, "three points leave one degree of freedom: the bands are 12.7 standard deviations wide; more points, or stated uncertainties, narrow them")
	}
	return out
}

// TooShort names points that are too short for a meter of a period.
func TooShort(points []Point, period measure.Seconds) (out []string) {
	for _, p := range points {
		if p.Time < leastReadings*period {
			out = append(out, fmt.Sprintf("%v lasts %v: fewer than %d readings of a meter that reads every %v", p, p.Time, leastReadings, period))
		}
	}
	return out
}
