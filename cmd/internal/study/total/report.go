package total

import (
	"fmt"
	"io"
	"time"

	"github.com/wattmark/wattmark/analysis/job"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
)

// JobReport is the total of a job. Energies are in joules, U is expanded (k = 2).
type JobReport struct {
	Job              string `json:"job"`
	measure.Estimate        // of all tasks
	// U² = independent² + shared². AllShared is the upper bound of U, where all
	// systematic errors were one.
	Independent measure.Joule `json:"independent_u_j"`
	Shared      measure.Joule `json:"shared_u_j"`
	AllShared   measure.Joule `json:"all_shared_u_j"`
	Tasks       int           `json:"tasks_summed"`
	// tasks that are not in the sum
	Missing  int       `json:"missing"`
	Expected int       `json:"expected,omitempty"`
	From     time.Time `json:"from,omitzero"`
	To       time.Time `json:"to,omitzero"`
	// from the first begin to the last end, and the time with all hosts at work
	Span     measure.Seconds   `json:"span_s"`
	Together measure.Seconds   `json:"together_s"`
	Hosts    []jobHostReport   `json:"hosts"`
	Lines    []jobSharedReport `json:"shared,omitempty"`
	Cautions []string          `json:"cautions,omitempty"`
}

// jobHostReport is one source: its sum, the times at which its GPUs were idle within the
// job, and its missing tasks. The energy is left out where it has no task.
type jobHostReport struct {
	Host              string          `json:"host"`
	*measure.Estimate                 // of its tasks
	Tasks             []jobTaskReport `json:"tasks"`
	// time at work, and idle before, between and after its tasks
	Busy    measure.Seconds `json:"busy_s"`
	Before  measure.Seconds `json:"idle_before_s"`
	Between measure.Seconds `json:"idle_between_s"`
	After   measure.Seconds `json:"idle_after_s"`
	// matched by task name: no task of the source carries the job
	ByName  bool     `json:"matched_by_name,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// jobTaskReport is one task in the sum.
type jobTaskReport struct {
	jobTask
	UUID string    `json:"gpu_uuid,omitempty"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	measure.Estimate
}

// jobSharedReport is an error that several tasks share; Tasks names host and task of
// each.
type jobSharedReport struct {
	Source string        `json:"source"`
	By     string        `json:"by"`
	Tasks  []string      `json:"tasks"`
	U      measure.Joule `json:"u_j"`
}

// newTotalReport builds the report of a total. hosts are the sources in the order of
// t.Hosts.
func newTotalReport(f totalFlags, t *job.Total, hosts []jobHost) *JobReport {
	s := t.Sum
	r := &JobReport{
		Job: f.job, Estimate: s.Energy, Independent: s.Independent, Shared: s.Shared, AllShared: s.AllShared,
		Tasks: t.Tasks, Missing: t.Missing, Expected: f.expect, From: t.Span.From, To: t.Span.To,
		Span: t.Span.Length(), Together: t.Together,
	}
	var names []string // host and task, by the index of the part in the sum
	working := 0
	for i := range t.Hosts {
		h, from := &t.Hosts[i], &hosts[i]
		x := jobHostReport{
			Host: h.Name, Tasks: []jobTaskReport{}, Busy: h.Busy, Before: h.Before, Between: h.Between, After: h.After,
			ByName: from.byName, Missing: h.Missing,
		}
		if len(h.Tasks) > 0 {
			x.Estimate = &h.Sum.Energy
			working++
		}
		for i, t := range h.Tasks {
			names = append(names, h.Name+" "+t.Name)
			x.Tasks = append(x.Tasks, jobTaskReport{from.tasks[i], t.GPU, t.Span.From, t.Span.To, t.Part.Result.Total})
		}
		r.Hosts = append(r.Hosts, x)
		r.Cautions = append(r.Cautions, from.cautions...)
	}
	for _, l := range s.Lines {
		x := jobSharedReport{Source: l.Source, By: l.By, U: l.U}
		for _, p := range l.Parts {
			x.Tasks = append(x.Tasks, names[p])
		}
		r.Lines = append(r.Lines, x)
	}
	if working > 1 && t.Together <= 0 {
		r.Cautions = append(r.Cautions, fmt.Sprintf("the hosts never worked all at once (they missed each other by "+
			"%v): is it one job, and are their clocks right?", -t.Together))
	}
	// The larger of both counts: a task may be lacking without a known reason.
	if lacking := f.expect - t.Tasks; lacking > 0 {
		r.Missing = max(r.Missing, lacking)
		r.Cautions = append(r.Cautions, fmt.Sprintf("%d tasks of %d that were expected", t.Tasks, f.expect))
	} else if f.expect > 0 && lacking < 0 {
		r.Cautions = append(r.Cautions, fmt.Sprintf("%d tasks, more than the %d that were expected", t.Tasks, f.expect))
	}
	return r
}

