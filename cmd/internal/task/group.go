package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// GroupReport is the JSON of a measurement of several GPUs: one member per GPU, each with
// its task, and the total over all of them. Energies are in joules, uncertainties expanded
// (k = 2), powers in watts.
type GroupReport struct {
	GroupID  int64          `json:"group_id"`
	Name     string         `json:"name"`
	User     string         `json:"user"`
	State    string         `json:"state"`
	Database string         `json:"database"`
	Launched time.Time      `json:"launched"`
	GPUs     []memberReport `json:"gpus"`
	// Total covers the GPUs that have a result; nil if none has.
	Total *totalReport `json:"total,omitempty"`
}

// memberReport is one GPU of a group.
type memberReport struct {
	GPU     string         `json:"gpu"`
	UUID    string         `json:"gpu_uuid"`
	Monitor string         `json:"monitor,omitempty"`
	Reason  string         `json:"reason,omitempty"` // why there is no task
	Task    *report.Report `json:"task,omitempty"`
}

// totalReport is the sum over the GPUs that have a result. Errors with a common cause, such
// as one meter for several GPUs, add linearly; the GPUs' own errors add in quadrature.
type totalReport struct {
	EnergyJ  float64 `json:"energy_j"`
	EnergyUJ float64 `json:"energy_u_j"` // k = 2
	// U² = independent² + shared². AllSharedUJ is the upper bound of U: the value if all
	// systematic errors were one.
	IndependentUJ float64        `json:"independent_u_j"`
	SharedUJ      float64        `json:"shared_u_j"`
	AllSharedUJ   float64        `json:"all_shared_u_j"`
	MeanW         float64        `json:"mean_w"`
	GPUs          int            `json:"gpus_summed"`
	Missing       int            `json:"gpus_missing"`
	Shared        []sharedReport `json:"shared,omitempty"`
}

// sharedReport is one error that several GPUs have in common.
type sharedReport struct {
	Source string  `json:"source"` // the line of the uncertainty budget
	By     string  `json:"by"`     // the common cause, as an instrument
	GPUs   []int   `json:"gpus"`   // counted from 0
	UJ     float64 `json:"u_j"`
}

// newGroupReport returns the report of a group; db is the database's name for display, made
// absolute if it is a file.
func newGroupReport(g *measurement.GroupResult, db string) *GroupReport {
	if abs, err := filepath.Abs(db); err == nil && !store.OnServer(db) {
		db = abs
	}
	r := &GroupReport{
		GroupID: int64(g.ID), Name: g.Name, User: g.User, State: g.State.String(), Database: db, Launched: g.Launched,
	}
	// A member without a task carries the reason; a task carries its own.
	for i, m := range g.Members {
		x := memberReport{GPU: m.GPU, UUID: m.GPUUUID, Monitor: m.Monitor, Reason: m.Reason}
		switch t := g.Tasks[i]; {
		case t != nil:
			x.Task = report.NewReport(t, db)
		case x.Reason == "":
			x.Reason = "its capture has not begun"
		}
		r.GPUs = append(r.GPUs, x)
	}
	if len(g.Summed) == 0 { // no member has a result: no total, rather than one of zero
		return r
	}
	s := g.Sum
	r.Total = &totalReport{
		EnergyJ: float64(s.Energy.Energy), EnergyUJ: float64(s.Energy.U), IndependentUJ: float64(s.Independent),
		SharedUJ: float64(s.Shared), AllSharedUJ: float64(s.AllShared), MeanW: float64(s.Mean), GPUs: len(g.Summed),
		Missing: len(g.Members) - len(g.Summed),
	}
	for _, l := range s.Lines {
		// Parts count the summed GPUs; the report counts all GPUs of the group.
		members := make([]int, len(l.Parts))
		for i, p := range l.Parts {
			members[i] = g.Summed[p]
		}
		r.Total.Shared = append(r.Total.Shared, sharedReport{l.Source, l.By, members, float64(l.U)})
	}
	return r
}

