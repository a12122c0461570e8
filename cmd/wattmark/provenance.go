package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	whence "wattmark/hostagent/provenance"
	"wattmark/store"
)

// provenance is where a measurement is started from.
func (a *app) provenance(ctx context.Context, redact bool) *store.Provenance {
	return whence.Collect(ctx, version(), a.commandLine(redact))
}

// commandLine is the command by words. Redacted, the measured program keeps its
// name, and loses its arguments: they may hold what is nobody's business.
func (a *app) commandLine(redact bool) []string {
	words := append([]string{"wattmark"}, a.args...)
	if end := slices.Index(words, "--"); redact && end >= 0 && end+2 < len(words) {
		words = append(words[:end+2:end+2], whence.Hidden)
	}
	for i, w := range words {
		words[i] = whence.Conceal(w)
	}
	return words
}

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

func newProvenanceReport(p *store.Provenance) *provenanceReport {
	if p == nil {
		return nil
	}
	r := &provenanceReport{p.Host, p.OS, p.Version, p.MonitorVersion, p.Directory, p.GitCommit, nil, p.Command, p.TraceID}
	if p.GitCommit != "" {
		r.GitDirty = &p.GitDirty
	}
	return r
}

func (r *provenanceReport) render(w io.Writer) {
	if r == nil {
		return
	}
	where := joinNonEmpty(":", r.Host, r.Directory)
	if r.GitCommit != "" {
		where += ", commit " + r.GitCommit[:min(12, len(r.GitCommit))]
		if *r.GitDirty {
			where += " with changes"
		}
	}
	fmt.Fprintf(w, "  from     %s; wattmark %s, at the meter %s\n", where, r.Version, firstOf(r.MonitorVersion, "unknown"))
	if len(r.Command) > 0 {
		fmt.Fprintf(w, "  by       %s\n", shellWords(r.Command))
	}
	if r.TraceID != "" {
		fmt.Fprintf(w, "  trace    %s\n", r.TraceID)
	}
}
