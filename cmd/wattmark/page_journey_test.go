//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
)

// A scripted user before a real host, with a real monitor of an emulated meter: finds
// a task by its name, zooms, puts two cursors and reads joules that are the API's,
// compares two tasks, learns why one is doubtful and which of two programs is better, takes a
// figure away, follows a capture live, records the bench; by mouse, by keys alone, by fingers. Then
// Lighthouse finds nothing that is not for everyone or not good practice, and nothing moves
// while the page is made.
func TestJourneyInBrowser(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	pageModules(t)
	r := newRig(t)
	url := r.pageOf(r.address)
	for _, args := range [][]string{
		{"--benchmark", "memory", "--duration", "600ms", "--name", "gemm v1"},
		{"--benchmark", "half", "--duration", "400ms", "--name", "gemm v2"},
		{"--benchmark", "memory", "--duration", "200ms", "--name", "step a"},
		{"--benchmark", "half", "--duration", "200ms", "--name", "step b"},
		{"--benchmark", "half", "--duration", "200ms", "--name", "step b"},
		{"--benchmark", "memory", "--duration", "200ms", "--name", "step a"},
	} {
		if code := r.run(args...).wait(t); code != 0 {
			t.Fatalf("%v: exit code %d", args, code)
		}
	}
	if code := r.run("--name", "broken", "--", "false").wait(t); code == 0 {
		t.Fatal("a program that fails is not told of")
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	port := 0
	if !testing.Short() {
		port = freePort(t)
	}
	figures := filepath.Join(t.TempDir(), "figures.json")
	visitPage(t, "journey.mjs", pageSetup{
		URL: url, Tasks: 7, Figures: figures, Port: port,
		Run: append([]string{path}, r.held("gemm live")...),
	})
	var seen struct {
		FirstPaint []float64 `json:"first_paint_ms"`
	}
	if b, err := os.ReadFile(figures); err != nil || json.Unmarshal(b, &seen) != nil || len(seen.FirstPaint) == 0 {
		t.Errorf("no first paint was seen: %v", err)
	}
}

// Who has no token sees nothing; who has one sees no markup of what others wrote; and when a
// session is over, nothing of it is left on the screen or behind the back button.
func TestSignInJourneyInBrowser(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	pageModules(t)
	r := &rig{t: t, db: demoDB(t, pulseDemo)}
	dir := filepath.Join(t.TempDir(), "auth")
	const hostile = `<img src=x onerror=window.ran=1><script>window.ran=1</script>`
	execSQL(t, r.db, "UPDATE task SET name='"+hostile+"' WHERE task_id=1")
	inside(t, "auth", "init", "--auth", dir, "--server", "127.0.0.1", "-o", filepath.Join(t.TempDir(), "admin.token")).ok(t)
	token := func(args ...string) string {
		return strings.TrimSpace(inside(t, append([]string{"auth", "token", "--auth", dir, "--role", "viewer"}, args...)...).ok(t).out)
	}
	good, expired, revoked := token("ada"), token("late", "--valid", "1ns"), token("gone")
	inside(t, "auth", "revoke", "gone", "--auth", dir).ok(t)
	url := start(t, "host", "--db", r.db, "--listen", "127.0.0.1:0", "--socket", "none", "--monitor", "none", "--http", "127.0.0.1:0", "--auth", dir).
		await(t, `serving JSON over HTTP" address=(https://[0-9.:]+)`)[1]
	visitPage(t, "signin.mjs", pageSetup{URL: url, Missing: []string{"/v1/", "/wattmark.v1.", "/assets/", "/signin"}, Tokens: &tokens{Good: good, Wrong: map[string]string{
		good[:len(good)-1]: "not known", expired: "expired", revoked: "revoked", "wm_\x1b[31m\u202e": "not known", "wm_" + strings.Repeat("a", 100_000): "longer than any",
	}}})
}
