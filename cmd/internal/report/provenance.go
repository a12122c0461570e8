package report

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
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
