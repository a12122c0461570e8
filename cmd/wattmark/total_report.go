package main

import (
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"wattmark/analysis/job"
	"wattmark/measure"
)

// jobReport is a job's total as our JSON shows it.
type jobReport struct {
	Job      string  `json:"job"`
	EnergyJ  float64 `json:"energy_j"`
	EnergyUJ float64 `json:"energy_u_j"` // k = 2
	// U² = independent² + shared²; AllSharedUJ is what U could be at most.
	IndependentUJ float64           `json:"independent_u_j"`
	SharedUJ      float64           `json:"shared_u_j"`
	AllSharedUJ   float64           `json:"all_shared_u_j"`
	Tasks         int               `json:"tasks_summed"`
	Missing       int               `json:"missing"`
	Expected      int               `json:"expected,omitempty"`
	From          *time.Time        `json:"from,omitempty"`
	To            *time.Time        `json:"to,omitempty"`
	SpanS         float64           `json:"span_s"`
	TogetherS     float64           `json:"together_s"`
	Hosts         []jobHostReport   `json:"hosts"`
	Shared        []jobSharedReport `json:"shared,omitempty"`
	Cautions      []string          `json:"cautions,omitempty"`
}

type jobHostReport struct {
	Host     string          `json:"host"`
	EnergyJ  *float64        `json:"energy_j,omitempty"`
	EnergyUJ *float64        `json:"energy_u_j,omitempty"`
	Tasks    []jobTaskReport `json:"tasks"`
	BusyS    float64         `json:"busy_s"`
	BeforeS  float64         `json:"idle_before_s"`
	BetweenS float64         `json:"idle_between_s"`
	AfterS   float64         `json:"idle_after_s"`
	ByName   bool            `json:"matched_by_name,omitempty"`
	Missing  []string        `json:"missing,omitempty"`
}

