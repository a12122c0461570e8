package db

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/store"
)

// A host does not change tasks by a copy: what asks for it is refused, and not left out.
func TestCopyToAHostHasNoUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lab.db")
	d, err := store.Open(t.Context(), path)
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = cli.Run(t.Context(), []string{"db", "copy", path, "host://127.0.0.1:1", "--update"},
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}, Commands)
	if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "--update") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// What was mended is named with its task, as what was found is.
func TestMendedNamesItsTask(t *testing.T) {
	var out bytes.Buffer
	renderRepair(&out, &RepairReport{}, &store.Repaired{Mended: []store.Finding{{Kind: "chunk", Task: 7, Chunk: 3, What: "torn"}}})
	if want := "mended: task 7, chunk 3: chunk: torn\n"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %q, want %q", &out, want)
	}
}
