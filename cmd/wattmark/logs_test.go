package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLogOfAnotherTool: a log of amd-smi becomes a method of its own name, once only.
func TestLogOfAnotherTool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, path := filepath.Join(dir, "power.db"), filepath.Join(dir, "amd.csv")
	goldenDatabase(t, db)
	var task struct{ Launched time.Time }
	if err := json.Unmarshal([]byte(inside(t, "show", "10", "--json", "--db", db).ok(t).out), &task); err != nil {
		t.Fatal(err)
	}
	text := "timestamp,gpu,socket_power\n"
	for i := -60; i < 120; i++ {
		text += fmt.Sprintf("%d,0,200\n", task.Launched.Unix()+int64(i))
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		out := inside(t, "import", "amd-smi", path, "--task", "10", "--db", db).ok(t).out
		if strings.Count(out, "amd-smi socket_power") != 1 {
			t.Errorf("%s", out)
		}
	}
	r := inside(t, "show", "10", "--db", db).ok(t)
	if !strings.Contains(r.out, "amd-smi socket_power") {
		t.Errorf("%s", r.out)
	}
	r = inside(t, "validate", "10", "--db", db)
	if !strings.Contains(r.out, "amd-smi socket_power") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
}
