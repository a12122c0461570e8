package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
)

var updateGolden = flag.Bool("update", false, "write the golden files anew")

// goldenDir holds what commands print: testdata/golden/README.md.
const goldenDir = "testdata/golden"

// golden compares what was printed with a golden file, or writes the file with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *updateGolden {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test ./cmd/wattmark -run Golden -update writes it", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got; read it, then -update if it is wanted):\n%s", filepath.Base(path), diff)
	}
}

// goldenUser makes the environment that of one user, wherever the tests run.
func goldenUser(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{"HOME": "/home/ada", "USER": "ada", "LOGNAME": "ada", "TZ": "UTC"} {
		t.Setenv(name, value)
	}
	for _, name := range []string{"LANG", "LC_ALL", "COLUMNS", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, "")
	}
}

// The help of every command, a file for each family.
func TestGoldenHelp(t *testing.T) {
	goldenUser(t)
	top := root((&cli.App{Streams: cli.Streams{Out: io.Discard, Err: io.Discard}}))
	top.InitDefaultHelpCmd()
	all := inside(t, "--help").ok(t).out
	golden(t, goldenDir+"/help/wattmark.txt", all)
	if n := strings.Count(all, "\n"); n > 40 {
		t.Errorf("the program's help has %d lines, want 40 at most", n)
	}
	for line := range strings.Lines(all) {
		if n := len([]rune(line)); n > 81 {
			t.Errorf("%q has %d columns", line, n)
		}
	}
	for _, family := range top.Commands() {
		if !family.Hidden && !slices.Contains(strings.FieldsFunc(all, func(r rune) bool { return strings.ContainsRune(" ,\n", r) }), family.Name()) {
			t.Errorf("the program's help lacks %s", family.Name())
		}
		var b strings.Builder
		var walk func(c *cobra.Command)
		walk = func(c *cobra.Command) {
			args := append(strings.Fields(c.CommandPath())[1:], "--help")
			fmt.Fprintf(&b, "$ wattmark %s\n%s\n", strings.Join(args, " "), inside(t, args...).ok(t).out)
			for _, sub := range c.Commands() {
				walk(sub)
			}
		}
		walk(family)
		golden(t, goldenDir+"/help/"+family.Name()+".txt", b.String())
	}
}

// What commands print of the recorded database and of recorded files. Each line of
// commands.txt that is no comment is a name and a command line.
func TestGoldenOutput(t *testing.T) {
	goldenUser(t)
	list, err := os.ReadFile(filepath.Join(goldenDir, "commands.txt"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().Truncate(time.Minute) // before any file: some outputs have a file's time
	dir := t.TempDir()
	goldenDatabase(t, filepath.Join(dir, "power.db"))
	makeTasks(t, filepath.Join(dir, "turns.db"), versions(5, 0.97, 0.005)...)
	makeTasks(t, filepath.Join(dir, "pairs.db"), inSeries(versions(8, 0.97, 0.005), 8)...)
	for to, from := range map[string]string{"in": filepath.Join(goldenDir, "in"), "h200": "../../testdata/h200"} {
		if err := os.CopyFS(filepath.Join(dir, to), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for line := range strings.Lines(string(list)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		r := inside(t, words[1:]...)
		var b bytes.Buffer
		fmt.Fprintf(&b, "$ wattmark %s\nexit code %d\n%s", strings.Join(strings.Fields(line)[1:], " "), r.code, r.out)
		if r.err != "" {
			fmt.Fprintf(&b, "--- standard error\n%s", r.err)
		}
		golden(t, filepath.Join(root, "out", words[0]+".txt"), normal(strings.NewReplacer(dir, ".", "/tmp/gold", "LAB").Replace(b.String()), began))
	}
}

var (
	moments = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?`)
	figures = regexp.MustCompile(`-?\d+\.\d{10,}(e[+-]\d+)?`)
)

// normal replaces every moment from began on by NOW, and rounds figures to the 12
// digits that no order of a sum changes.
func normal(text string, began time.Time) string {
	text = figures.ReplaceAllStringFunc(text, func(s string) string {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return s
		}
		return strconv.FormatFloat(v, 'g', 12, 64)
	})
	return moments.ReplaceAllStringFunc(text, func(s string) string {
		layout := "2006-01-02T15:04:05"
		plain := strings.TrimSuffix(strings.Replace(s, " ", "T", 1), "Z")
		if len(plain) == len("2006-01-02T15:04") {
			layout = "2006-01-02T15:04"
		}
		at, err := time.Parse(layout, plain)
		if err != nil || at.Before(began) {
			return s
		}
		return "NOW"
	})
}

// goldenDatabase unpacks the recorded database.
func goldenDatabase(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(filepath.Join(goldenDir, "power.db.zst"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, z); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// Every golden file has a command that makes it.
func TestGoldenFilesAreUsed(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(goldenDir, "commands.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(list)) {
		if words := strings.Fields(line); len(words) > 0 && words[0][0] != '#' {
			names = append(names, words[0]+".txt")
		}
	}
	files, err := os.ReadDir(filepath.Join(goldenDir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(names, f.Name()) {
			t.Errorf("no command makes %s", f.Name())
		}
	}
}
