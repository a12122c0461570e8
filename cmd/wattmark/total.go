package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"wattmark/analysis/job"
	"wattmark/store"
)

// totalFlags say what is added up.
type totalFlags struct {
	job, since, until string
	from              []string
	expect            int
	timeout           time.Duration
}

func (a *app) totalCmd() *cobra.Command {
	var f totalFlags
	c := &cobra.Command{
		Use: "total --job NAME [--from DATABASE|HOST:PORT]...", Short: "Add up one job's energy over many hosts", Args: cobra.NoArgs,
		Long: `Add up what one job drew on many hosts: the tasks that wattmark run --job NAME
measured, in several task databases (--from hostA/power.db) or served by wattmark
host (--from hostA:7552).

What several tasks share, one calibration record or one instrument by its serial
number, is one error and adds as it is; all else by squares. Beside U stands what it
would be if all that does not average out were one error. A host that does not
answer, has no task of the job, or lacks a GPU is said to be missing, and nothing is
put in its place; the exit code is then 3.

A database whose tasks carry no job is searched by task name, where that gives one
task a GPU; --since and --until narrow it.`,
		Example: "  wattmark run --job train-7 -- torchrun train.py        # on each host\n" +
			"  wattmark total --job train-7 --from node1:7552 --from node2:7552 --expect 8\n" +
			"  wattmark total --job train-7 --from node1/power.db --from node2/power.db --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.job == "" {
				return withCode(exitUsage, errors.New("--job names what is added up: the NAME of wattmark run --job NAME"))
			}
			return a.total(cmd.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.job, "job", "", "the job, as wattmark run --job named it")
	fl.StringArrayVar(&f.from, "from", nil, "a task database, or host:port of a wattmark host (repeatable; default: --db)")
	fl.StringVar(&f.since, "since", "", "only tasks launched at or after: 2026-01-31 or 2026-01-31T15:04:05Z")
	fl.StringVar(&f.until, "until", "", "only tasks launched before")
	fl.IntVar(&f.expect, "expect", 0, "how many tasks (GPUs) there should be; fewer are an error")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for a host")
	return a.jsonFlag(c)
}

func (a *app) total(ctx context.Context, f totalFlags) error {
	q := store.Query{Limit: mostNamed}
	var err error
	if q.Since, err = parseTime(f.since); err != nil {
		return err
	}
	if q.Until, err = parseTime(f.until); err != nil {
		return err
	}
	if len(f.from) == 0 {
		f.from = []string{a.db}
	}
	for i := range f.from {
		f.from[i] = store.Conceal(f.from[i]) // it is shown
	}
	hosts := make([]jobHost, len(f.from))
	var wg sync.WaitGroup
	for i, from := range f.from {
		wg.Go(func() { hosts[i] = readJobHost(ctx, from, f, q) })
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
		return withCode(exitUsage, err)
	}
	r := newTotalReport(f, &t, hosts)
	if a.json {
		err = a.printJSON(r)
	} else {
		a.renderTotal(r)
	}
	switch {
	case err != nil:
		return err
	case t.Tasks == 0:
		return withCode(exitNotFound, fmt.Errorf("no measured task of job %q: wattmark tasks --job %s lists a database's", f.job, f.job))
	case r.Missing > 0:
		return withCode(exitIncomplete, fmt.Errorf("job %q is not whole: %d missing", f.job, r.Missing))
	}
	return nil
}

// jobHost is one source of a job, with what its tasks are called.
type jobHost struct {
	job.Host
	tasks    []jobTask // as Host.Tasks
	byName   bool      // it carries no job, and was searched by name
	cautions []string
	err      error // of the question, not of the source
}

// jobTask is a task as a source tells it.
type jobTask struct {
	id               int64
	name, state, gpu string
}

// readJobHost reads one source. What cannot be read is missing.
func readJobHost(ctx context.Context, from string, f totalFlags, q store.Query) jobHost {
	h := jobHost{Host: job.Host{Name: from}}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	var err error
	if isAddress(from) {
		err = h.readService(ctx, from, f, q)
	} else {
		err = h.readDatabase(ctx, from, f, q)
	}
	switch {
	case exitCode(err) == exitUsage:
		h.err = err
	case err != nil:
		h.Missing = append(h.Missing, err.Error())
	case len(h.Tasks) == 0 && len(h.Missing) == 0:
		h.Missing = append(h.Missing, fmt.Sprintf("no task of job %q", f.job))
	}
	return h
}

// isAddress tells host:port from a file; a file that is there is one.
func isAddress(from string) bool {
	if _, err := os.Stat(from); err == nil || store.OnServer(from) {
		return false
	}
	if strings.HasPrefix(from, "unix:") || strings.HasPrefix(from, "dns:") {
		return true
	}
	i := strings.LastIndexByte(from, ':')
	return i >= 0 && !strings.ContainsRune(from[i:], '/') && !strings.HasSuffix(from, ".db")
}

// oneEach refuses several tasks of one GPU that were found by name alone: they may
// be of several days.
func (h *jobHost) oneEach(name string) error {
	seen := map[string]int64{}
	for i, t := range h.Tasks {
		if first, twice := seen[t.GPU]; twice && t.GPU != "" {
			return withCode(exitUsage, fmt.Errorf("tasks %d and %d are both named %q and of one GPU: say which run is meant with --since and --until, or measure with run --job", first, h.tasks[i].id, name))
		}
		seen[t.GPU] = h.tasks[i].id
	}
	h.byName = true
	return nil
}
