package attribute

import (
	"cmp"
	"slices"

	"github.com/wattmark/wattmark/measure"
)

// Span is a range of a program: what a thread did between two instants of the host's clock, in ns.
type Span struct {
	Thread   int
	From, To int64
	// Process: it counts for all threads, as one that begins on a thread and ends on another.
	Process bool
}

// Started is a kernel when a thread launched it, with its energy and U.
type Started struct {
	Thread    int
	At        int64
	Busy      measure.Seconds
	Energy, U measure.Joule
}

// SpanUse is the energy of the kernels that were launched within a span, whenever they ran. U adds up
// linearly: kernels of a name err together, and a window's errors are common to all.
type SpanUse struct {
	Launches  uint64
	Busy      measure.Seconds
	Energy, U measure.Joule
}

func (u *SpanUse) add(k *Started) {
	u.Launches++
	u.Busy += k.Busy
	u.Energy += k.Energy
	u.U += k.U
}

// Spans returns the energies of the kernels launched within each span: by its own thread, nested spans
// included. With adopt, a launch of a thread that has no span open counts for those of the only thread that
// has (autograd's threads launch for the one that called backward); where several have, for none of a
// thread's. It sorts launches.
func Spans(spans []Span, launches []Started, adopt bool) []SpanUse {
	out := make([]SpanUse, len(spans))
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(spans[a].From, spans[b].From) })
	slices.SortFunc(launches, func(a, b Started) int { return cmp.Compare(a.At, b.At) })
	const process = -1
	open := map[int][]int{}
	for i := range launches {
		k := &launches[i]
		for len(order) > 0 && spans[order[0]].From <= k.At {
			s := &spans[order[0]]
			thread := s.Thread
			if s.Process {
				thread = process
			}
			open[thread], order = append(open[thread], order[0]), order[1:]
		}
		for thread, list := range open {
			if list = slices.DeleteFunc(list, func(n int) bool { return spans[n].To < k.At }); len(list) > 0 {
				open[thread] = list
			} else {
				delete(open, thread)
			}
		}
		for _, n := range open[process] {
			out[n].add(k)
		}
		within := open[k.Thread]
		if adopt && len(within) == 0 {
			within = only(open, process)
		}
		for _, n := range within {
			out[n].add(k)
		}
	}
	return out
}

// only returns the spans of the only thread that has some open, but for the process's.
func only(open map[int][]int, process int) (out []int) {
	for thread, list := range open {
		switch {
		case thread == process:
		case out != nil:
			return nil
		default:
			out = list
		}
	}
	return out
}
