// Package total implements wattmark total, which adds up the energy of one job over GPUs,
// hosts and databases.
//
//	sources (database, host:port) → jobHost, read concurrently → analysis/job → JobReport
//
// A source that does not answer, a GPU without a task and a task without energy are missing:
// the report lists them, nothing is estimated in their place, and the exit code is 3.
//
// Errors that several tasks share (one calibration record, one instrument) are one error
// and add linearly; independent ones add in quadrature. U is expanded (k = 2).
package total

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/job"
	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/study/compare"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/group"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc/status"
)

// totalFlags select the job and its sources.
type totalFlags struct {
	job, since, until string
	from              []string // databases and addresses of hosts
	expect            int
	timeout           time.Duration // of one source
}

// total reads all sources, adds up the job and prints the report. After the report it
// returns an ExitNotFound error for a job without tasks, or an ExitIncomplete error where
// some are missing.
func total(a *cli.App, ctx context.Context, f totalFlags) error {
	since, err1 := cli.ParseTime(f.since)
	until, err2 := cli.ParseTime(f.until)
	if err := cmp.Or(err1, err2); err != nil {
		return err
	}
	q := store.Query{Limit: compare.MostNamed, Since: since, Until: until}
	if len(f.from) == 0 {
		f.from = []string{a.DB}
	}
	hosts := make([]jobHost, len(f.from))
	var wg sync.WaitGroup
	for i, from := range f.from {
		f.from[i] = store.Conceal(from) // the report prints it
		wg.Go(func() { hosts[i] = readJobHost(ctx, f.from[i], f, q) })
	}
	wg.Wait()
	var list []job.Host
	for _, h := range hosts {
		if h.err != nil {
			return fmt.Errorf("%s: %w", h.Name, h.err)
		}
		list = append(list, h.Host)
	}
	t, err := job.Of(list)
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	r := newTotalReport(f, &t, hosts)
	switch err := a.Print(r, r.render); {
	case err != nil:
		return err
	case t.Tasks == 0:
		return cli.NotFoundf("no measured task of job %q: wattmark tasks --job %s lists a database's", f.job, f.job)
	case r.Missing > 0:
		return cli.WithCode(cli.ExitIncomplete, fmt.Errorf("job %q is not whole: %d missing", f.job, r.Missing))
	}
	return nil
}

// jobHost is one source of a job.
type jobHost struct {
	job.Host
	cautions []string
	err      error // a usage error; trouble with the source is in Missing
}

// readJobHost reads one source within the timeout. A source that cannot be read, or has
// no task of the job, is noted as missing.
func readJobHost(ctx context.Context, from string, f totalFlags, q store.Query) jobHost {
	h := jobHost{Host: job.Host{Name: from, Tasks: []job.Task{}}} // JSON shows none as []
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	var err error
	if isAddress(from) {
		err = h.readService(ctx, strings.TrimPrefix(from, store.HostScheme), f, q)
	} else {
		err = h.readDatabase(ctx, from, f, q)
	}
	switch {
	case cli.ExitCode(err) == cli.ExitUsage:
		h.err = err
	case err != nil:
		h.Missing = append(h.Missing, err.Error())
	case len(h.Tasks) == 0 && len(h.Missing) == 0:
		h.Missing = append(h.Missing, fmt.Sprintf("no task of job %q", f.job))
	}
	return h
}

