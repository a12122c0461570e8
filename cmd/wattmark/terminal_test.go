package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	"golang.org/x/sys/unix"
)

// atColumns runs a command with its output on a terminal of so many columns, and returns what
// that got.
func atColumns(t *testing.T, columns uint16, args ...string) string {
	t.Helper()
	master, path, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	size := unix.Winsize{Row: 40, Col: columns}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		t.Fatal(err)
	}
	text := make(chan string)
	go func() {
		b, _ := io.ReadAll(master) // ends with an error when the last end is closed
		text <- string(b)
	}()
	_ = execute(context.WithoutCancel(t.Context()), args, cli.Streams{In: strings.NewReader(""), Out: tty, Err: io.Discard})
	tty.Close()
	got := <-text
	master.Close()
	return strings.ReplaceAll(got, "\r", "")
}

// No line is wider than the terminal, at 80 columns and at 60, of anything that the golden
// files show; numbers stay with their units, and there is neither colour nor anything but ASCII
// where that is not wanted.
func TestTerminals(t *testing.T) {
	coverage.Long(t)
	noRaces(t)
	goldenUser(t)
	t.Setenv("TERM", "xterm-256color")
	list, err := os.ReadFile(filepath.Join(goldenDir, "commands.txt"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	goldenDatabase(t, filepath.Join(dir, "power.db"))
	for to, from := range map[string]string{"in": filepath.Join(goldenDir, "in"), "h200": "../../testdata/h200"} {
		if err := os.CopyFS(filepath.Join(dir, to), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	torn := regexp.MustCompile(`\d *\n *(±|%|[mµnkM]?[JWsVA]\b)|\d ± *\n`)
	for line := range strings.Lines(string(list)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' || strings.Contains(line, "--json") || strings.Contains(line, "-o -") || strings.Contains(line, "certificate schema") || strings.HasPrefix(line, "tasks") && strings.Contains(line, "--format") {
			continue // data for programs
		}
		for _, columns := range []uint16{80, 60} {
			got := atColumns(t, columns, words[1:]...)
			for l := range strings.SplitSeq(ansi.Strip(got), "\n") {
				if ansi.StringWidth(strings.TrimRight(l, " ")) > int(columns) {
					t.Errorf("%s at %d columns, %d wide:\n%s", words[0], columns, ansi.StringWidth(l), l)
				}
			}
			if found := torn.FindString(ansi.Strip(got)); found != "" {
				t.Errorf("%s at %d columns: a number is torn: %q", words[0], columns, found)
			}
		}
	}
	for name, value := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if got := atColumns(t, 80, "show", "1"); strings.Contains(got, "\x1b") || !strings.Contains(got, "±") {
				t.Errorf("%q", got)
			}
			if got := atColumns(t, 80, "doctor", "--machine", "host", "--monitor", "127.0.0.1:1"); strings.Contains(got, "\x1b") || !strings.Contains(got, "FAIL") {
				t.Errorf("%q", got)
			}
		})
	}
	if got := atColumns(t, 80, "show", "1"); !strings.Contains(got, "\x1b[") {
		t.Error("a terminal gets no colours")
	}
	for _, args := range [][]string{{"show", "1", "--ascii"}, {"validate", "7", "--ascii"}, {"tasks", "--ascii"}} {
		for _, r := range atColumns(t, 80, args...) {
			if r > 126 || r == '\x1b' {
				t.Errorf("%v: %q is no ASCII", args, r)
				break
			}
		}
	}
}
