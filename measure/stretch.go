package measure

import "sort"

// reading is what a rail's power is made of: a count as the converter said it,
// or one that was brought to another instant.
type reading interface{ Count | float64 }

// stretch is a run of scans with their times.
type stretch[T reading] struct {
	cols  [][]T
	ticks []int64 // stamped timebases
	start float64 // else
	step  float64
	n     int
	first uint64 // index of the first scan
}

// at returns the tick of scan i.
func (s *stretch[T]) at(i int) float64 {
	if s.ticks != nil {
		return float64(s.ticks[i])
	}
	return s.start + float64(i)*s.step
}

// find returns the first scan for which past is true of its tick.
func (s *stretch[T]) find(past func(tick float64) bool) int {
	return sort.Search(s.n, func(i int) bool { return past(s.at(i)) })
}