// isAddress reports whether from is a host's address, whose port may be left out, and not a database. An existing
// file, a path, a name that ends in .db and the URL of a database server are databases.
func isAddress(from string) bool {
	if strings.HasPrefix(from, store.HostScheme) {
		return true
	}
	if i, err := os.Stat(from); err == nil && !i.IsDir() || store.OnServer(from) {
		return false
	}
	return strings.HasPrefix(from, "unix:") || strings.HasPrefix(from, "dns:") ||
		!strings.ContainsRune(from, '/') && !strings.HasSuffix(from, ".db")
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	var f totalFlags
	c := cli.Command("total --job NAME [DATABASE|HOST]...", "Add up one job's energy over many hosts",
		cobra.ArbitraryArgs, func(ctx context.Context, args []string) error {
			f.from = args
			if f.job == "" {
				return cli.Usagef("--job names what is added up: the NAME of wattmark run --job NAME")
			}
			return total(a, ctx, f)
		})
	fl := c.Flags()
	fl.StringVar(&f.job, "job", "", "the job, as wattmark run --job named it")
	fl.StringVar(&f.since, "since", "", "only tasks launched at or after: 2026-01-31 or 2026-01-31T15:04:05Z")
	fl.StringVar(&f.until, "until", "", "only tasks launched before")
	fl.IntVar(&f.expect, "expect", 0, "how many tasks (GPUs) there should be; fewer are an error")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for a host")
	return cli.In(cli.Learn, help, a.HostFlag(a.JSONFlag(c)))
}

// readTasks reads a job's tasks from a source, by job or, where no task carries it, by name,
// and adds them to h, the oldest first. list returns the newest first.
func readTasks[T any](h *jobHost, job string, list func(name, job string) ([]T, error), add func(T) error) error {
	found, err := list("", job)
	byName := err == nil && len(found) == 0
	if byName {
		found, err = list(job, "")
	}
	if err != nil {
		return err
	}
	for _, t := range slices.Backward(found) {
		if err := add(t); err != nil {
			return err
		}
	}
	h.ByName = byName && len(found) > 0
	if !h.ByName {
		return nil
	}
	// Several tasks of one GPU that were matched by name alone may be separate runs.
	seen := map[string]int64{}
	for _, t := range h.Tasks {
		if first, twice := seen[t.UUID]; twice && t.UUID != "" {
			return cli.Usagef("tasks %d and %d are both named %q and of one GPU: say "+
				"which run is meant with --since and --until, or measure with run --job", first, t.ID, job)
		}
		seen[t.UUID] = t.ID
	}
	return nil
}

// readDatabase reads the job's tasks from a task database. GPUs of the tasks' groups that
// have no task are noted as missing.
func (h *jobHost) readDatabase(ctx context.Context, path string, f totalFlags, q store.Query) error {
	if _, err := os.Stat(path); err != nil && !store.OnServer(path) {
		return fmt.Errorf("no task database: %w", err)
	}
	db, err := store.OpenSource(ctx, path)
	if err != nil {
		return err
	}
	defer db.Close()
	// Several tasks belong to one group: its missing GPUs count once.
	groups := map[store.GroupID]bool{0: true}
	list := func(name, job string) ([]store.Row, error) {
		q.Name, q.Job = name, job
		return db.Tasks(ctx, q)
	}
	return readTasks(h, f.job, list, func(x store.Row) error {
		t, err := db.Task(ctx, x.ID)
		if err != nil {
			return err
		}
		h.add(job.Task{
			ID: int64(t.ID), Name: t.Name, State: t.State.String(), GPU: t.GPU, UUID: t.GPUUUID,
			Span: taskSpan(t.Result, t.Clock, t.Started),
			Part: group.Part{Instrument: t.Instrument, Setup: &t.Setup, Result: t.Result},
		}, t.Reason)
		id := t.Group.Group
		if groups[id] {
			return nil
		}
		groups[id] = true
		g, err := db.Group(ctx, id)
		for _, m := range g.Members {
			if m.Task == 0 {
				h.Missing = append(h.Missing,
					fmt.Sprintf("%s of group %d: %s", cmp.Or(m.GPUUUID, m.GPU), id, cmp.Or(m.Reason, "no task")))
			}
		}
		return err
	})
}

