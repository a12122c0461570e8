package measure

import "math"

// jumps sums what sampling hides between the scans. The trapezoid rule turns a
// step of ΔP between two readings Δt apart into a ramp, and is wrong by
// ΔP·Δt/√12 rms, as the step may lie anywhere between them. What counts as a step
// is a change less the larger of its two neighbours: of a ramp over several
// readings, or of a ripple that the scans follow, the rule hides far less (for a
// kink of slope s it is within s·Δt²/8).
type jumps struct {
	begun       bool
	last        float64 // the reading before
	older, late float64 // the changes before last and to last, not below zero
	squares     float64 // of the steps, in W²
}

// take adds the next readings of a run. They are summed one by one, so that how
// the run was cut does not matter.
func (j *jumps) take(p []float64) {
	if len(p) == 0 {
		return
	}
	if !j.begun {
		*j = jumps{begun: true, last: p[0], squares: j.squares}
	}
	// Floats that are not negative are in the order of their bits, and whole numbers
	// are compared without a branch.
	last, squares := j.last, j.squares
	older, late := math.Float64bits(j.older), math.Float64bits(j.late)
	for _, v := range p {
		change := math.Float64bits(math.Abs(v - last))
		step := math.Float64frombits(late) - math.Float64frombits(min(late, max(older, change)))
		squares += step * step
		last, older, late = v, late, change
	}
	j.last, j.squares = last, squares
	j.older, j.late = math.Float64frombits(older), math.Float64frombits(late)
}

// end closes a run: a gap follows, or the end of the window. The change across it
// is no step between neighbours.
func (j *jumps) end() {
	j.squares = j.sum()
	*j = jumps{squares: j.squares}
}

// sum is the sum of squares of all steps, as if the run ended here.
func (j *jumps) sum() float64 {
	step := max(j.late-j.older, 0)
	return j.squares + step*step
}
