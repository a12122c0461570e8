package measurement

import (
	"cmp"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/store"
)

// few is how many spans of the meter's resolution, or of the card's response, a kernel has on the mean where its
// edges are too close to each other to see its power.
const few = 3

// mostColumns is how many names have a mean power of their own in a fit; rarer ones have one together. The
// fit's memory is some 16 kB times its square, with averages 40 kB.
const (
	mostColumns  = 100
	mostAveraged = 40
)

// The names of the time without kernels, where it is part of a group.
const (
	betweenKernels = "(between kernels)"
	aroundKernels  = "(before and after)"
)

// blind is the span that the meter cannot look into, or within which a card has not followed its load.
func (s *sharing) blind() measure.Seconds { return max(s.resolution, measure.PowerSettles) }

// hidden reports whether most pauses are too short for a meter that is slower than the card: beside an edge it reads
// the next kernel's power. A faster one sees how the card follows.
func (s *sharing) hidden(r *attribute.Result) bool {
	return s.resolution > measure.PowerSettles && 2*r.Brief > r.Pauses
}

// averages reports whether the meter's average is so long that the card's response does not matter beside it.
func (s *sharing) averages() bool { return s.task.Setup.Response.Window > few*measure.PowerSettles }

// lines are the result as it is stored: the largest kernel first, then the time without.
func (s *sharing) lines(r attribute.Result) ([]store.NameEnergy, error) {
	entries, columns, err := s.fit(&r)
	if err != nil {
		return nil, err
	}
	inFit := map[int]bool{} // columns whose energy is by the fit
	for i := range entries {
		for _, c := range entries[i].Columns {
			inFit[c] = true
		}
	}
	var out []store.NameEnergy
	n := len(r.Kernels)
	for i := range r.Kernels {
		if u := &r.Kernels[i]; u.Launches > 0 && (len(columns) == 0 || !inFit[columns[i]]) {
			out = append(out, s.line(store.KernelEnergy, s.tables.Names[i], u, false))
		}
	}
	uses := slices.Concat(r.Kernels, []attribute.Use{r.ActiveIdle, r.Idle})
	for i := range entries {
		out = append(out, s.fitted(&entries[i], uses, columns))
	}
	for i, class := range []store.EnergyClass{store.ActiveIdleEnergy, store.IdleEnergy} {
		if len(columns) == 0 || !inFit[columns[n+i]] {
			out = append(out, s.line(class, "", &uses[n+i], false))
		}
	}
	byDifference(out, s.task.Result.Total.U)
	slices.SortStableFunc(out, func(a, b store.NameEnergy) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(b.Energy.Energy, a.Energy.Energy))
	})
	return out, nil
}

// byDifference lowers each line's U to that of the window's energy less the other lines: together
// they come to the window's, and uncertainties add up at most, however they hang together.
func byDifference(lines []store.NameEnergy, window measure.Joule) {
	var sum measure.Joule
	for i := range lines {
		sum += lines[i].Energy.U
	}
	rest := sum + window
	for i := range lines {
		u := &lines[i].Energy.U
		*u = min(*u, rest-*u)
	}
}

func (s *sharing) line(class store.EnergyClass, name string, u *attribute.Use, fitted bool) store.NameEnergy {
	return store.NameEnergy{
		Class: class, Fitted: fitted, Name: name, Launches: u.Launches, Short: u.Short, Busy: u.Busy, Share: u.Share,
		Energy: s.part(u, fitted).Estimate,
	}
}

// fitted is the line of an entry of the fit. uses are those of the names, of active idle and of idle, and
// columns theirs.
func (s *sharing) fitted(e *attribute.Entry, uses []attribute.Use, columns []int) store.NameEnergy {
	var u attribute.Use
	var names []string
	class := store.KernelEnergy
	for i, c := range columns {
		if !slices.Contains(e.Columns, c) || uses[i].Share == 0 && uses[i].Launches == 0 {
			continue
		}
		u.Launches, u.Short = u.Launches+uses[i].Launches, u.Short+uses[i].Short
		u.Busy, u.Share = u.Busy+uses[i].Busy, u.Share+uses[i].Share
		switch i - len(uses) {
		case -2:
			names, class = append(names, betweenKernels), store.ActiveIdleEnergy
		case -1:
			names, class = append(names, aroundKernels), store.IdleEnergy
		default:
			names = append(names, s.tables.Names[i])
		}
	}
	name := strings.Join(names, store.Together)
	if len(names) == 1 && class != store.KernelEnergy {
		name = ""
	} else {
		class = store.KernelEnergy
	}
	u.Energy, u.USampling = e.Shared, e.UShared
	return s.line(class, name, &u, true)
}

