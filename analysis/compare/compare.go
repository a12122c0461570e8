// Package compare holds measurements of two versions of some work against each
// other: by how much B differs from A in energy, time, mean power and the
// energy-delay products, with an interval and a test.
//
// Everything is done on logarithms, so that a product's is a sum and a ratio's a
// difference: means are geometric ones. An error that stands behind A and B alike,
// as a gain of one and the same meter, changes both by the same factor and
// cancels; what is new with every run does not. Which is which, the caller says by
// [Error.Behind].
//
// With several runs of each, their scatter is what chance does (GUM type A): the
// test is Welch's (B. L. Welch, Biometrika 34 (1947) 28–35), with a permutation
// test beside it. With one run on either side nothing was measured of how that
// side's work scatters from run to run: there is a ratio, with the uncertainty of
// the meters, and no test.
package compare

import (
	"errors"
	"fmt"
	"math"
	"time"

	"wattmark/measure"
)

// ErrRuns: the runs cannot be compared.
var ErrRuns = errors.New("cannot be compared")

// Level is the confidence of intervals, and what a test's p is held against.
const Level = 0.95

// Error is one error of a run: what a standard deviation of it (k = 1) changes
// the energy and the time by, relative to them. An error that makes both larger
// has one sign in both.
type Error struct {
	// Behind names what stands behind it. Errors of the same name are one error,
	// whichever runs they are of. Empty: it is new with every run.
	Behind       string
	Energy, Time float64
}

// Run is one measurement of one version: both values positive.
type Run struct {
	Name   string
	At     time.Time // when it began; zero where it is not known
	Energy measure.Joule
	Time   measure.Seconds
	Errors []Error
}

// Quantity is what is compared: Energy^a · Time^b.
type Quantity struct {
	Name, Unit string
	a, b       float64
}

// The quantities. The products are those of R. Gonzalez and M. Horowitz (IEEE
// J. Solid-State Circuits 31 (1996) 1277–1284), and A. J. Martin's with the time
// squared, which does not change with voltage.
var (
	Energy = Quantity{"energy", "J", 1, 0}
	Time   = Quantity{"time", "s", 0, 1}
	Power  = Quantity{"mean power", "W", 1, -1}
	EDP    = Quantity{"energy-delay product", "J·s", 1, 1}
	ED2P   = Quantity{"energy-delay² product", "J·s²", 1, 2}
)

// Quantities are all of them.
func Quantities() []Quantity { return []Quantity{Energy, Time, Power, EDP, ED2P} }

// log is the quantity's logarithm in a run.
func (q Quantity) log(r *Run) float64 {
	return q.a*math.Log(float64(r.Energy)) + q.b*math.Log(float64(r.Time))
}

// of is what a standard deviation of an error changes the quantity by, relatively.
func (q Quantity) of(e Error) float64 { return q.a*e.Energy + q.b*e.Time }

// check refuses what has no logarithm.
func check(side string, runs []Run) error {
	if len(runs) == 0 {
		return fmt.Errorf("%w: %s has no runs", ErrRuns, side)
	}
	for _, r := range runs {
		for _, v := range []float64{float64(r.Energy), float64(r.Time)} {
			if !(v > 0) || math.IsInf(v, 0) {
				return fmt.Errorf("%w: %s of %s: energy %v in %v: both must be positive", ErrRuns, r.Name, side, r.Energy, r.Time)
			}
		}
		for _, e := range r.Errors {
			if math.IsNaN(e.Energy+e.Time) || math.IsInf(e.Energy+e.Time, 0) {
				return fmt.Errorf("%w: %s of %s: an error (%q) is not finite", ErrRuns, r.Name, side, e.Behind)
			}
		}
	}
	return nil
}

// Interleaved reports whether the runs of A and B took turns: where all of one
// came before all of the other, a card that warms up looks like a difference. It
// is true where a time is not known.
func Interleaved(a, b []Run) bool {
	firstA, lastA := span(a)
	firstB, lastB := span(b)
	if firstA.IsZero() || firstB.IsZero() {
		return true
	}
	return lastA.After(firstB) && lastB.After(firstA)
}

func span(runs []Run) (first, last time.Time) {
	for i, r := range runs {
		if r.At.IsZero() {
			return time.Time{}, time.Time{}
		}
		if i == 0 || r.At.Before(first) {
			first = r.At
		}
		if i == 0 || r.At.After(last) {
			last = r.At
		}
	}
	return first, last
}
