// Package stats is the statistics of comparisons: how far readings lie from a
// truth, how sure one may be of a mean or a ratio whose terms depend on their
// neighbours, by how much one series trails another, and lines and levels that a
// few wild values do not move.
//
// Values are plain float64 in whatever unit the caller has; a result is in the
// same. Every random draw comes from a seed, so that a result can be had again.
// What cannot be told is NaN, never zero.
//
// Sources: the block bootstrap is Politis and Romano's (1992, circular; 1994,
// stationary), its block length Politis and White's (2004) as Patton, Politis and
// White (2009) corrected it, the bias-corrected and accelerated interval Efron's
// (1987), the widening for few blocks Hesterberg's (2015), that for what their ends
// cut Künsch's (1989), the robust level
// Huber's (1964), the robust line Theil's (1950) and Sen's (1968).
package stats
