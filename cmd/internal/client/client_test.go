package client

import (
	"bytes"
	"os"
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

// A relative path on the command line is one of the working directory, as the shell completes it.
func TestPathsAreThoseOfTheWorkingDirectory(t *testing.T) {
	t.Setenv("WATTMARK_CONFIG", filepath.Join(t.TempDir(), "config.yaml"))
	dir := t.TempDir()
	t.Chdir(dir)
	var out bytes.Buffer
	for _, args := range [][]string{
		{"config", "set", "token_file", "ada.token"}, {"config", "set", "tls_ca", "~/ca.crt"}, {"config", "--json"},
	} {
		if err := cli.Run(t.Context(), args, cli.Streams{Out: &out, Err: &out}, Commands); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{filepath.Join(dir, "ada.token"), filepath.Join(os.Getenv("HOME"), "ca.crt")} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
}
