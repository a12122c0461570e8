package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/client"
)

// What config set writes holds for the next call: a flag goes before it, and an unknown
// context or a fault of the file ends a command before it does anything.
func TestClientConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	run := func(more string, args ...string) result {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Env = append(os.Environ(), "WATTMARK_CONFIG="+file, more)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &errs, dir
		_ = cmd.Run()
		return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
	}
	run("", "config", "set", "monitor", "127.0.0.1:1").ok(t)
	run("", "config", "set", "db", "lab.db", "--context", "lab").ok(t)
	run("", "config", "set", "colour", "red").fails(t, 2, `no setting is named "colour"`, "token_file")
	run("", "config", "use", "labs").fails(t, 2, `no context is named "labs": there are lab`)

	run("", "top", "--once").fails(t, 1, "127.0.0.1:1")
	run("", "top", "--once", "--monitor", "127.0.0.2:2").fails(t, 1, "127.0.0.2:2")
	run("WATTMARK_MONITOR=127.0.0.3", "top", "--once").fails(t, 1, "127.0.0.3:7551")
	run("", "tasks").fails(t, 4, "power.db")
	run("", "tasks", "--context", "lab").fails(t, 4, "lab.db")
	run("WATTMARK_DB=mine.db", "tasks", "--host", "127.0.0.1:1").fails(t, 1, "127.0.0.1:1")
	run("", "tasks", "--context", "lab", "--host", "127.0.0.1:1").fails(t, 1, "127.0.0.1:1")
	run("", "tasks", "--db", "mine.db", "--host", "127.0.0.1:1").fails(t, 2, "--db and --host")
	run("", "config", "use", "lab").ok(t)
	run("", "tasks").fails(t, 4, "lab.db")
	run("", "tasks", "--db", "other.db").fails(t, 4, "other.db")

	var shown client.Shown
	if err := json.Unmarshal([]byte(run("", "config", "--json").ok(t).out), &shown); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range shown.Settings {
		got[s.Key] = s.Value + " of " + strings.ReplaceAll(s.Source, file, "F")
	}
	if got["monitor"] != "127.0.0.1:1 of F" || got["db"] != "lab.db of context lab of F" ||
		got["host"] != "127.0.0.1:7552 of default" || shown.Context != "lab" {
		t.Errorf("%+v", shown)
	}
	if s, err := os.Stat(file); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", s, err)
	}
	run("", "config", "unset", "db", "--context", "lab").ok(t)
	run("", "tasks").fails(t, 4, "power.db")
	if err := os.WriteFile(file, []byte("monitor: a\nuser: [b]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run("", "tasks").fails(t, 2, "config.yaml:2:7: ")
	run("", "version").ok(t)
}
