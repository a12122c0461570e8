package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/machine"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/measure/wall"
	"github.com/wattmark/wattmark/store"
)

// renderLargest writes the largest contribution to the total's uncertainty, if there is one.
func renderLargest(w io.Writer, budget []measure.Contribution) {
	if len(budget) > 0 {
		c := slices.MaxFunc(budget, func(x, y measure.Contribution) int { return cmp.Compare(x.U, y.U) })
		fmt.Fprintf(w, "  ± U      owes most to %s, %v (k = 1)\n", c.Source, c.U)
	}
}

// RenderReport writes a task as text, without plot, kernels and budget.
func RenderReport(w io.Writer, r *Report) {
	fmt.Fprintf(w, "Task %d  %s, by %s: %s\n", r.TaskID, r.Name, r.User, r.State)
	if r.Reason != "" {
		fmt.Fprintf(w, "  why      %s\n", r.Reason)
	}
	if r.GPU != "" {
		fmt.Fprintf(w, "  GPU      %s\n", out.JoinNonEmpty(", driver ", r.GPU, r.Driver))
	}
	if r.Condition != nil {
		fmt.Fprintf(w, "  it was   %v\n", r.Condition)
	}
	if r.Instrument != "" {
		fmt.Fprintf(w, "  meter    %s, %v, bench %s\n", r.Instrument, out.RateText(r.Rate), r.Bench)
	}
	renderRecords(w, r)
	renderLabels(w, r)
	if r.DurationS != nil {
		fmt.Fprintf(w, "  window   %v, %s, %s\n", measure.Seconds(*r.DurationS), measure.Plural(r.Samples, "sample"),
			out.GapText(r.Gaps, r.Lost))
	}
	if len(r.Rails) > 0 {
		fmt.Fprintln(w)
		renderRails(w, r)
	}
	if len(r.Results) > 1 {
		fmt.Fprintf(w, "\nShown above is result %d. All of them:\n", r.ResultNumber)
		RenderResults(w, r)
	}
	if len(r.Missing) > 0 {
		fmt.Fprintf(w, "\nNot measured: %s. The card draws more than the total above.\n", strings.Join(r.Missing, ", "))
	}
	if r.Caution != "" {
		fmt.Fprintf(w, "\nCaution: %s.\n", r.Caution)
	}
	fmt.Fprintln(w)
	r.Tiny.render(w)
	if q := r.Quality; q != nil {
		fmt.Fprintf(w, "  quality  %s\n", q.Level)
		for _, reason := range q.Reasons {
			fmt.Fprintf(w, "           %s (%s): %s\n", reason.Level, reason.Cause, reason.Text)
		}
	}
	renderComparison(w, r)
	renderMarkers(w, r)
	for _, e := range r.Events {
		if e.Kind != measure.EventThinned.String() {
			fmt.Fprintf(w, "  event    %s at scan %d: %s\n", e.Kind, e.FirstScan, e.Detail)
		}
	}
	RenderMethods(w, r.Methods, "the meter")
	renderWhole(w, r)
	if len(r.Machine) > 0 {
		fmt.Fprintln(w, "\nBeside the card, by the machine's own sensors (± U without their error, which nobody states):")
		out.Table(w, out.Row{"sensor", ">energy (k = 2)", ">mean", ">readings"}, r.Machine, func(u machine.Use) out.Row {
			return out.Row{u.Name, out.EnergyText(u.Energy, u.U), u.Mean, u.Readings}
		})
	}
}

// RenderAnswer ends a report on a terminal with its answer, for the table of energy has scrolled away by then.
func RenderAnswer(w io.Writer, r *Report) {
	text := r.State
	switch {
	case !out.IsTerminal(w):
		return
	case r.Tiny != nil:
		text = out.EnergyText(r.Tiny.Energy, r.Tiny.EnergyU) + " a launch"
	case r.EnergyJ != nil && r.DurationS != nil:
		text = fmt.Sprintf("%s in %v", out.EnergyText(*r.EnergyJ, *r.EnergyUJ), measure.Seconds(*r.DurationS))
	}
	if r.Quality != nil {
		text += fmt.Sprintf(", quality %s", r.Quality.Level)
	}
	fmt.Fprintf(w, "\nTask %d  %s: %s\n", r.TaskID, r.Name, text)
}