type jobTaskReport struct {
	TaskID   int64     `json:"task_id"`
	Name     string    `json:"name"`
	State    string    `json:"state"`
	GPU      string    `json:"gpu,omitempty"`
	UUID     string    `json:"gpu_uuid,omitempty"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	EnergyJ  float64   `json:"energy_j"`
	EnergyUJ float64   `json:"energy_u_j"`
}

// jobSharedReport is an error that several tasks share: host and task of each.
type jobSharedReport struct {
	Source string   `json:"source"`
	By     string   `json:"by"`
	Tasks  []string `json:"tasks"`
	UJ     float64  `json:"u_j"`
}

func newTotalReport(f totalFlags, t *job.Total, hosts []jobHost) *jobReport {
	s := t.Sum
	r := &jobReport{
		Job: f.job, EnergyJ: float64(s.Energy.Energy), EnergyUJ: float64(s.Energy.U), IndependentUJ: float64(s.Independent), SharedUJ: float64(s.Shared),
		AllSharedUJ: float64(s.AllShared), Tasks: t.Tasks, Missing: t.Missing, Expected: f.expect, SpanS: float64(t.Span.Length()), TogetherS: float64(t.Together),
	}
	if t.Tasks > 0 {
		r.From, r.To = &t.Span.From, &t.Span.To
	}
	var names []string // of all tasks, as the sum counts them
	working := 0
	for i := range t.Hosts {
		h := &t.Hosts[i]
		x := newJobHostReport(h, &hosts[i])
		if len(h.Tasks) > 0 {
			working++
		}
		for _, task := range h.Tasks {
			names = append(names, h.Name+" "+task.Name)
		}
		r.Hosts = append(r.Hosts, x)
		r.Cautions = append(r.Cautions, hosts[i].cautions...)
	}
	for _, l := range s.Lines {
		x := jobSharedReport{Source: l.Source, By: l.By, UJ: float64(l.U)}
		for _, p := range l.Parts {
			x.Tasks = append(x.Tasks, names[p])
		}
		r.Shared = append(r.Shared, x)
	}
	if working > 1 && t.Together <= 0 {
		r.Cautions = append(r.Cautions, fmt.Sprintf("the hosts never worked all at once (they missed each other by %v): is it one job, and are their clocks right?", -t.Together))
	}
	if lacking := f.expect - t.Tasks; lacking > 0 {
		r.Missing = max(r.Missing, lacking)
		r.Cautions = append(r.Cautions, fmt.Sprintf("%d tasks of %d that were expected", t.Tasks, f.expect))
	} else if f.expect > 0 && lacking < 0 {
		r.Cautions = append(r.Cautions, fmt.Sprintf("%d tasks, more than the %d that were expected", t.Tasks, f.expect))
	}
	return r
}

func newJobHostReport(h *job.HostTotal, from *jobHost) jobHostReport {
	x := jobHostReport{
		Host: h.Name, Tasks: []jobTaskReport{}, BusyS: float64(h.Busy), BeforeS: float64(h.Before), BetweenS: float64(h.Between), AfterS: float64(h.After),
		ByName: from.byName, Missing: h.Missing,
	}
	if len(h.Tasks) > 0 {
		x.EnergyJ, x.EnergyUJ = number(float64(h.Sum.Energy.Energy)), number(float64(h.Sum.Energy.U))
	}
	for i, t := range h.Tasks {
		own := from.tasks[i]
		total := t.Part.Result.Total
		x.Tasks = append(x.Tasks, jobTaskReport{own.id, own.name, own.state, own.gpu, t.GPU, t.Span.From, t.Span.To, float64(total.Energy), float64(total.U)})
	}
	return x
}

// renderTotal writes a job's total for a person.
func (a *app) renderTotal(r *jobReport) {
	fmt.Fprintf(a.out, "Job %s: ", r.Job)
	if r.Tasks == 0 {
		fmt.Fprintln(a.out, "nothing measured")
	} else {
		hosts := 0
		for _, h := range r.Hosts {
			if len(h.Tasks) > 0 {
				hosts++
			}
		}
		fmt.Fprintf(a.out, "%s (k = 2), %d tasks, %d hosts, %v from %s\n", energyText(r.EnergyJ, r.EnergyUJ), r.Tasks, hosts,
			measure.Seconds(r.SpanS), r.From.Local().Format("2006-01-02 15:04:05"))
	}
	if r.Missing > 0 {
		fmt.Fprintf(a.out, "NOT WHOLE: %d missing; nothing stands in their place\n", r.Missing)
	}
	fmt.Fprintln(a.out)
	t := newTable(a.out)
	t.AppendHeader(table.Row{"host", "tasks", "energy (k = 2)", "busy", "idle before", "between", "after", ""})
	for _, h := range r.Hosts {
		row := table.Row{h.Host, len(h.Tasks), "", "", "", "", "", ""}
		if h.EnergyJ != nil {
			row[2] = energyText(*h.EnergyJ, *h.EnergyUJ)
			for i, s := range []float64{h.BusyS, h.BeforeS, h.BetweenS, h.AfterS} {
				row[3+i] = measure.Seconds(s) // #nosec G602 -- row has eight cells
			}
		}
		if h.ByName {
			row[7] = "by task name: no job there"
		}
		t.AppendRow(row)
	}
	right(t, 2, 3, 4, 5, 6, 7)
	t.Render()
	fmt.Fprintln(a.out)
	for _, h := range r.Hosts {
		for _, m := range h.Missing {
			fmt.Fprintf(a.out, "  missing  %s: %s\n", h.Host, m)
		}
	}
	if r.Tasks > 0 {
		a.renderJobShares(r)
	}
	for _, c := range r.Cautions {
		fmt.Fprintf(a.out, "  caution: %s\n", c)
	}
}

// renderJobShares says what U rests on, and what is not in the sum.
func (a *app) renderJobShares(r *jobReport) {
	fmt.Fprintf(a.out, "  ± U      %v of the tasks' own errors, %v of shared ones; %v if all that does not average out were one error\n",
		measure.Joule(r.IndependentUJ), measure.Joule(r.SharedUJ), measure.Joule(r.AllSharedUJ))
	const most = 4
	for i, l := range r.Shared {
		if i == most {
			fmt.Fprintf(a.out, "  shared   %d more, smaller ones: --json lists them\n", len(r.Shared)-most)
			break
		}
		fmt.Fprintf(a.out, "  shared   %s, by %s: %v over %d tasks\n", l.Source, l.By, measure.Joule(l.UJ), len(l.Tasks))
	}
	if len(r.Hosts) > 1 && r.TogetherS > 0 {
		fmt.Fprintf(a.out, "  times    all hosts at once for %v, by their own clocks; what the GPUs drew while idle is not in the sum\n", measure.Seconds(r.TogetherS))
	}
}
