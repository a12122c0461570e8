package processes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what a campaign came to.
type Report struct {
	Asked, Played int
	Took          time.Duration
	Violated      []Result
	rows          map[string]map[string]int // schedules by fault and outcome
}

func (r *Report) add(res Result) {
	r.Played++
	outcome := res.Outcome
	if len(res.Violations) > 0 {
		r.Violated = append(r.Violated, res)
		outcome = violated
	}
	counted := map[string]bool{}
	for _, f := range res.Schedule.Faults {
		if counted[f.name] {
			continue
		}
		counted[f.name] = true
		if r.rows[f.name] == nil {
			r.rows[f.name] = map[string]int{}
		}
		r.rows[f.name][outcome]++
	}
}

const violated = "violations"

// Table is faults × outcomes as Markdown, of those that struck.
func (r *Report) Table() string {
	columns := []string{"complete", "incomplete", "untrimmed", noTask, violated}
	var b strings.Builder
	fmt.Fprintf(&b, "| fault | schedules | %s |\n|---|--:|%s\n", strings.Join(columns, " | "), strings.Repeat("--:|", len(columns)))
	for _, k := range slices.Concat(nearby, between) {
		row := r.rows[k.name]
		if row == nil {
			continue
		}
		total := 0
		for n := range maps.Values(row) {
			total += n
		}
		fmt.Fprintf(&b, "| %s | %d |", k.name, total)
		for _, c := range columns {
			fmt.Fprintf(&b, " %d |", row[c])
		}
		b.WriteString("\n")
	}
	return b.String()
}
