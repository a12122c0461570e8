package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The environment goes before the context in use, that before what holds in all, the user's
// file before the machine's; paths of a file are relative to it.
func TestClientPrecedence(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) *ClientFile {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := ReadClient(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	t.Setenv("HOME", "/home/ada")
	t.Setenv("WATTMARK_GPU", "1")
	t.Setenv("WATTMARK_HOST", "none")
	c := &Client{Context: "lab", Files: []*ClientFile{
		write("user", "user: ada\ndb: ~/power.db\ngpu: '0'\ncontexts:\n  lab: {user: ada.lab, tls_ca: ca.crt}\n  home:\n"),
		write("system", "user: nobody\nmonitor: meters\nhost: tasks\ncontexts: {lab: {monitor: lab-meters:99}}\n"),
	}}
	got := map[string]string{}
	for _, key := range Keys() {
		if v, source := c.Value(key); source != "" {
			got[key] = v
		}
	}
	want := map[string]string{
		"monitor": "lab-meters:99", "host": "tasks", "db": "/home/ada/power.db", "user": "ada.lab", "gpu": "1",
		"tls_ca": filepath.Join(dir, "ca.crt"),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"home", "lab"}, c.Contexts()); d != "" {
		t.Error(d)
	}
}

func TestClientFileKeepsComments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "config.yaml")
	f, err := ParseClient(path, []byte("# our lab\nmonitor: lab # upstairs\n"))
	if err != nil {
		t.Fatal(err)
	}
	f.User = "ada: the first"
	f.Contexts["x"] = &Settings{DB: "a.db"}
	if err := f.Write(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	want := "# our lab\nmonitor: lab # upstairs\nuser: \"ada: the first\"\ncontexts:\n  x:\n    db: a.db\n"
	if err != nil || string(b) != want {
		t.Errorf("%v:\n%s", err, b)
	}
}

func TestClientFaults(t *testing.T) {
	t.Setenv("WATTMARK_CONFIG", filepath.Join(t.TempDir(), "none.yaml"))
	for text, want := range map[string]string{
		"monitors: x\n":               `c.yaml:1:1: unknown field "monitors": there are context, contexts, monitor`,
		"contexts:\n  a:\n    x: y\n": `c.yaml:3:5: unknown field "x"`,
		"monitor: [a, b]\n":           "c.yaml:1:10: ",
		"monitor: a\nmonitor: b\n":    "c.yaml:2:1: ",
		"a\n":                         "c.yaml:1:1: ",
		"{":                           "c.yaml:1:",
	} {
		if _, err := ParseClient("c.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := OpenClient("lab"); err == nil || !strings.Contains(err.Error(), `no context is named "lab": there is none`) {
		t.Error(err)
	}
}

func FuzzClient(f *testing.F) {
	for _, s := range []string{"", "user: ada", "contexts: {a: {db: x}, b: }", "context: a # b\n", "? x", "&a [*a]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseClient("x", data)
		if err != nil {
			return
		}
		for _, key := range Keys() {
			(&Client{Files: []*ClientFile{c}, Context: c.Context}).Value(key)
		}
	})
}
