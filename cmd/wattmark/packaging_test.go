package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/spf13/cobra"

	"wattmark/cmd/config"
)

// The configuration files that are installed are understood, also with what
// stands there as a comment.
func TestInstalledConfiguration(t *testing.T) {
	a := &app{}
	root := a.root()
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
		s := serviceFlags{}
		if name == "host" {
			s.more = append([]string{"db"}, trustFlags...)
		}
		said, err := config.Parse(file, text, s.flags(c))
		if err != nil || said.Len() == 0 {
			t.Errorf("%v, %v", said, err)
		}
		all, err := config.Parse(file, commented.ReplaceAll(text, []byte("$1")), s.flags(c))
		if err != nil || all.Len() <= said.Len() {
			t.Errorf("with its comments: %v, %v", all, err)
		}
	}
}
