package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/monitor/bench"
)

// The configuration files that are installed are understood, also with what
// stands there as a comment.
func TestInstalledConfiguration(t *testing.T) {
	a := &cli.App{}
	root := root(a)
	commented := regexp.MustCompile(`(?m)^# ([a-z_]+:)`)
	if _, err := bench.Load("../../packaging/config/bench.yaml"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"monitor", "host", "relay", "store", "cluster"} {
		file := "../../packaging/config/" + name + ".yaml"
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c *cobra.Command
		if c, _, err = root.Find(strings.Fields(strings.Replace(name, "cluster", "cluster node", 1))); err != nil {
			t.Fatal(err)
		}
		if err := c.ParseFlags(nil); err != nil { // the program's own flags are the command's then
			t.Fatal(err)
		}
		s := daemon.ServiceFlags{}
		if name != "cluster" {
			s.More = append([]string{"db"}, cli.TrustFlags...)
		}
		said, err := config.Parse(file, text, s.Flags(c))
		if err != nil || said.Len() == 0 {
			t.Errorf("%v, %v", said, err)
		}
		all, err := config.Parse(file, commented.ReplaceAll(text, []byte("$1")), s.Flags(c))
		if err != nil || all.Len() <= said.Len() {
			t.Errorf("with its comments: %v, %v", all, err)
		}
	}
}

// The configuration file of each service that speaks to others takes its identity, which the
// units have from nowhere else. The second line's fault ends the command before it opens anything.
func TestConfigurationTakesIdentity(t *testing.T) {
	file := filepath.Join(t.TempDir(), "service.yaml")
	for _, key := range cli.TrustFlags {
		text := strings.ReplaceAll(key, "-", "_") + ": /nowhere\nnonsense: 1\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, service := range []string{"monitor", "host", "relay", "store"} {
			err := execute(t.Context(), []string{service, "--config", file}, cli.Streams{Out: io.Discard, Err: io.Discard})
			if err == nil || !strings.Contains(err.Error(), file+":2:1") {
				t.Errorf("%s, %s: %v", service, key, err)
			}
		}
	}
}
