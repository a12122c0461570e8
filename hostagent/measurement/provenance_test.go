package measurement

import (
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
	if p := CollectProvenance(t.Context(), "1", []string{"x"}); p.GitCommit != "" || p.Directory == "" ||
		p.Host == "" || p.Version != "1" || !slices.Equal(p.Command, []string{"x"}) {
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
	if p := CollectProvenance(t.Context(), "", nil); len(p.GitCommit) != 40 || p.GitDirty {
		t.Errorf("as committed: %+v", p)
	}
	if err := os.WriteFile(file, []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := CollectProvenance(t.Context(), "", nil); !p.GitDirty {
		t.Errorf("changed: %+v", p)
	}
}

func TestProcess(t *testing.T) {
	whole, short := CommandLine(false), CommandLine(true)
	if len(whole) < 2 || filepath.Base(whole[0]) != "measurement.test" ||
		!slices.Equal(short, []string{whole[0], HiddenWords}) {
		t.Errorf("%q, redacted %q", whole, short)
	}
	if got := ConcealWord("--db=postgres://ada:hush@h/d"); strings.Contains(got, "hush") ||
		!strings.HasPrefix(got, "--db=postgres://ada") {
		t.Error(got)
	}
}