// ShowGroup prints a group. With measured, at the end of a measurement, a group that is not
// complete is an error with the exit code 3.
func ShowGroup(ctx context.Context, a *cli.App, db *store.DB, id store.GroupID, measured bool) error {
	g, err := measurement.ReadGroup(ctx, db, id)
	if errors.Is(err, store.ErrNotFound) {
		return cli.NotFoundf("no group %d in %s: wattmark tasks shows the groups of tasks", id, a.DB)
	}
	if err != nil {
		return err
	}
	r := newGroupReport(&g, a.DB)
	err = a.Print(r, func(w io.Writer) { renderGroup(w, r) })
	if err == nil && measured && g.State != store.Complete {
		err = cli.WithCode(cli.ExitIncomplete,
			fmt.Errorf("group %d is %s: wattmark show --group %d says what is missing", id, r.State, id))
	}
	return err
}

// renderGroup writes the group as text: one row per GPU with the total as the footer, then
// the reasons of members that were not measured or are incomplete, then the uncertainty.
func renderGroup(w io.Writer, r *GroupReport) {
	fmt.Fprintf(w, "Group %d  %s, by %s: %s\n\n", r.GroupID, r.Name, r.User, r.State)
	t := out.NewTable(w)
	t.AppendHeader(table.Row{"GPU", "name", "UUID", "task", "state", "duration", "energy (k = 2)", "mean"})
	for i, m := range r.GPUs {
		// Cells of a task without a result stay empty.
		row := table.Row{i, m.GPU, m.UUID, "", "not measured", "", "", ""}
		if x := m.Task; x != nil {
			row[3], row[4] = x.TaskID, x.State
			if x.EnergyJ != nil && x.EnergyUJ != nil {
				row[5], row[6], row[7] = measure.Seconds(*x.DurationS), out.EnergyText(*x.EnergyJ, *x.EnergyUJ),
					measure.Watt(*x.MeanW)
			}
		}
		t.AppendRow(row)
	}
	if s := r.Total; s != nil {
		what := "total"
		if s.Missing > 0 {
			what = fmt.Sprintf("total of %d of %d GPUs", s.GPUs, s.GPUs+s.Missing)
		}
		t.AppendFooter(table.Row{
			"", what, "", "", "", "", out.EnergyText(s.EnergyJ, s.EnergyUJ),
			measure.Watt(s.MeanW),
		})
	}
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 7, Align: text.AlignRight, AlignFooter: text.AlignRight},
		{Number: 8, Align: text.AlignRight, AlignFooter: text.AlignRight},
	})
	t.Render()
	fmt.Fprintln(w)
	for i, m := range r.GPUs {
		switch {
		case m.Task == nil:
			fmt.Fprintf(w, "  GPU %d    not measured: %s\n", i, m.Reason)
		case m.Task.Reason != "":
			fmt.Fprintf(w, "  GPU %d    task %d: %s\n", i, m.Task.TaskID, m.Task.Reason)
		}
	}
	if s := r.Total; s != nil {
		renderShared(w, s)
	}
}

// renderShared writes the parts of the total's uncertainty: independent, shared, and the
// upper bound.
func renderShared(w io.Writer, s *totalReport) {
	fmt.Fprintf(w, "  ± U      %v of the GPUs' own errors", measure.Joule(s.IndependentUJ))
	if len(s.Shared) == 0 {
		fmt.Fprint(w, ", none shared")
	} else {
		fmt.Fprintf(w, ", %v of shared ones", measure.Joule(s.SharedUJ))
	}
	fmt.Fprintf(w, "; %v if all that does not average out were one error\n", measure.Joule(s.AllSharedUJ))
	for _, l := range s.Shared {
		fmt.Fprintf(w, "  shared   %s, by %s: %v over GPUs %v\n", l.Source, l.By, measure.Joule(l.UJ), l.GPUs)
	}
}
