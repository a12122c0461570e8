package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/cmd/internal/cli"
)

// With --audit-reads the audit log tells who read whose task, once for all the parts that
// a page asks for; without it is not kept.
func TestAuditOfReading(t *testing.T) {
	t.Parallel()
	s := &siege{T: t, dir: filepath.Join(t.TempDir(), "auth")}
	s.lab()
	db := demoDB(t, demo)
	read := func(more ...string) string {
		t.Helper()
		h := start(t, append([]string{
			"host", "--db", db, "--auth", s.dir, "--audit", s.file("audit"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--socket", "none",
		}, more...)...)
		s.at = h.await(t, `serving the task database" address=(\S+)`)[1]
		s.web = h.await(t, `serving JSON over HTTP" address=(https://[0-9.:]+)`)[1]
		tasks := s.tasks(s.token("vic"))
		for range 3 {
			if _, err := tasks.GetTask(t.Context(), &wattmarkv1.GetTaskRequest{TaskId: 1}); err != nil {
				t.Fatal(err)
			}
			samples, err := tasks.ReadSamples(t.Context(), &wattmarkv1.ReadSamplesRequest{TaskId: 1})
			for err == nil {
				_, err = samples.Recv()
			}
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if none, err := tasks.ReadSamples(t.Context(), &wattmarkv1.ReadSamplesRequest{TaskId: 99}); err != nil {
				t.Fatal(err)
			} else if _, err := none.Recv(); err == nil {
				t.Fatal("a task that is not there is read")
			}
			for _, path := range []string{"/v1/tasks", "/v1/tasks/1/envelope", "/v1/tasks/1/envelope?columns=7"} {
				if code, body, _ := s.browser("GET", path, "", map[string]string{"Authorization": "Bearer " + s.token("vic")}); code != 200 {
					t.Fatalf("%s: %d %s", path, code, body)
				}
			}
		}
		h.stop(t)
		b, err := os.ReadFile(s.file("audit"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read(); got != "" {
		t.Errorf("without being asked to, it keeps\n%s", got)
	}
	got := read("--audit-reads")
	for _, want := range []string{
		`TaskService/GetTask","code":"OK","who":"vic","role":"viewer","by":"token"`, `"of":"ada","task_id":"1"`,
		`TaskService/ReadSamples","code":"OK","who":"vic"`, `TaskService/ListTasks","code":"OK","who":"vic"`, `TaskService/ReadEnvelope","code":"OK","who":"vic"`,
		`TaskService/ReadSamples","code":"NotFound","who":"vic"`,
	} {
		if strings.Count(got, want) == 0 {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n"); n != 5 {
		t.Errorf("%d lines of five kinds of reading:\n%s", n, got)
	}
	if strings.Contains(got, s.token("vic")) {
		t.Error("a secret is in the log")
	}
	h := start(t, "host", "--db", db, "--auth", s.dir, "--audit", s.file("stored"), "--listen", "127.0.0.1:0", "--socket", "none")
	inside(t, "db", "copy", demoDB(t, demo), "host://"+h.await(t, `serving the task database" address=(\S+)`)[1],
		"--tls-ca", s.file("ca.crt"), "--token-file", s.file("ada.token")).ok(t)
	h.stop(t)
	b, err := os.ReadFile(s.file("stored"))
	if want := `"who":"ada","role":"measurer","by":"token"`; err != nil || !strings.Contains(string(b), want) ||
		!strings.Contains(string(b), `"tasks":"1"`) {
		t.Errorf("%v: no %s with its task's number in\n%s", err, want, b)
	}
	inside(t, "host", "--db", db, "--audit-reads", "--listen", "127.0.0.1:0", "--socket", "none").fails(t, cli.ExitUsage, "--audit-reads", "--auth")
}