// columns are those of the names, of active idle and of idle: the names with most time have one of
// their own each.
func (s *sharing) columns(r *attribute.Result) []int {
	byShare := func(a, b int) int { return cmp.Compare(r.Kernels[b].Share, r.Kernels[a].Share) }
	order := lists.Order(len(r.Kernels), byShare)
	out := make([]int, len(order)+2)
	kernels := min(len(order), mostColumns)
	if s.averages() {
		kernels = min(kernels, mostAveraged)
	}
	for rank, name := range order {
		out[name] = min(rank, kernels-1)
	}
	out[len(order)], out[len(order)+1] = kernels, kernels+1
	return out
}

// fit solves for the mean powers of the names by least squares, where there are kernels or pauses too short for
// their edges and all rails are read at one instant. It returns the entries that it determines
// better than edges do: those of short kernels, of short pauses with the kernels beside them, and groups. Together they
// come to what the lines by edges leave of the window's energy.
func (s *sharing) fit(r *attribute.Result) ([]attribute.Entry, []int, error) {
	hidden := s.hidden(r)
	if len(s.engines) != 1 || !hidden && !slices.ContainsFunc(r.Kernels, func(u attribute.Use) bool {
		return u.Launches > 0 && float64(u.Busy)/float64(u.Launches) < few*float64(s.blind())
	}) {
		return nil, nil, nil
	}
	columns := s.columns(r)
	all, err := s.solve(columns[:len(r.Kernels)], r.Total, hidden)
	if err != nil {
		return nil, nil, err
	}
	uses, left := slices.Concat(r.Kernels, []attribute.Use{r.ActiveIdle, r.Idle}), r.Total
	n := len(all)
	entries := slices.DeleteFunc(all, func(e attribute.Entry) bool {
		if !e.Apart || hidden && e.Columns[0] != columns[len(columns)-1] {
			return false
		}
		for i, c := range columns {
			if c == e.Columns[0] {
				left -= uses[i].Energy
			}
		}
		return true
	})
	whole := len(entries) == 1 && n == 1
	if !whole && !attribute.Distribute(entries, left, r.Total) {
		return nil, nil, nil // edges took more than there is: they stay
	}
	return entries, columns, nil
}

// solve is the second pass over scans and launches. Of a meter that shows a value until its next update
// each is taken once, in the middle between the scan that has it first and the one before.
func (s *sharing) solve(columns []int, total measure.Joule, hidden bool) ([]attribute.Entry, error) {
	t := s.task
	r, tb := t.Setup.Response, t.Setup.Timebase
	scan := tb.Seconds(tb.TicksPerScan)
	m := attribute.Model{
		Window: measure.Window{From: t.Result.From, To: t.Result.To}, Clock: *t.Clock,
		Delay: t.Setup.Channels[t.Setup.Rails[0].X].Skew, Memory: measure.PowerSettles + r.Window + 5*r.Tau,
		Columns: columns, Brief: few * s.blind(), Hidden: hidden,
	}
	if s.averages() {
		m.Average, m.ULate = r.Window, measure.UPowerResponse
	}
	x, err := attribute.NewSolver(m, s.spans)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	var before float64
	err = s.scans(func(p *measure.Powers) error {
		for i := range p.Scans() {
			var w float64
			for _, rail := range p.Rails {
				w += float64(rail.P[i])
			}
			at := float64(tb.Seconds(p.Tick(i)))
			if r.Update > scan {
				if w == before {
					continue
				}
				before, at = w, at-float64(scan)/2
			}
			if err := x.Add(at, w, 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	solution, err := x.Solve(total)
	return solution.Entries, err
}
