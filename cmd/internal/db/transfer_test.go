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
