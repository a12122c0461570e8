package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/store"
)

// conditionReport is the GPU's condition just before and just after the work.
type conditionReport struct {
	Before *conditionPoint `json:"before"`
	After  *conditionPoint `json:"after"`
}

// conditionPoint is one reading of the GPU's sensors.
type conditionPoint struct {
	SMClock     measure.Hertz  `json:"sm_clock_hz,omitzero"`
	MemoryClock measure.Hertz  `json:"memory_clock_hz,omitzero"`
	Temperature measure.Number `json:"temperature_c,omitzero"`
	ThrottledBy []string       `json:"throttled_by,omitempty"`
}

// addCondition adds the GPU's clocks, temperature and throttling before and after the work,
// if they were recorded.
func (r *Report) addCondition(ctx context.Context, db *store.DB) error {
	readings, err := db.Readings(ctx, store.TaskID(r.TaskID))
	if err != nil {
		return err
	}
	c := sensor.Conditions(readings)
	if len(c) == 0 {
		return nil
	}
	point := func(c sensor.ConditionAt) *conditionPoint {
		return &conditionPoint{c.SM, c.Memory, measure.Number(c.Temperature), c.Throttled()}
	}
	r.Condition = &conditionReport{Before: point(c[0])}
	if len(c) > 1 {
		r.Condition.After = point(c[len(c)-1])
	}
	return nil
}

// String returns the condition on one line.
func (c *conditionReport) String() string {
	before, after := c.Before, c.After
	if after == nil {
		nan := math.NaN()
		after = &conditionPoint{measure.Hertz(nan), measure.Hertz(nan), measure.Number(nan), nil}
	}
	degrees := func(v measure.Number) string { return fmt.Sprintf("%.0f °C", v) }
	parts := []string{
		change("SM ", before.SMClock, after.SMClock, measure.Hertz.String),
		change("memory ", before.MemoryClock, after.MemoryClock, measure.Hertz.String),
		change("", before.Temperature, after.Temperature, degrees),
	}
	switch {
	case c.After == nil:
	case len(after.ThrottledBy) > 0:
		parts = append(parts, "throttled by "+strings.Join(after.ThrottledBy, " and "))
	default:
		parts = append(parts, "not throttled")
	}
	return out.JoinNonEmpty(", ", parts...)
}

// change returns a quantity before and after the work, "name A → B", or one value if both
// print alike or one is not known; empty if both are not.
func change[T ~float64](name string, before, after T, show func(T) string) string {
	switch {
	case !measure.Known(before) && !measure.Known(after):
		return ""
	case !measure.Known(before):
		return name + show(after)
	case !measure.Known(after) || show(after) == show(before):
		return name + show(before)
	}
	return name + show(before) + " → " + show(after)
}

// Provenance collects host, versions, working directory, Git commit and command line of the
// present process, as stored with a new task. redact hides the measured program's arguments.
func Provenance(a *cli.App, ctx context.Context, redact bool) *store.Provenance {
	return measurement.CollectProvenance(ctx, cli.Version(), CommandLine(a, redact))
}

// CommandLine returns the words of the command line, with secrets in URLs concealed. With
// redact the arguments of the measured program (behind "--") are replaced by a placeholder;
// its name stays.
func CommandLine(a *cli.App, redact bool) []string {
	words := append([]string{"wattmark"}, a.Args...)
	if end := slices.Index(words, "--"); redact && end >= 0 && end+2 < len(words) {
		words = append(words[:end+2:end+2], measurement.HiddenWords)
	}
	for i, w := range words {
		words[i] = measurement.ConcealWord(w)
	}
	return words
}

// provenanceReport is the origin of a measurement. GitDirty is null outside a Git work tree.
type provenanceReport struct {
	Host           string   `json:"host,omitempty"`
	OS             string   `json:"os,omitempty"`
	Version        string   `json:"wattmark_version,omitempty"`
	MonitorVersion string   `json:"monitor_version,omitempty"`
	Directory      string   `json:"directory,omitempty"`
	GitCommit      string   `json:"git_commit,omitempty"`
	GitDirty       *bool    `json:"git_dirty,omitempty"`
	Command        []string `json:"command,omitempty"`
	TraceID        string   `json:"trace_id,omitempty"`
}

// newProvenanceReport returns the report of a provenance; nil for nil.
func newProvenanceReport(p *store.Provenance) *provenanceReport {
	if p == nil {
		return nil
	}
	r := &provenanceReport{
		p.Host, p.OS, p.Version, p.MonitorVersion, p.Directory, p.GitCommit, nil, p.Command, p.TraceID,
	}
	if p.GitCommit != "" {
		r.GitDirty = &p.GitDirty
	}
	return r
}

// render writes the provenance as text.
func (r *provenanceReport) render(w io.Writer) {
	if r == nil {
		return
	}
	where := out.JoinNonEmpty(":", r.Host, r.Directory)
	if r.GitCommit != "" {
		where += ", commit " + r.GitCommit[:min(12, len(r.GitCommit))]
		if *r.GitDirty {
			where += " with changes"
		}
	}
	fmt.Fprintf(w, "  from     %s; wattmark %s, at the meter %s\n", where, r.Version,
		cmp.Or(r.MonitorVersion, "unknown"))
	if len(r.Command) > 0 {
		fmt.Fprintf(w, "  by       %s\n", cli.ShellWords(r.Command))
	}
	if r.TraceID != "" {
		fmt.Fprintf(w, "  trace    %s\n", r.TraceID)
	}
}

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
