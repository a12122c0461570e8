package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
)

// The configuration files that are installed are understood, also with what
// stands there as a comment.
func TestInstalledConfiguration(t *testing.T) {
	a := &cli.App{}
	root := root(a)
	commented := regexp.MustCompile(`(?m)^# ([a-z_]+:)`)
	for _, name := range []string{"monitor", "host"} {
		file := "../../packaging/config/" + name + ".yaml"
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c *cobra.Command
		if c, _, err = root.Find([]string{name}); err != nil {
			t.Fatal(err)
		}
		if err := c.ParseFlags(nil); err != nil { // the program's own flags are the command's then
			t.Fatal(err)
		}
		s := daemon.ServiceFlags{}
		if name == "host" {
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
