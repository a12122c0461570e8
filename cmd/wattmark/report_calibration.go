package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/measure/calib"
	"wattmark/store"
)

// recordReport is a calibration record that a task follows.
type recordReport struct {
	ID     string     `json:"id"`
	At     *time.Time `json:"at,omitempty"`
	By     string     `json:"by,omitempty"`
	Done   string     `json:"done,omitempty"`
	Remark string     `json:"remark,omitempty"`

	text string // for people
}

// resultReport is one of a task's results.
type resultReport struct {
	Number        int        `json:"number"`
	CalibrationID string     `json:"calibration_id"`
	Computed      *time.Time `json:"computed,omitempty"`
	EnergyJ       *float64   `json:"energy_j"`
	EnergyUJ      *float64   `json:"energy_u_j"`
	InUse         bool       `json:"in_use"`
}

func newResultReports(results []store.ResultInfo) (out []resultReport) {
	for _, r := range results {
		x := resultReport{
			Number: r.Number, CalibrationID: r.CalibrationID, InUse: r.InUse,
			EnergyJ: number(float64(r.Total.Energy)), EnergyUJ: number(float64(r.Total.U)),
		}
		if !r.Computed.IsZero() {
			x.Computed = &r.Computed
		}
		out = append(out, x)
	}
	return out
}

// newRecordReports reads what a task's records say; one of a later version
// shows its id alone.
func newRecordReports(s *measure.Setup) (out []recordReport) {
	for _, c := range s.Records {
		x := recordReport{ID: measure.Printable(c.ID)}
		x.text = "record " + x.ID + ", which this version cannot read"
		if r, err := calib.Parse(c); err == nil {
			x.At, x.By, x.Done, x.Remark = &r.At, measure.Printable(r.By), string(r.Done), measure.Printable(r.Remark)
			x.text = fmt.Sprintf("calibration of %s by %s, record %s (%s)%s", atDay(r.At), x.By, x.ID, x.Done, expired(&r))
		}
		out = append(out, x)
	}
	return out
}

// renderRecords tells which calibration a task follows.
func renderRecords(w io.Writer, r *report) {
	if r.CalibrationID == "" {
		return
	}
	if len(r.Records) == 0 {
		fmt.Fprintf(w, "  scale    nominal: of the instrument and the bench file, no calibration record\n")
	}
	for _, c := range r.Records {
		fmt.Fprintf(w, "  scale    %s\n", c.text)
	}
}

func inUse(r store.ResultInfo) string {
	if r.InUse {
		return " (in use)"
	}
	return ""
}

// renderResults shows the results of a task that was recalculated, with what
// differs from the original.
func renderResults(w io.Writer, r *report) {
	t := newTable(w)
	t.AppendHeader(table.Row{"result", "calibration", "computed", "energy (k = 2)", "against the original"})
	for i, x := range r.Results {
		name := fmt.Sprint(x.Number)
		if x.Number == 1 {
			name += ", original"
		}
		if x.InUse {
			name += ", in use"
		}
		row := table.Row{name, x.CalibrationID, "", "", ""}
		if x.Computed != nil {
			row[2] = x.Computed.Local().Format("2006-01-02 15:04")
		}
		if x.EnergyJ != nil && x.EnergyUJ != nil {
			row[3] = energyText(*x.EnergyJ, *x.EnergyUJ)
			if first := r.Results[0].EnergyJ; i > 0 && first != nil && *first != 0 {
				row[4] = fmt.Sprintf("%+.4g J (%s)", *x.EnergyJ-*first, percent(100*(*x.EnergyJ / *first - 1)))
			}
		}
		t.AppendRow(row)
	}
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 4, Align: text.AlignRight}, {Number: 5, Align: text.AlignRight}})
	t.Render()
}

// taskResult reads one task with the result of a number; 0 for the one in use.
func (a *app) taskResult(ctx context.Context, db *store.DB, arg string, no uint) (*store.Task, error) {
	t, err := a.task(ctx, db, arg)
	if err != nil || no == 0 {
		return t, err
	}
	x, err := db.TaskResult(ctx, t.ID, int(no))
	if errors.Is(err, store.ErrNotFound) {
		return nil, withCode(exitNotFound, fmt.Errorf("task %d has no result %d: wattmark show %d lists them", t.ID, no, t.ID))
	}
	return &x, err
}

// resultFlag lets a command look at another result than the one in use.
func resultFlag(c *cobra.Command, no *uint) {
	c.Flags().UintVar(no, "result", 0, "of a recalculated task, the result of this number (1 is the original; default: the one in use)")
}
