package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/store"
)

// recordReport is a calibration record in force for a task.
type recordReport struct {
	ID     string     `json:"id"`
	At     *time.Time `json:"at,omitempty"`
	By     string     `json:"by,omitempty"`
	Done   string     `json:"done,omitempty"` // kind of calibration
	Remark string     `json:"remark,omitempty"`

	Text string `json:"-"` // the record in one line
}

// NewRecordReports decodes the calibration records of a task. A record of a later version
// that cannot be decoded has only its ID.
func NewRecordReports(s *measure.Setup) (out []recordReport) {
	for _, c := range s.Records {
		x := recordReport{ID: measure.Printable(c.ID)}
		x.Text = "record " + x.ID + ", which this version cannot read"
		if r, err := calib.Parse(c); err == nil {
			x.At, x.By, x.Done, x.Remark = &r.At, measure.Printable(r.By), string(r.Done), measure.Printable(r.Remark)
			x.Text = fmt.Sprintf("calibration of %s by %s, record %s (%s)%s", cli.AtDay(r.At), x.By, x.ID, x.Done,
				cli.Expired(&r))
		}
		out = append(out, x)
	}
	return out
}

// renderRecords writes the calibration in force, one line per record.
func renderRecords(w io.Writer, r *Report) {
	if r.CalibrationID == "" {
		return
	}
	if len(r.Records) == 0 {
		fmt.Fprintf(w, "  scale    nominal: of the instrument and the bench file, no calibration record\n")
	}
	for _, c := range r.Records {
		fmt.Fprintf(w, "  scale    %s\n", c.Text)
	}
}

// RenderResults writes the results of a recalculated task with their differences from the
// original, in joules and percent.
func RenderResults(w io.Writer, r *Report) {
	t := out.NewTable(w, "result", "calibration", "computed", ">energy (k = 2)", ">against the original")
	for i, x := range r.Results {
		name := fmt.Sprint(x.Number)
		if x.Number == 1 {
			name += ", original"
		}
		if x.InUse {
			name += ", in use"
		}
		row := []any{name, x.CalibrationID, "", "", ""}
		if !x.Computed.IsZero() {
			row[2] = x.Computed.Local().Format("2006-01-02 15:04")
		}
		if measure.Known(x.Energy) && measure.Known(x.U) {
			row[3] = out.Energy(x.Estimate)
			if first := r.Results[0].Energy; i > 0 && measure.Known(first) && first != 0 {
				row[4] = fmt.Sprintf("%+.4g J (%s)", float64(x.Energy-first),
					measure.FormatPercent(100*(float64(x.Energy)/float64(first)-1)))
			}
		}
		t.AppendRow(row)
	}
	t.Render()
}

// TaskResult reads the task that arg numbers, with its result number no; 0 for the one in
// use. A task or result that does not exist has the exit code 4.
func TaskResult(a *cli.App, ctx context.Context, db *store.DB, arg string, no uint) (*store.Task, error) {
	t, err := a.Task(ctx, db, arg)
	if err != nil || no == 0 {
		return t, err
	}
	x, err := db.TaskResult(ctx, t.ID, int(no))
	if errors.Is(err, store.ErrNotFound) {
		return nil, cli.NotFoundf("task %d has no result %d: wattmark show %d lists them", t.ID, no, t.ID)
	}
	return &x, err
}

// ResultFlag adds --result, which selects another result than the one in use.
func ResultFlag(c *cobra.Command, no *uint) {
	c.Flags().UintVar(no, "result", 0,
		"of a recalculated task, the result of this number (1 is the original; default: the one in use)")
}
