package cli

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"
)

// A failed write leaves neither the file or folder nor a part of it.
func TestNothingHalfWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full := errors.New("no space left")
	for _, write := range []func(part string) error{
		func(part string) error { return errors.Join(os.WriteFile(part, []byte("half"), 0o600), full) },
		func(part string) error {
			return errors.Join(os.MkdirAll(filepath.Join(part, "sub"), 0o700),
				os.WriteFile(filepath.Join(part, "sub", "x"), []byte("half"), 0o600), full)
		},
	} {
		if err := WriteWhole(filepath.Join(dir, "out.recording"), write); !errors.Is(err, full) {
			t.Errorf("%v", err)
		}
	}
	err := WriteFile(filepath.Join(dir, "a.gz"), Compressed("a.gz", func(w io.Writer) error {
		_, err := w.Write(make([]byte, 1<<20))
		return errors.Join(err, full)
	}))
	if left, glob := filepath.Glob(filepath.Join(dir, "*")); !errors.Is(err, full) || glob != nil || len(left) > 0 {
		t.Errorf("%v; left: %v", err, left)
	}
}

// A file with a name like an unfinished one's stays; an unfinished one of ours is replaced.
func TestUnfinishedFilesOfOthersStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.csv")
	for _, part := range []string{".part", ".wattmark-part"} {
		if err := os.WriteFile(path+part, []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put := func(w io.Writer) error { _, err := io.WriteString(w, "ours"); return err }
	if err := WriteFile(path, put); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path + ".part"); err != nil || string(b) != "theirs" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "ours" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Lstat(path + ".wattmark-part"); err == nil {
		t.Error("a part is left")
	}
	if err := WriteFile(path, put); err == nil {
		t.Error("a file was written over")
	}
	if err := WriteFile("/no/x.csv", put); err == nil || strings.Contains(err.Error(), "-part") {
		t.Errorf("a missing folder: %v", err)
	}
}

// Control characters of a file that an error cites are shown, not executed by the terminal.
func TestErrorsAreShown(t *testing.T) {
	if got := Printable(errors.New("column \x1b[2J\xff\nnext line")); got != "column \uFFFD[2J\uFFFD\nnext line" {
		t.Errorf("%q", got)
	}
}

func TestAges(t *testing.T) {
	t.Parallel()
	for text, hours := range map[string]float64{"90d": 2160, "365d": 8760, "2w": 336, "36h": 36, "1.5d": 36, "2h": 2} {
		if got, err := ParseAge(text); err != nil || got.Hours() != hours {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0d", "-1h", "x", "d", "1dw", "300000d"} {
		if got, err := ParseAge(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestRelativeFlag(t *testing.T) {
	t.Parallel()
	var got float64
	fl := pflag.NewFlagSet("", pflag.ContinueOnError)
	RelativeFlag(fl, &got, "u", 0.02, "")
	if got != 0.02 || fl.Lookup("u").DefValue != "0.02" {
		t.Errorf("default %v, shown as %q", got, fl.Lookup("u").DefValue)
	}
	for text, want := range map[string]float64{"0.05": 0.05, "5%": 0.05, "0.5 %": 0.005, "1e-4": 1e-4} {
		if err := fl.Set("u", text); err != nil || math.Abs(got-want) > 1e-15 {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if err := fl.Set("u", "five"); err == nil || !strings.Contains(err.Error(), "as in 0.02 or 2%") {
		t.Errorf("%v", err)
	}
}

// Programs that run several command lines at once, as tests do, get a root for each.
func TestRootsAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			var text strings.Builder
			if err := Run(t.Context(), []string{"--help"}, Streams{Out: &text, Err: io.Discard}); err != nil || text.Len() == 0 {
				t.Errorf("%v: %q", err, text.String())
			}
		})
	}
	all.Wait()
}

// Standard error is wrapped at a terminal's width as standard output is, and is ASCII where that is wanted.
func TestErrorsAreWrapped(t *testing.T) {
	var b strings.Builder
	a := &App{Streams: Streams{Out: io.Discard, Err: &b}}
	root := Root(a)
	root.SetArgs([]string{"version", "--ascii"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	if s, ok := a.Err.(*Screen); !ok || !s.ASCII || s.Columns != 0 || Raw(a.Err) != io.Writer(&b) {
		t.Errorf("standard error is %#v", a.Err)
	}
}
