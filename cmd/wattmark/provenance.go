package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"wattmark/store"
)

// hidden stands for words of a command line that are not kept.
const hidden = "…"

// gitPatience is how long a repository may take to answer: a measurement does
// not wait for a slow disk.
const gitPatience = 3 * time.Second

// provenance collects where a measurement is started from. What cannot be found
// out is left empty: it must not keep anybody from measuring.
func (a *app) provenance(ctx context.Context, redact bool) *store.Provenance {
	p := &store.Provenance{OS: runtime.GOOS + "/" + runtime.GOARCH, Version: version(), Command: a.commandLine(redact)}
	p.Host, _ = os.Hostname()
	p.Directory, _ = os.Getwd()
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	if commit, err := git(ctx, "rev-parse", "--verify", "HEAD"); err == nil {
		changes, err := git(ctx, "status", "--porcelain", "--untracked-files=no")
		p.GitCommit, p.GitDirty = commit, err != nil || changes != ""
	}
	return p
}

// git asks the repository that the working directory lies in.
func git(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0") // looking must not write
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

// commandLine is the command by words. Redacted, the measured program keeps its
// name, and loses its arguments: they may hold what is nobody's business.
func (a *app) commandLine(redact bool) []string {
	words := append([]string{"wattmark"}, a.args...)
	if end := slices.Index(words, "--"); redact && end >= 0 && end+2 < len(words) {
		words = append(words[:end+2:end+2], hidden)
	}
	for i, w := range words {
		// A database's address may hold a password, also behind an equals sign.
		if at := strings.Index(w, "postgres"); at >= 0 {
			words[i] = w[:at] + store.Conceal(w[at:])
		}
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
}

func newProvenanceReport(p *store.Provenance) *provenanceReport {
	if p == nil {
		return nil
	}
	r := &provenanceReport{p.Host, p.OS, p.Version, p.MonitorVersion, p.Directory, p.GitCommit, nil, p.Command}
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
}