// readService reads the job's tasks from a wattmark host. A result without a budget counts
// as independent of all others, with a caution.
func (h *jobHost) readService(ctx context.Context, address string, f totalFlags, q store.Query) error {
	c, err := cli.DialTasks(ctx, address)
	if err != nil {
		return err
	}
	defer c.Close()
	list := func(name, job string) (list []client.Task, err error) {
		for t, err := range c.Tasks(ctx, client.Query{Name: name, Job: job, Since: q.Since, Until: q.Until}) {
			if err != nil {
				text, _ := wire.Lost(status.Convert(err).Message(), "")
				return nil, fmt.Errorf("asking for its tasks: %s", text)
			}
			// A host of an older version ignores the job and returns all tasks.
			if job == "" || t.Job == job {
				list = append(list, t)
			}
		}
		return list, nil
	}
	return readTasks(h, f.job, list, func(x client.Task) error {
		d, err := c.Task(ctx, x.ID)
		if err != nil {
			return fmt.Errorf("asking for task %d: %s", x.ID, status.Convert(err).Message())
		}
		r := cli.RowOf(&d.Task).Result // nil where the task has no window
		if r != nil {
			r.From, r.To, r.Rails, r.Budget = d.From, d.To, d.Rails, d.Budget
		}
		h.add(job.Task{
			ID: int64(d.ID), Name: d.Name, State: client.Word(d.State), GPU: d.GPU, UUID: d.GPUUUID,
			Span: taskSpan(r, d.Clock, cmp.Or(d.Started, d.Launched)),
			Part: group.Part{Instrument: d.Instrument, Setup: d.Setup, Result: r},
		}, d.Reason)
		if r != nil && len(r.Budget) == 0 {
			h.cautions = append(h.cautions,
				fmt.Sprintf("%s does not tell what the U of task %d is made of: it is taken as its own", address, d.ID))
		}
		return nil
	})
}

// add adds a task to the sum where it has an energy, else to the missing ones. A task
// that is not complete is summed with a caution.
func (h *jobHost) add(t job.Task, reason string) {
	p := &t.Part
	if p.Result == nil || p.Setup == nil {
		h.Missing = append(h.Missing,
			fmt.Sprintf("task %d is %s: %s", t.ID, t.State, cmp.Or(reason, "it has no energy")))
		return
	}
	if t.State != store.Complete.String() {
		h.cautions = append(h.cautions, fmt.Sprintf("%s: task %d is %s: %s", h.Name, t.ID, t.State, reason))
	}
	if p.Instrument.Serial == "" { // identified by address and GPU
		p.Meter = fmt.Sprintf("the %s of %s at %s", p.Instrument.Kind, t.UUID,
			out.JoinNonEmpty(" ", h.Name, p.Instrument.Address))
	}
	t.Estimate = p.Result.Total
	h.Tasks = append(h.Tasks, t)
}

// taskSpan returns a result's window by the host's clock; without a clock fit f, the
// monitor's start time started replaces it.
func taskSpan(r *measure.Result, f *clock.Fit, started time.Time) job.Span {
	if r == nil {
		return job.Span{}
	}
	// The fit has the drift of the meter's clock; the start alone has its offset only.
	at := func(s measure.Seconds) time.Time {
		if f == nil {
			return started.Add(s.Duration())
		}
		host, _ := f.Host(s)
		return measurement.HostTime(*f, host)
	}
	return job.Span{From: at(r.From), To: at(r.To)}
}

