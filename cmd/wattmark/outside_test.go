package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// outside builds the programs of a page's Go blocks, each as the only one of a module that has
// this tree as a requirement, as the page has it; it returns their paths.
func outside(t *testing.T, page string) (paths []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
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
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(m[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		const module = "github.com/wattmark/wattmark"
		for _, args := range [][]string{
			{"mod", "edit", "-module=example.org/joules", "-require=" + module + "@v0.0.0", "-replace=" + module + "=" + tree},
			{"build", "-mod=mod", "-o", "program", "."},
		} {
			c := exec.CommandContext(t.Context(), "go", args...)
			c.Dir, c.Env = dir, append(os.Environ(), "GOPROXY=off")
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("go %v: %v\n%s", args, err, out)
			}
		}
		paths = append(paths, filepath.Join(dir, "program"))
	}
	return paths
}

// The programs that the page shows to modules of others measure through a host, and read what
// was measured, with the same joules by each way.
func TestModulesFromOutside(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it links two programs")
	}
	programs := outside(t, "../../CONTRIBUTING.md")
	if len(programs) != 2 {
		t.Fatalf("%d programs, want one that reads and one that measures", len(programs))
	}
	r := newRig(t)
	socket := filepath.Join(t.TempDir(), "host.sock")
	h := start(t, "host", "--db", r.db, "--listen", "127.0.0.1:0", "--socket", socket, "--monitor", r.address)
	address := h.await(t, `msg="serving the task database".* address=(\S+)`)[1]
	do := func(program, arg string) []string {
		t.Helper()
		c := exec.CommandContext(t.Context(), program, arg)
		c.Env = append(os.Environ(), "WATTMARK_HOST=unix:"+socket)
		var complaints strings.Builder
		c.Stderr = &complaints
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v\n%s%s", err, out, &complaints)
		}
		return strings.Fields(string(out))
	}
	measured := do(programs[1], r.socket)
	if len(measured) < 2 || measured[0] != "1" {
		t.Fatalf("measured: %q", measured)
	}
	read := do(programs[0], address)
	if len(read) < 4 || read[0] != "step" {
		t.Fatalf("read: %q", read)
	}
	here, err := strconv.ParseFloat(read[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	host, err := strconv.ParseFloat(read[2], 64)
	if err != nil {
		t.Fatal(err)
	}
	task, err := openThere(t, r.db).Task(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	total := task.Result.Total
	if math.Abs(host-float64(total.Energy)) > 1e-6*host || math.Abs(here-host) > 2e-3*host {
		t.Errorf("%v J here, %v J by the host, %v in the database", here, host, total.Energy)
	}
	if got := strings.Join(measured[1:], " "); got != total.Energy.String() {
		t.Errorf("the program that measured has %s, the database %v", got, total.Energy)
	}
}
