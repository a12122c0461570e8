package faults

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Report is what a campaign came to.
type Report struct {
	Asked, Played int
	Took          time.Duration
	Violated      []Result
	Leaks         []string // stacks of goroutines that are left
	Rows          map[Kind]Row
	Reached       map[Step]int // faults that struck there
	Moves         map[Move]int // steps of captures' lives, as their logs told them
	Kept          int
	Off           []float64 // of complete tasks without a note: how many U the energy was off
}

// Row is a line of the table: of the schedules in which a fault struck.
type Row struct {
	Struck     int
	Outcomes   map[Outcome]int
	Violations int
}

// OK tells whether no invariant was broken.
func (r *Report) OK() bool { return len(r.Violated) == 0 && len(r.Leaks) == 0 }

func (r *Report) add(res Result) {
	if r.Rows == nil {
		r.Rows, r.Reached = map[Kind]Row{}, map[Step]int{}
	}
	r.Played++
	r.Kept += res.Kept
	if !math.IsNaN(res.Off) {
		r.Off = append(r.Off, res.Off)
	}
	if len(res.Violations) > 0 {
		r.Violated = append(r.Violated, res)
	}
	for m, n := range res.Moves {
		r.Moves[m] += n
	}
	counted := map[Kind]bool{}
	for i, f := range res.Schedule.Faults {
		if !res.Fired[i] {
			continue
		}
		r.Reached[f.Step]++
		if counted[f.Kind] {
			continue
		}
		counted[f.Kind] = true
		row := r.Rows[f.Kind]
		if row.Outcomes == nil {
			row.Outcomes = map[Outcome]int{}
		}
		row.Struck++
		row.Outcomes[res.Outcome]++
		if len(res.Violations) > 0 {
			row.Violations++
		}
		r.Rows[f.Kind] = row
	}
}

// Table is faults × outcomes as Markdown.
func (r *Report) Table() string {
	var b strings.Builder
	all := []Outcome{OutcomeComplete, OutcomeIncomplete, OutcomeUntrimmed, OutcomeNone}
	b.WriteString("| fault | schedules |")
	for _, o := range all {
		fmt.Fprintf(&b, " %s |", o)
	}
	b.WriteString(" violations |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, k := range Kinds {
		row := r.Rows[k]
		fmt.Fprintf(&b, "| %s | %d |", k, row.Struck)
		for _, o := range all {
			fmt.Fprintf(&b, " %d |", row.Outcomes[o])
		}
		fmt.Fprintf(&b, " %d |\n", row.Violations)
	}
	return b.String()
}
