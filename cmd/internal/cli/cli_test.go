package cli

import (
	"errors"
	"io"
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
}

// Control characters of a file that an error cites are shown, not executed by the terminal.
func TestErrorsAreShown(t *testing.T) {
	if got := Printable(errors.New("column \x1b[2J\xff\nnext line")); got != "column \uFFFD[2J\uFFFD\nnext line" {
		t.Errorf("%q", got)
	}
}

func TestTracingIsOffUnlessAskedFor(t *testing.T) {
	for _, c := range []struct {
		flag string
		env  map[string]string
		want bool
	}{
		{"", nil, false},
		{"lab:4317", nil, true},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://lab:4317"}, true},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://lab:4317"}, true},
		{"lab:4317", map[string]string{"OTEL_SDK_DISABLED": "true"}, false},
		{
			"",
			map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://lab:4317", "OTEL_TRACES_EXPORTER": "none"},
			false,
		},
	} {
		for _, name := range []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
			"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER",
		} {
			t.Setenv(name, c.env[name])
		}
		if got := tracingWanted(c.flag); got != c.want {
			t.Errorf("%q %v: %v", c.flag, c.env, got)
		}
	}
	traces, err := OpenTracing(t.Context(), "", "x", nil)
	if traces != nil || err != nil || traces.Server() != nil || traces.Dial() != nil ||
		traces.Close(t.Context()) != nil {
		t.Errorf("%v %v", traces, err)
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

// A flag's former names set it, several flags of a set may have some, and no help shows them.
func TestRenamedFlags(t *testing.T) {
	fl := pflag.NewFlagSet("relay", pflag.ContinueOnError)
	cluster := fl.String("cluster", "", "nodes")
	Renamed(fl, "servers", "cluster")
	Renamed(fl, "repeat", "times")
	times := fl.Int("times", 1, "how often")
	if err := fl.Parse([]string{"--servers", "a:1", "--repeat=3"}); err != nil || *cluster != "a:1" || *times != 3 {
		t.Errorf("%q, %d, %v", *cluster, *times, err)
	}
	if text := fl.FlagUsages(); strings.Contains(text, "servers") || strings.Contains(text, "repeat") {
		t.Error(text)
	}
}
