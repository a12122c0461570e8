package predict

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"wattmark/measure"
)

// Point is one measured launch of a kernel.
type Point struct {
	Blocks uint64          `json:"blocks"`
	Time   measure.Seconds `json:"time_s"`
	// Energy is all that the GPU drew, what it draws at rest included.
	Energy measure.Joule `json:"energy_j"`
	// UTime and UEnergy are standard uncertainties (k = 1); zero for unknown.
	UTime   measure.Seconds `json:"u_time_s,omitempty"`
	UEnergy measure.Joule   `json:"u_energy_j,omitempty"`
	// From says where the point comes from: a task, a line of a file.
	From string `json:"from,omitempty"`
}

// String names a point in errors.
func (p Point) String() string {
	if p.From != "" {
		return p.From
	}
	return fmt.Sprintf("the point of %d blocks", p.Blocks)
}

// Validate refuses what no measurement can have left.
func (p Point) Validate() error {
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	switch {
	case p.Blocks == 0:
		return fmt.Errorf("%w: %v: a launch has one block at least", ErrPoints, p)
	case p.Blocks > MostBlocks:
		return fmt.Errorf("%w: %v: %d blocks: a grid has at most %d", ErrPoints, p, p.Blocks, uint64(MostBlocks))
	case !finite(float64(p.Time)) || p.Time <= 0:
		return fmt.Errorf("%w: %v: a time of %v s: it must be positive and finite", ErrPoints, p, float64(p.Time))
	case !finite(float64(p.Energy)) || p.Energy <= 0:
		return fmt.Errorf("%w: %v: an energy of %v J: it must be positive and finite (what the GPU draws at rest included)", ErrPoints, p, float64(p.Energy))
	case !finite(float64(p.UTime)) || p.UTime < 0 || !finite(float64(p.UEnergy)) || p.UEnergy < 0:
		return fmt.Errorf("%w: %v: an uncertainty of %v s or %v J: it must not be negative", ErrPoints, p, float64(p.UTime), float64(p.UEnergy))
	}
	return nil
}

// MostBlocks bounds a number of blocks: what a float64 counts exactly.
const MostBlocks = 1 << 53

// leastPoints is what the paper found to be enough (section V-B), and the least
// that leaves a residual to judge the line by.
const leastPoints = 3

// checkPoints refuses points that no line can be drawn through.
func checkPoints(points []Point) error {
	for _, p := range points {
		if err := p.Validate(); err != nil {
			return err
		}
	}
	if len(points) < leastPoints {
		return fmt.Errorf("%w: %d of them: three are needed, two of few blocks and one of more, or the reverse", ErrPoints, len(points))
	}
	least, most := slices.MinFunc(points, byBlocks).Blocks, slices.MaxFunc(points, byBlocks).Blocks
	if least == most {
		return fmt.Errorf("%w: all have %d blocks: measure other sizes as well", ErrPoints, least)
	}
	return nil
}

func byBlocks(a, b Point) int { return cmp.Compare(a.Blocks, b.Blocks) }
