package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
)

// outside builds the program of a page's Go block as a module of its own, which requires this
// tree as the page has it, and returns its path.
func outside(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(string(text))
	if block == nil {
		t.Fatalf("%s has no program", page)
	}
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} { // the versions of this tree, which are here
		data, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil {
			t.Fatal(err)
		}
		data = regexp.MustCompile(`(?ms)^tool \(.*?^\)|^tool .*?$`).ReplaceAll(data, nil)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(block[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	const module = "github.com/wattmark/wattmark"
	for _, args := range [][]string{
		{"mod", "edit", "-module=example.org/joules", "-require=" + module + "@v0.0.0", "-replace=" + module + "=" + tree},
		{"build", "-mod=mod", "-ldflags=-s -w", "-o", "program", "."},
	} {
		c := exec.CommandContext(t.Context(), "go", args...)
		c.Dir, c.Env = dir, append(os.Environ(), "GOPROXY=off")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	return filepath.Join(dir, "program")
}

// The program that the page shows to modules of others measures through a host, and reads the
// task there: with the same joules by each way.
func TestModulesFromOutside(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("it links a program")
	}
	program := outside(t, "../../CONTRIBUTING.md")
	r := newRig(t)
	socket := filepath.Join(t.TempDir(), "host.sock")
	h := start(t, "host", "--db", r.db, "--listen", "127.0.0.1:0", "--socket", socket, "--monitor", r.address)
	address := h.await(t, `msg="serving the task database".* address=(\S+)`)[1]
	c := exec.CommandContext(t.Context(), program, r.socket, address)
	c.Env = append(os.Environ(), "WATTMARK_HOST=unix:"+socket)
	var complaints strings.Builder
	c.Stderr = &complaints
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &complaints)
	}
	var measured, task int
	var joules, here, host, u float64
	if _, err := fmt.Sscan(string(out), &measured, &joules, &task, &here, &host, &u); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	kept, err := openThere(t, r.db).Task(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	total := kept.Result.Total
	if measured != 1 || task != 1 || relative(joules, float64(total.Energy)) > 1e-9 || relative(host, joules) > 1e-6 ||
		relative(here, host) > 2e-3 || relative(u, float64(total.U)) > 1e-3 {
		t.Errorf("%s, and in the database %v", out, total)
	}
}
