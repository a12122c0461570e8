package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"wattmark/hostagent/measurement"
	"wattmark/measure"
	"wattmark/store"
)

// groupReport is a measurement of several GPUs as our JSON shows it.
type groupReport struct {
	GroupID  int64          `json:"group_id"`
	Name     string         `json:"name"`
	User     string         `json:"user"`
	State    string         `json:"state"`
	Database string         `json:"database"`
	Launched time.Time      `json:"launched"`
	GPUs     []memberReport `json:"gpus"`
	// Total is over the GPUs that have a result; nil where none has.
	Total *totalReport `json:"total,omitempty"`
}

type memberReport struct {
	GPU     string  `json:"gpu"`
	UUID    string  `json:"gpu_uuid"`
	Monitor string  `json:"monitor,omitempty"`
	Reason  string  `json:"reason,omitempty"` // why there is no task
	Task    *report `json:"task,omitempty"`
}

type totalReport struct {
	EnergyJ  float64 `json:"energy_j"`
	EnergyUJ float64 `json:"energy_u_j"` // k = 2
	// U² = independent² + shared²; AllSharedUJ is what U could be at most.
	IndependentUJ float64        `json:"independent_u_j"`
	SharedUJ      float64        `json:"shared_u_j"`
	AllSharedUJ   float64        `json:"all_shared_u_j"`
	MeanW         float64        `json:"mean_w"`
	GPUs          int            `json:"gpus_summed"`
	Missing       int            `json:"gpus_missing"`
	Shared        []sharedReport `json:"shared,omitempty"`
}

type sharedReport struct {
	Source string  `json:"source"`
	By     string  `json:"by"`
	GPUs   []int   `json:"gpus"` // counted from 0
	UJ     float64 `json:"u_j"`
}

func newGroupReport(g *measurement.GroupResult, db string) *groupReport {
	if abs, err := filepath.Abs(db); err == nil && !store.OnServer(db) {
		db = abs
	}
	r := &groupReport{GroupID: int64(g.ID), Name: g.Name, User: g.User, State: stateNames[g.State], Database: db, Launched: g.Launched}
	for i, m := range g.Members {
		x := memberReport{GPU: m.GPU, UUID: m.GPUUUID, Monitor: m.Monitor, Reason: m.Reason}
		switch t := g.Tasks[i]; {
		case t != nil:
			x.Task = newReport(t, db)
		case x.Reason == "":
			x.Reason = "its capture has not begun"
		}
		r.GPUs = append(r.GPUs, x)
	}
	if len(g.Summed) == 0 {
		return r
	}
	s := g.Sum
	r.Total = &totalReport{
		EnergyJ: float64(s.Energy.Energy), EnergyUJ: float64(s.Energy.U), IndependentUJ: float64(s.Independent), SharedUJ: float64(s.Shared),
		AllSharedUJ: float64(s.AllShared), MeanW: float64(s.Mean), GPUs: len(g.Summed), Missing: len(g.Members) - len(g.Summed),
	}
	for _, l := range s.Lines {
		members := make([]int, len(l.Parts))
		for i, p := range l.Parts {
			members[i] = g.Summed[p]
		}
		r.Total.Shared = append(r.Total.Shared, sharedReport{l.Source, l.By, members, float64(l.U)})
	}
	return r
}

// showGroup prints a group. After a measurement, one that is not complete is an
// error.
func (a *app) showGroup(ctx context.Context, db *store.DB, id store.GroupID, measured bool) error {
	g, err := measurement.ReadGroup(ctx, db, id)
	if errors.Is(err, store.ErrNotFound) {
		return withCode(exitNotFound, fmt.Errorf("no group %d in %s: wattmark tasks shows the groups of tasks", id, a.db))
	}
	if err != nil {
		return err
	}
	r := newGroupReport(&g, a.db)
	if a.json {
		err = a.printJSON(r)
	} else {
		a.renderGroup(r)
	}
	if err == nil && measured && g.State != store.Complete {
		err = withCode(exitIncomplete, fmt.Errorf("group %d is %s: wattmark show --group %d says what is missing", id, r.State, id))
	}
	return err
}

func (a *app) renderGroup(r *groupReport) {
	fmt.Fprintf(a.out, "Group %d  %s, by %s: %s\n\n", r.GroupID, r.Name, r.User, r.State)
	t := newTable(a.out)
	t.AppendHeader(table.Row{"GPU", "name", "UUID", "task", "state", "duration", "energy (k = 2)", "mean"})
	for i, m := range r.GPUs {
		row := table.Row{i, m.GPU, m.UUID, "", "not measured", "", "", ""}
		if x := m.Task; x != nil {
			row[3], row[4] = x.TaskID, x.State
			if x.EnergyJ != nil && x.EnergyUJ != nil {
				row[5], row[6], row[7] = measure.Seconds(*x.DurationS), energyText(*x.EnergyJ, *x.EnergyUJ), measure.Watt(*x.MeanW)
			}
		}
		t.AppendRow(row)
	}
	if s := r.Total; s != nil {
		what := "total"
		if s.Missing > 0 {
			what = fmt.Sprintf("total of %d of %d GPUs", s.GPUs, s.GPUs+s.Missing)
		}
		t.AppendFooter(table.Row{"", what, "", "", "", "", energyText(s.EnergyJ, s.EnergyUJ), measure.Watt(s.MeanW)})
	}
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 7, Align: text.AlignRight, AlignFooter: text.AlignRight}, {Number: 8, Align: text.AlignRight, AlignFooter: text.AlignRight},
	})
	t.Render()
	fmt.Fprintln(a.out)
	for i, m := range r.GPUs {
		switch {
		case m.Task == nil:
			fmt.Fprintf(a.out, "  GPU %d    not measured: %s\n", i, m.Reason)
		case m.Task.Reason != "":
			fmt.Fprintf(a.out, "  GPU %d    task %d: %s\n", i, m.Task.TaskID, m.Task.Reason)
		}
	}
	if s := r.Total; s != nil {
		a.renderShared(s)
	}
}

// renderShared says what the total's uncertainty rests on.
func (a *app) renderShared(s *totalReport) {
	fmt.Fprintf(a.out, "  ± U      %v of the GPUs' own errors", measure.Joule(s.IndependentUJ))
	if len(s.Shared) == 0 {
		fmt.Fprint(a.out, ", none shared")
	} else {
		fmt.Fprintf(a.out, ", %v of shared ones", measure.Joule(s.SharedUJ))
	}
	fmt.Fprintf(a.out, "; %v if all that does not average out were one error\n", measure.Joule(s.AllSharedUJ))
	for _, l := range s.Shared {
		fmt.Fprintf(a.out, "  shared   %s, by %s: %v over GPUs %v\n", l.Source, l.By, measure.Joule(l.UJ), l.GPUs)
	}
}