// renderWhole writes what the whole machine took at its wall.
func renderWhole(w io.Writer, r *Report) {
	x := r.Whole
	if r.WallTrouble != "" {
		fmt.Fprintf(w, "\nWhole machine: %s.\n", r.WallTrouble)
	}
	if x == nil {
		return
	}
	fmt.Fprintf(w, "\nWhole machine, at the wall (%d updates within the window):\n", x.Updates)
	t := out.NewTable(w, "", ">energy (k = 2)", ">mean")
	t.AppendRow([]any{"wall", out.EnergyText(x.Wall.Energy, x.Wall.U), x.WallMean})
	t.AppendRow([]any{"rest of the machine", out.EnergyText(x.Rest.Energy, x.Rest.U), x.RestMean})
	t.Render()
	if x.Late.Duration().Abs() > 3*wall.UTime.Duration() {
		fmt.Fprintf(w,
			"  Its readings came %v ± %v (k = 1) late, as the steps of the card's power show: that is corrected.\n",
			x.Late.Duration().Round(time.Millisecond), x.ULate.Duration().Round(time.Millisecond))
	}
	fmt.Fprintln(w, "  The rest is all but the card's measured rails: what the power supply loses for the card, too.")
	renderLargest(w, x.Budget)
}

// renderRails writes the energy by rail; with several rails the footer is their total.
func renderRails(w io.Writer, r *Report) {
	t := out.NewTable(w, "rail", ">energy (k = 2)", ">mean", ">peak")
	row := func(name string, e, u, mean, peak float64) []any {
		return []any{name, out.EnergyText(e, u), measure.Watt(mean), measure.Watt(peak)}
	}
	for _, x := range r.Rails {
		t.AppendRow(row(x.Name, x.EnergyJ, x.EnergyUJ, x.MeanW, x.PeakW))
	}
	if len(r.Rails) > 1 && r.EnergyJ != nil {
		t.AppendFooter(row("total", *r.EnergyJ, *r.EnergyUJ, *r.MeanW, *r.PeakW))
	}
	t.Render()
}

// renderComparison writes the largest source of uncertainty and, if known, the differences
// from the true energy of an emulated board and from the GPU's own sensor (NVML).
func renderComparison(w io.Writer, r *Report) {
	renderLargest(w, r.Budget)
	if r.TruthJ != nil && r.EnergyJ != nil {
		verdict := InsideText(measure.Estimate{Energy: measure.Joule(*r.EnergyJ), U: measure.Joule(*r.EnergyUJ)}, *r.TruthJ)
		fmt.Fprintf(w, "  truth    %.2f J injected by the emulated board: error %s, %s\n", *r.TruthJ,
			measure.FormatPercent(*r.ErrorPct), verdict)
		fmt.Fprintf(w, "           tests %s\n", strings.ReplaceAll(r.Tests, "; ", ";\n           "))
	}
	if r.NVMLJ != nil {
		library, method := "NVML", cmp.Or(r.NVMLMethod, "the GPU's own sensor")
		if strings.HasPrefix(r.GPU, "AMD ") { // its registers are stored under NVML's names
			library, method = "AMD SMI", strings.TrimPrefix(method, "nvml.")
		}
		fmt.Fprintf(w, "  %-7s  %.2f J by %s", library, *r.NVMLJ, method)
		if r.EnergyJ != nil && *r.EnergyJ != 0 {
			fmt.Fprintf(w, ": %s against the meter", measure.FormatPercent(100*(*r.NVMLJ / *r.EnergyJ - 1)))
		}
		fmt.Fprintln(w)
	}
}

// InsideText returns whether ± U of an energy includes an exactly known one, as text.
func InsideText(e measure.Estimate, truth float64) string {
	agreement := e.Against(measure.Estimate{Energy: measure.Joule(truth)}, 0)
	return map[bool]string{true: "inside", false: "outside"}[agreement == measure.Agrees] + " of ± U"
}

