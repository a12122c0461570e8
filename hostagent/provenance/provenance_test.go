package provenance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A repository's commit and its changes are found, and nothing outside of one.
func TestCollect(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
	t.Chdir(dir)
	if p := Collect(t.Context(), "1", []string{"x"}); p.GitCommit != "" || p.Directory == "" || p.Host == "" || p.Version != "1" || !slices.Equal(p.Command, []string{"x"}) {
		t.Errorf("outside of a repository: %+v", p)
	}
	file := filepath.Join(dir, "a")
	for _, step := range [][]string{
		{"init", "-q"}, {"add", "a"}, {"-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "x"},
	} {
		if err := os.WriteFile(file, []byte("1"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("git", step...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", step, err, out)
		}
	}
	if p := Collect(t.Context(), "", nil); len(p.GitCommit) != 40 || p.GitDirty {
		t.Errorf("as committed: %+v", p)
	}
	if err := os.WriteFile(file, []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := Collect(t.Context(), "", nil); !p.GitDirty {
		t.Errorf("changed: %+v", p)
	}
}

func TestProcess(t *testing.T) {
	whole, short := Process(false), Process(true)
	if len(whole) < 2 || filepath.Base(whole[0]) != "provenance.test" || !slices.Equal(short, []string{whole[0], Hidden}) {
		t.Errorf("%q, redacted %q", whole, short)
	}
	if got := Conceal("--db=postgres://ada:hush@h/d"); strings.Contains(got, "hush") || !strings.HasPrefix(got, "--db=postgres://ada") {
		t.Error(got)
	}
}

func TestOwner(t *testing.T) {
	me := Owner()
	if me == "" {
		t.Skip("this system does not tell")
	}
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Skip(err)
	}
	child, ok := own(c.Process.Pid)
	if !ok {
		t.Fatal("a child is not known")
	}
	as := func(o owner) string {
		return fmt.Sprintf("pid=%d start=%s space=%s boot=%s host=%s", o.pid, o.start, o.space, o.boot, o.host)
	}
	with := func(change func(*owner)) string {
		o := child
		change(&o)
		return as(o)
	}
	for _, tc := range []struct {
		name, owner string
		want        Life
	}{
		{"this one", me, Alive},
		{"a child", as(child), Alive},
		{"an earlier one of its number", with(func(o *owner) { o.start = "1" }), Gone},
		{"before the boot", with(func(o *owner) { o.boot = "x" }), Gone},
		{"another machine's", with(func(o *owner) { o.host += "x"; o.boot = "x" }), Unknown},
		{"in another container", with(func(o *owner) { o.space = "pid:[1]" }), Unknown},
		{"nothing", "", Unknown},
		{"something else", "pid=x start= host", Unknown},
	} {
		if got, _ := Lives(tc.owner); got != tc.want {
			t.Errorf("%s: %v, want %v (%s)", tc.name, got, tc.want, tc.owner)
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if got, pid := Lives(as(child)); got != Gone || pid != c.Process.Pid {
		t.Errorf("killed: %v, %d", got, pid)
	}
}
