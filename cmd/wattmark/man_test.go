package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/internal/cli"
)

// asText takes a page's own language off it, as far as words go.
var asText = strings.NewReplacer(`\-`, "-", `\(aq`, "'", `\(ga`, "`", `\(dq`, `"`, `\fB`, "", `\fP`, "", `\fR`, "", `\fI`, "", `\[la]`, "<", `\[ra]`, ">", `\&`, "", `\\`, `\`, `\e`, `\`)

var word = regexp.MustCompile(`[\pL\d_.*<>=/:-]{4,}`)

// Every command has its page, with every flag and every word of its help.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	inside(t, "man", dir).ok(t)
	a := &cli.App{Streams: cli.Streams{}}
	root := root(a)
	var check func(*cobra.Command)
	pages := []string{}
	check = func(c *cobra.Command) {
		path := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			return
		}
		pages = append(pages, path)
		page := asText.Replace(string(raw))
		for _, w := range word.FindAllString(c.Short+" "+c.Long+" "+c.Example, -1) {
			if !strings.Contains(page, w) {
				t.Errorf("%s lacks %q", filepath.Base(path), w)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(page, "--"+f.Name) {
				t.Errorf("%s lacks --%s", filepath.Base(path), f.Name)
			}
		})
		if home, err := os.UserHomeDir(); err == nil && len(home) > 1 && strings.Contains(page, `"`+home) {
			t.Errorf("%s names %s", filepath.Base(path), home)
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				check(sub)
			}
		}
	}
	check(root)
	if len(pages) < 30 {
		t.Errorf("only %d pages", len(pages))
	}
	// What man itself runs, once for all pages: a process chain for each takes half a minute.
	c := exec.CommandContext(t.Context(), tool(t, "groff"), append([]string{"-K", "utf8", "-t", "-ww", "-rLL=80n", "-man", "-Tutf8"}, pages...)...)
	c.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	var errs strings.Builder
	c.Stderr = &errs
	if out, err := c.Output(); err != nil || errs.Len() > 0 || !strings.Contains(string(out), "WATTMARK-HOST(1)") {
		t.Errorf("%v: %s", err, errs.String())
	}
}

// noTable lists the commands that print no table: services, and those that write a file
// or a campaign and say where.
var noTable = map[string]bool{
	"wattmark auth cert": true, "wattmark auth init": true, "wattmark auth revoke": true, "wattmark auth token": true,
	"wattmark bench monitor": true, "wattmark certificate make": true, "wattmark certificate schema": true, "wattmark cluster node": true, "wattmark cluster trial": true, "wattmark emulate connect": true,
	"wattmark help": true, "wattmark host": true, "wattmark monitor": true, "wattmark ptd": true, "wattmark relay": true, "wattmark store": true,
	"wattmark instructions delete": true, "wattmark instructions import": true, "wattmark instructions run": true,
}

// The README promises --json where people read tables.
func TestJSONWherePeopleReadTables(t *testing.T) {
	a := &cli.App{Streams: cli.Streams{}}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, s := range c.Commands() {
			walk(s)
		}
		if c.Runnable() && !c.HasSubCommands() && c.Flags().Lookup("json") == nil && !noTable[c.CommandPath()] {
			t.Errorf("%s has no --json", c.CommandPath())
		}
	}
	walk(root(a))
}

// A section of a help.md under a name that no command has would never be shown.
func TestSectionsOfHelpHaveTheirCommand(t *testing.T) {
	files, err := filepath.Glob("../internal/*/help.md")
	if err != nil {
		t.Fatal(err)
	}
	studies, err := filepath.Glob("../internal/study/*/help.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := 0
	for _, name := range append(files, studies...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^# (.+)$`).FindAllStringSubmatch(string(text), -1) {
			sections++
			if c, rest, err := root(&cli.App{}).Find(strings.Fields(m[1])); err != nil || len(rest) > 0 || c.Long+c.Example == "" {
				t.Errorf("%s: no command shows the section %q", name, m[1])
			}
		}
	}
	if sections < 90 {
		t.Errorf("found only %d sections", sections)
	}
}

// A template that is executed anywhere links each method of each type: 12 MB of the program.
func TestProgramExecutesNoTemplate(t *testing.T) {
	t.Parallel()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	linked, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The names of functions stand in a stripped program, too.
	if bytes.Contains(linked, []byte("text/template.(*state).evalField")) || !bytes.Contains(linked, []byte("cobra.(*Command).ExecuteC")) {
		t.Error("the program executes templates, or its functions' names are not to be found")
	}
}