// renderMarkers writes the two markers and the clock fit from their edges.
func renderMarkers(w io.Writer, r *Report) {
	if r.unmarked {
		return
	}
	for _, m := range []struct {
		name string
		m    *MarkerReport
	}{{"start", r.Markers.Start}, {"stop", r.Markers.Stop}} {
		if m.m == nil {
			fmt.Fprintf(w, "  marker   %-5s not found\n", m.name)
			continue
		}
		note := map[bool]string{true: ", by the plain up-down pattern"}[m.m.Fallback]
		if !m.m.TagOK {
			note += ", tag not read"
		}
		fmt.Fprintf(w, "  marker   %-5s at %.6f s ± %v (k = 1), correlation %.3f, PSLR %.1f dB, step %v%s\n",
			m.name, m.m.TS, measure.Seconds(m.m.US), m.m.Correlation, m.m.PSLRdB, measure.Watt(m.m.StepW), note)
	}
	if c := r.Clock; c != nil {
		fmt.Fprintf(w, "  clock    residual %v rms over %d edges (%d rejected), meter runs %+.1f ppm against the host\n",
			c.RMS, c.Used, c.Rejected, (c.B-1)*1e6)
	}
	if r.UTCU > 0 {
		fmt.Fprintf(w, "           in UTC ± %v (k = 2), by the host's kernel\n", measure.Seconds(r.UTCU))
	}
}

// AddLabels adds the task's tags, pin, notes and provenance.
func (r *Report) AddLabels(t *store.Task) {
	r.Tags, r.Pinned, r.Notes = t.Tags, t.Pinned, t.Notes
	if p := t.Provenance; p != nil {
		r.Provenance = &provenanceReport{
			p.Host, p.OS, p.Version, p.MonitorVersion, p.Directory, p.GitCommit, nil, p.Command, p.TraceID,
		}
		if p.GitCommit != "" {
			r.Provenance.GitDirty = &p.GitDirty
		}
	}
}

// renderLabels writes tags, notes, pin, packing and provenance.
func renderLabels(w io.Writer, r *Report) {
	if len(r.Tags) > 0 {
		words := lists.Map(slices.Sorted(maps.Keys(r.Tags)), func(k string) string { return k + "=" + r.Tags[k] })
		fmt.Fprintf(w, "  tags     %s\n", strings.Join(words, ", "))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  note %-3d %s  (%s)\n", n.Number, n.Text, n.At.Local().Format("2006-01-02 15:04"))
	}
	if r.Pinned {
		fmt.Fprintln(w, "  pinned   retention leaves it")
	}
	thinned := lists.Filter(r.Events, func(e *eventReport) bool { return e.Kind == measure.EventThinned.String() })
	var scans uint64
	for _, e := range thinned {
		scans += e.Scans
	}
	switch n := len(thinned); {
	case n > 0:
		fmt.Fprintf(w, "  thinned  %d samples in %s were deleted while it ran (--keep): their sums are left\n", scans,
			measure.Plural(n, "run"))
	case r.Cold:
		fmt.Fprintf(w, "  packed   other programs need wattmark db expand %d first\n", r.TaskID)
	}
	r.Provenance.render(w)
}

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
	if t := r.task; t != nil && t.Result != nil && t.Clock != nil {
		from, _ := t.Clock.Host(t.Result.From)
		to, _ := t.Clock.Host(t.Result.To)
		r.Machine = machine.Uses(readings, measurement.HostTime(*t.Clock, from), measurement.HostTime(*t.Clock, to))
		if most := machine.UTC(readings); measure.Known(most) {
			// The error may be anything up to the kernel's bound (GUM, 4.3.7).
			_, u := t.Clock.Meter((from + to) / 2)
			r.UTCU = measure.Number(2 * math.Hypot(float64(most)/math.Sqrt(3), float64(u)))
		}
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
	out.Each(w, "  scale    %s\n", lists.Map(r.Records, func(c recordReport) string { return c.Text }))
}

// RenderResults writes the results of a recalculated task with their differences from the
// original, in joules and percent.
func RenderResults(w io.Writer, r *Report) {
	t := out.NewTable(w, "result", "-calibration", "--computed", ">energy (k = 2)", ">against the original")
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
