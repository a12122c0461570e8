// Package provenance finds out where a measurement is started from: the machine,
// the directory and what is checked out there, the command line.
package provenance

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"wattmark/store"
)

// Hidden stands for words of a command line that are not kept.
const Hidden = "…"

// patience is how long a repository may take to answer: a measurement does not
// wait for a slow disk.
const patience = 3 * time.Second

// Collect says where this process is. What cannot be found out is left empty: it
// must not keep anybody from measuring. version is wattmark's, command what is to be
// kept of the command line.
func Collect(ctx context.Context, version string, command []string) *store.Provenance {
	p := &store.Provenance{OS: runtime.GOOS + "/" + runtime.GOARCH, Version: version, Command: command}
	p.Host, _ = os.Hostname()
	p.Directory, _ = os.Getwd()
	ctx, cancel := context.WithTimeout(ctx, patience)
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

// Process is the command line of this process, also of a program that only loaded us;
// nil where the system does not tell. Redacted, it has the program's name alone.
func Process(redact bool) []string {
	raw, err := os.ReadFile("/proc/self/cmdline")
	if err != nil || len(raw) == 0 {
		return nil
	}
	var words []string
	for w := range bytes.SplitSeq(bytes.TrimSuffix(raw, []byte{0}), []byte{0}) {
		words = append(words, Conceal(string(w)))
	}
	if redact && len(words) > 1 {
		words = append(slices.Clip(words[:1]), Hidden)
	}
	return words
}

// Conceal takes the password out of a word that has a database's address, also behind
// an equals sign.
func Conceal(word string) string {
	if at := strings.Index(word, "postgres"); at >= 0 {
		return word[:at] + store.Conceal(word[at:])
	}
	return word
}
