package client

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
)

// A database's password is kept, and not shown: output is copied into reports.
func TestPasswordIsNotShown(t *testing.T) {
	t.Setenv("WATTMARK_CONFIG", filepath.Join(t.TempDir(), "config.yaml"))
	for _, args := range [][]string{
		{"config", "set", "db", "postgres://ada:secret@lab/power"}, {"config"}, {"config", "--json"},
	} {
		var out, errs bytes.Buffer
		s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}
		if err := cli.Run(t.Context(), args, s, Commands); err != nil {
			t.Fatal(err)
		}
		if text := out.String() + errs.String(); strings.Contains(text, "secret") || len(args) != 4 &&
			!strings.Contains(text, "postgres://ada@lab/power") {
			t.Errorf("%v: %s", args, text)
		}
	}
}