// JobReport is the total of a job. Energies are in joules, U is expanded (k = 2).
type JobReport struct {
	Job string `json:"job"`
	group.Sum
	Tasks    int       `json:"tasks_summed"`
	Missing  int       `json:"missing"`
	Expected int       `json:"expected,omitempty"`
	From     time.Time `json:"from,omitzero"`
	To       time.Time `json:"to,omitzero"`
	// from the first begin to the last end, and the time with all hosts at work
	Span     measure.Seconds   `json:"span_s"`
	Together measure.Seconds   `json:"together_s"`
	Hosts    []job.Host        `json:"hosts"`
	Common   []jobSharedReport `json:"shared,omitempty"`
	Cautions []string          `json:"cautions,omitempty"`
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
	r := &JobReport{
		Job: f.job, Sum: t.Sum, Tasks: t.Tasks, Missing: t.Missing, Expected: f.expect, From: t.Span.From, To: t.Span.To,
		Span: t.Span.Length(), Together: t.Together, Hosts: t.Hosts,
	}
	// Shared errors refer to parts by their index over all hosts.
	var names []string // host and task, by the index of the part in the sum
	working := 0
	for i, h := range t.Hosts {
		working += min(len(h.Tasks), 1)
		for _, t := range h.Tasks {
			names = append(names, fmt.Sprintf("%s task %d", h.Name, t.ID))
		}
		r.Cautions = append(r.Cautions, hosts[i].cautions...)
	}
	for _, l := range t.Sum.Lines {
		tasks := lists.Map(l.Parts, func(part int) string { return names[part] })
		r.Common = append(r.Common, jobSharedReport{l.Source, l.By, tasks, l.U})
	}
	if working > 1 && t.Together <= 0 {
		r.Cautions = append(r.Cautions, fmt.Sprintf("the hosts never worked all at once (they missed each other by "+
			"%v): is it one job, and are their clocks right?", -t.Together))
	}
	// The larger of both counts: a task may be lacking without a known reason.
	if lacking := f.expect - t.Tasks; lacking > 0 {
		r.Missing = max(r.Missing, lacking)
		r.Cautions = append(r.Cautions, fmt.Sprintf("%s of %d that were expected", measure.Plural(t.Tasks, "task"), f.expect))
	} else if f.expect > 0 && lacking < 0 {
		r.Cautions = append(r.Cautions, fmt.Sprintf("%s, more than the %d that were expected",
			measure.Plural(t.Tasks, "task"), f.expect))
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
		working := lists.Filter(r.Hosts, func(h *job.Host) bool { return len(h.Tasks) > 0 })
		fmt.Fprintf(w, "%s (k = 2), %s, %s, %v from %s\n", out.Energy(r.Estimate), measure.Plural(r.Tasks, "task"),
			measure.Plural(len(working), "host"), r.Span, r.From.Local().Format(time.DateTime))
	}
	if r.Missing > 0 {
		fmt.Fprintf(w, "NOT WHOLE: %d missing; nothing stands in their place\n", r.Missing)
	}
	fmt.Fprintln(w)
	out.Table(w, out.Row{"host", ">tasks", ">energy (k = 2)", ">busy", ">idle before", ">between", ">after", ""},
		r.Hosts, func(h job.Host) out.Row {
			name := map[bool]string{true: "by task name: no job there"}[h.ByName]
			if h.Estimate == nil {
				return out.Row{h.Name, len(h.Tasks), "", "", "", "", "", name}
			}
			return out.Row{h.Name, len(h.Tasks), out.Energy(*h.Estimate), h.Busy, h.Before, h.Between, h.After, name}
		})
	fmt.Fprintln(w)
	for _, h := range r.Hosts {
		for _, m := range h.Missing {
			fmt.Fprintf(w, "  missing  %s: %s\n", h.Name, m)
		}
	}
	if r.Tasks > 0 {
		r.renderShares(w)
	}
	out.Each(w, "  caution: %s\n", r.Cautions)
}

// renderShares writes the parts of U, the largest shared errors, and the time at which
// all hosts worked at once.
func (r *JobReport) renderShares(w io.Writer) {
	fmt.Fprintf(w, "  ± U      %v of the tasks' own errors, %v of shared ones; %v if all that does not average "+
		"out were one error\n", r.Independent, r.Shared, r.AllShared)
	const most = 4
	for _, l := range r.Common[:min(most, len(r.Common))] {
		fmt.Fprintf(w, "  shared   %s, by %s: %v over %s\n", l.Source, l.By, l.U, measure.Plural(len(l.Tasks), "task"))
	}
	if more := len(r.Common) - most; more > 0 {
		fmt.Fprintf(w, "  shared   %d more, smaller ones: --json lists them\n", more)
	}
	if len(r.Hosts) > 1 && r.Together > 0 {
		fmt.Fprintf(w, "  times    all hosts at once for %v, by their own clocks; what the GPUs drew while "+
			"idle is not in the sum\n", r.Together)
	}
}
