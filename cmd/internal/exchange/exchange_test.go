package exchange

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/measure/marker"
)

// The copy of an input that cannot be read twice has no name while it is read: nothing of it
// is left, however the program ends.
func TestCopiesOfInputsHaveNoName(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system has no path of an open file")
	}
	t.Setenv("TMPDIR", t.TempDir())
	file, done, err := importFile(t.Context(), "-", strings.NewReader("t_s,gpu_w\n0,1\n"))
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) != 0 {
		t.Errorf("%v lies there, %v", left, err)
	}
	for range 2 {
		if b, err := os.ReadFile(file); err != nil || string(b) != "t_s,gpu_w\n0,1\n" {
			t.Errorf("it holds %q", b)
		}
	}
	if err := done(); err != nil {
		t.Error(err)
	}
}

// An import that is interrupted reads no further, also where its input never ends.
func TestInterruptedImportReadsNoFurther(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := errors.New("asked to end")
	path := filepath.Join(t.TempDir(), "x.csv")
	if err := os.WriteFile(path, []byte("t_s,gpu_w\n0,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := (&source{ctx: ctx, file: path}).open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	endless, end := io.Pipe()
	defer end.Close()
	cancel(asked)
	if _, err := io.ReadAll(f); !errors.Is(err, asked) {
		t.Errorf("a file: %v", err)
	}
	if _, _, err := importFile(ctx, "-", io.MultiReader(strings.NewReader("t_s,gpu_w\n"), endless)); !errors.Is(err, asked) {
		t.Errorf("a pipe: %v", err)
	}
}

// Marks amid long work are part of a recording.
func TestHostSideWithMarks(t *testing.T) {
	h, err := readHostSide(strings.NewReader(`{"started":"2026-11-28T00:00:00Z","kernels":[{"name":"k","start":"2026-11-28T00:00:01Z",
		"end":"2026-11-28T00:00:02Z"}],"played":[{"kind":3,"number":1,"chip":0,"at":"2026-11-28T00:00:01Z"}]}`), "")
	if err != nil || h.Played[0].Kind != marker.Mark {
		t.Errorf("%+v, %v", h, err)
	}
}

// FuzzHostSide parses host.json: what is accepted can be a task.
func FuzzHostSide(f *testing.F) {
	for _, name := range []string{"pulse", "markers/1"} {
		b, err := os.ReadFile(filepath.Join("../../../testdata/h200", name, HostFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHostSide(bytes.NewReader(b), "")
		if (h == nil) == (err == nil) {
			t.Fatalf("%v, %v", h, err)
		}
		if h != nil && (h.Started.IsZero() || len(h.Kernels) == 0 || h.Kernels[0].End.Before(h.Kernels[0].Start)) {
			t.Errorf("accepted %+v", h)
		}
	})
}

// Binary formats are not written to a terminal; text is, and the missing database comes up then.
func TestBinaryFormatsOnATerminal(t *testing.T) {
	for format, refused := range map[string]bool{
		"csv": false, "kernels": false, "parquet": true, "arrow": true, "arrow-stream": true, "perfetto": true,
	} {
		a := &cli.App{DB: filepath.Join(t.TempDir(), "none.db"), Streams: cli.Streams{Out: &cli.Screen{Terminal: true}, Err: io.Discard}}
		err := export(t.Context(), a, []string{"1"}, exportFlags{format: format, output: "-"})
		if err == nil || strings.Contains(err.Error(), "name a file with -o") != refused {
			t.Errorf("%s: %v", format, err)
		}
	}
}
