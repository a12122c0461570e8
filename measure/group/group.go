// Package group adds the energies of several GPUs that were measured at once.
//
// The energies add. Their uncertainties add as squares where the errors have
// nothing to do with each other, and as they are where one error stands behind
// several of them. What is taken as one error, and nothing else:
//
//   - a channel's gain or offset, or a shunt, that several benches take from one
//     and the same calibration record;
//   - gain, offset, skew and tick rate of one and the same instrument, known by
//     its serial number;
//   - all that lasts of an instrument without one, where the caller knows it to be
//     the same (Part.Meter).
//
// Two meters of a model are two meters: that their errors may have a sign in
// common is nothing that a budget knows. AllShared is the upper bound of that effect.
package group

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
)

// Part is one GPU's energy.
type Part struct {
	Instrument measure.Identity
	Setup      *measure.Setup
	Result     *measure.Result
	// Meter names the instrument where it reports no serial number and the caller knows
	// which it is; empty for not known.
	Meter string
}

// Sum is the energy of all parts. Its uncertainties are expanded ones: each
// part's contributions times the coverage factor of that part.
type Sum struct {
	// U² = Independent² + Shared².
	measure.Estimate
	// Independent is the uncertainty by the parts' own errors, Shared by errors that
	// parts have in common come to.
	Independent measure.Joule `json:"independent_u_j"`
	Shared      measure.Joule `json:"shared_u_j"`
	// AllShared is the U that would result if all that does not average out were one
	// error for all parts: no correlation between the parts makes it larger.
	AllShared measure.Joule `json:"all_shared_u_j"`
	// Lines are the errors that parts share, the largest first.
	Lines []Line `json:"-"`
	// Mean is the sum of the parts' mean powers.
	Mean measure.Watt `json:"-"`
}

// Line is one error that several parts share.
type Line struct {
	Source string // as in the parts' budgets
	By     string // the common cause: "record 0123456789ab", "instrument labjack 470012345"
	Parts  []int  // which, counted from 0
	U      measure.Joule
}

// Of adds parts up; each must have a result. Without parts it is zero.
func Of(parts []Part) Sum {
	var s Sum
	var independent, systematic, random float64 // squares, but systematic
	var lines []*Line                           // in order of first use: sums come out the same each time
	for i, p := range parts {
		s.Energy += p.Result.Total.Energy
		s.Mean += p.Result.Mean
		k := measure.FactorOf(p.Result.Total, p.Result.Budget)
		if len(p.Result.Budget) == 0 || math.IsNaN(k) { // the budget of U was not kept
			u := float64(p.Result.Total.U)
			independent, systematic = independent+u*u, systematic+u
			continue
		}
		h, _ := calib.HistoryOf(p.Setup) // records of a later version bind nothing
		var own float64
		for _, c := range p.Result.Budget {
			u := k * float64(c.U)
			if c.Systematic {
				own += u * u
			} else {
				random += u * u
			}
			by := SharedBy(c, h, p.Instrument)
			if by == "" && Lasts(c) {
				by = p.Meter
			}
			if by == "" {
				independent += u * u
			} else {
				lines = share(lines, Line{Source: c.Source, By: by, Parts: []int{i}, U: measure.Joule(u)})
			}
		}
		systematic += math.Sqrt(own)
	}
	alone, common := s.settle(lines)
	independent += alone
	s.Independent, s.Shared = measure.Joule(math.Sqrt(independent)), measure.Joule(math.Sqrt(common))
	s.U = measure.Joule(math.Sqrt(independent + common))
	s.AllShared = measure.Joule(math.Sqrt(systematic*systematic + random))
	return s
}

// settle keeps the lines that several parts share, the greatest first. It returns the squares of those of
// one part alone, and of the shared ones.
func (s *Sum) settle(lines []*Line) (alone, common float64) {
	for _, l := range lines {
		u := float64(l.U)
		if len(l.Parts) == 1 {
			alone += u * u
		} else {
			common += u * u
			s.Lines = append(s.Lines, *l)
		}
	}
	slices.SortFunc(s.Lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.U, a.U), cmp.Compare(a.Source, b.Source), cmp.Compare(a.By, b.By))
	})
	return alone, common
}

// share adds a part's line to the one of the same error: amounts of one error add up.
func share(lines []*Line, l Line) []*Line {
	for _, x := range lines {
		if x.Source == l.Source && x.By == l.By {
			x.U += l.U
			x.Parts = append(x.Parts, l.Parts...)
			return lines
		}
	}
	return append(lines, &l)
}

// Lasts reports whether a line of a budget stays as it is from one measurement on a
// bench to the next. A window's lines are each measurement's own, and so is the
// effect of quantisation: that depends on where the readings lie.
func Lasts(c measure.Contribution) bool {
	kind, _, _ := strings.Cut(c.Source, " ")
	return c.Systematic && slices.Contains([]string{"gain", "offset", "shunt", "age", "skew", "assumed", "tick"}, kind)
}

// SharedBy names the cause that a line of a budget would share with the same line of
// another part; empty for nothing.
func SharedBy(c measure.Contribution, h calib.History, id measure.Identity) string {
	kind, of, _ := strings.Cut(c.Source, " ")
	if !c.Systematic {
		return ""
	}
	if kind == "age" {
		of = strings.TrimPrefix(of, "shunt ")
	}
	if kind == "gain" || kind == "offset" || kind == "shunt" || kind == "age" {
		// Of several instruments a record names its own channel, without the instrument's name ahead.
		_, bare, _ := strings.Cut(of, "/")
		for _, part := range id.Parts() {
			device := calib.Instrument{Kind: part.Kind, Serial: part.Serial}
			if r := cmp.Or(h.InForce(device, of), h.InForce(device, bare)); r != nil {
				return "record " + r.ID
			}
		}
	}
	// A shunt is the riser's, not the instrument's.
	instruments := kind == "gain" || kind == "offset" || kind == "skew" || c.Source == "tick rate"
	if !instruments || id.Serial == "" {
		return ""
	}
	return "instrument " + id.Kind + " " + id.Serial
}
