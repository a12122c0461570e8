// Package sweep measures a kernel over its number of blocks: the two kernels of
// Boughzala et al. (2020), vectorAdd and matrixMul, in PTX of our own, launched
// with grids around and beyond what the GPU holds at a time.
//
// A block's loop is set so that a full round takes as long as the plan says. Sizes
// are measured in an order that is drawn by lot, several times over, and the GPU
// rests before, between and after.
package sweep

import "errors"

// The kinds of error, for errors.Is.
var (
	// ErrPlan: a sweep cannot be made as asked.
	ErrPlan = errors.New("not to be swept")
	// ErrResult: a kernel left another result than it must.
	ErrResult = errors.New("wrong result")
)