// render writes the report as text: the sum, the table of hosts, missing tasks,
// shares of the uncertainty and cautions.
func (r *JobReport) render(w io.Writer) {
	fmt.Fprintf(w, "Job %s: ", r.Job)
	if r.Tasks == 0 {
		fmt.Fprintln(w, "nothing measured")
	} else {
		hosts := 0
		for _, h := range r.Hosts {
			if len(h.Tasks) > 0 {
				hosts++
			}
		}
		fmt.Fprintf(w, "%s (k = 2), %d tasks, %d hosts, %v from %s\n", out.Energy(r.Estimate), r.Tasks, hosts, r.Span,
			r.From.Local().Format("2006-01-02 15:04:05"))
	}
	if r.Missing > 0 {
		fmt.Fprintf(w, "NOT WHOLE: %d missing; nothing stands in their place\n", r.Missing)
	}
	fmt.Fprintln(w)
	out.Table(w, out.Row{"host", ">tasks", ">energy (k = 2)", ">busy", ">idle before", ">between", ">after", ""},
		r.Hosts, func(h jobHostReport) out.Row {
			name := ""
			if h.ByName {
				name = "by task name: no job there"
			}
			if h.Estimate == nil {
				return out.Row{h.Host, len(h.Tasks), "", "", "", "", "", name}
			}
			return out.Row{h.Host, len(h.Tasks), out.Energy(*h.Estimate), h.Busy, h.Before, h.Between, h.After, name}
		})
	fmt.Fprintln(w)
	for _, h := range r.Hosts {
		for _, m := range h.Missing {
			fmt.Fprintf(w, "  missing  %s: %s\n", h.Host, m)
		}
	}
	if r.Tasks > 0 {
		r.renderShares(w)
	}
	for _, c := range r.Cautions {
		fmt.Fprintf(w, "  caution: %s\n", c)
	}
}

// renderShares writes the parts of U, the largest shared errors, and the time at which
// all hosts worked at once.
func (r *JobReport) renderShares(w io.Writer) {
	fmt.Fprintf(w, "  ± U      %v of the tasks' own errors, %v of shared ones; %v if all that does not average "+
		"out were one error\n", r.Independent, r.Shared, r.AllShared)
	const most = 4
	for _, l := range r.Lines[:min(most, len(r.Lines))] {
		fmt.Fprintf(w, "  shared   %s, by %s: %v over %d tasks\n", l.Source, l.By, l.U, len(l.Tasks))
	}
	if more := len(r.Lines) - most; more > 0 {
		fmt.Fprintf(w, "  shared   %d more, smaller ones: --json lists them\n", more)
	}
	if len(r.Hosts) > 1 && r.Together > 0 {
		fmt.Fprintf(w, "  times    all hosts at once for %v, by their own clocks; what the GPUs drew while "+
			"idle is not in the sum\n", r.Together)
	}
}
