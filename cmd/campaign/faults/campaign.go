package faults

import (
	"context"
	"fmt"
	"math"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"

	"wattmark/cmd/campaign/play"
)

// Report is what a campaign came to.
type Report struct {
	play.Report
	Leaks   []string     // stacks of goroutines that are left
	Reached map[Step]int // faults that struck there
	Moves   map[Move]int // steps of captures' lives, as their logs told them
	Kept    int          // captures that the monitor rightly keeps
	Off     []float64    // of complete tasks without a note: how many U the energy was off
}

// OK tells whether no invariant was broken.
func (r *Report) OK() bool { return len(r.Violated) == 0 && len(r.Leaks) == 0 }

// Run plays schedules, 16 at a time if Options do not say another number: most of a
// schedule is waiting. It returns the results of those that were played, and the first
// error that kept the campaign itself from going on.
func Run(ctx context.Context, o play.Options, broken Broken) (Report, error) {
	if o.Workers <= 0 {
		o.Workers = 16
	}
	if o.Dir == "" {
		o.Dir = play.Scratch()
	}
	r := Report{Moves: map[Move]int{}, Reached: map[Step]int{}}
	var mu sync.Mutex
	var err error
	r.Report, err = play.Run(ctx, o, func(ctx context.Context, seed uint64) (out play.Result, err error) {
		pprof.Do(ctx, pprof.Labels(label, strconv.FormatUint(seed, 10)), func(ctx context.Context) {
			var res Result
			res, err = Play(ctx, Draw(seed), broken, o.Dir)
			out = res.Result
			mu.Lock()
			defer mu.Unlock()
			r.add(res)
		})
		return out, err
	})
	if err == nil {
		r.Leaks = Leaks()
	}
	return r, err
}

func (r *Report) add(res Result) {
	r.Kept += res.Kept
	if !math.IsNaN(res.Off) {
		r.Off = append(r.Off, res.Off)
	}
	for m, n := range res.Moves {
		r.Moves[m] += n
	}
	for _, f := range res.Fired {
		r.Reached[f.Step]++
	}
}

// Table is faults × outcomes as Markdown.
func (r *Report) Table() string {
	all := make([]string, len(Kinds))
	for i, k := range Kinds {
		all[i] = string(k)
	}
	return r.Report.Table(all, []string{OutcomeComplete, OutcomeIncomplete, OutcomeUntrimmed, OutcomeNone})
}

func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nfaults by step:", r.Table())
	for _, s := range Steps {
		fmt.Fprintf(&b, " %s %d;", s, r.Reached[s])
	}
	fmt.Fprintf(&b, "\nsteps of captures seen in their logs: %d of different kinds\ncaptures rightly kept on the monitor: %d\n", len(r.Moves), r.Kept)
	if len(r.Off) > 0 {
		slices.Sort(r.Off)
		at := func(share float64) float64 { return r.Off[int(share*float64(len(r.Off)-1))] }
		fmt.Fprintf(&b, "energies of %d complete tasks off by: median %.2f U, 95 %% %.2f U, most %.2f U\n", len(r.Off), at(0.5), at(0.95), at(1))
	}
	for _, l := range r.Leaks {
		fmt.Fprintf(&b, "left behind:\n%s\n", l)
	}
	return b.String()
}
