package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *App) manCmd() *cobra.Command {
	return a.JSONFlag(&cobra.Command{
		Use: "man DIR", Short: "Write the manual pages of all commands", Args: cobra.ExactArgs(1),
		Long: `Write a manual page of section 1 for each command into a folder, which is made
where it is missing. make install-man does it; those of the C library are in
docs/man, and make install-lib installs them.

SOURCE_DATE_EPOCH sets their date.`,
		Example: "  wattmark man /usr/local/share/man/man1\n  wattmark man /tmp/man && man -l /tmp/man/wattmark-run.1",
		RunE: func(c *cobra.Command, args []string) error {
			pages, err := writeMan(c.Root(), args[0])
			switch {
			case err != nil:
				return fmt.Errorf("man: %w", err)
			case a.JSON:
				return a.PrintJSON(map[string]any{"directory": args[0], "pages": pages})
			}
			_, err = fmt.Fprintf(a.Out, "%d pages in %s\n", pages, args[0])
			return err
		},
	})
}

// writeMan writes the manual pages of root and of all commands below it into dir, which it makes, and returns their
// number. They do not depend on the machine: the home folder in defaults is written as ~.
func writeMan(root *cobra.Command, dir string) (int, error) {
	now := time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		s, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("SOURCE_DATE_EPOCH=%s is not a time in seconds", epoch)
		}
		now = time.Unix(s, 0)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	pages := 0
	var write func(c *cobra.Command) error
	write = func(c *cobra.Command) error {
		if c != root && !c.IsAvailableCommand() {
			return nil
		}
		name := filepath.Join(dir, manName(c)+".1")
		if err := os.WriteFile(name, []byte(manPage(c, now)), 0o644); err != nil {
			return err
		}
		pages++
		for _, sub := range c.Commands() {
			if err := write(sub); err != nil {
				return err
			}
		}
		return nil
	}
	return pages, write(root)
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// roff escapes the characters that roff does not take as they are, amid a line.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`)

// roffLine returns text as a line of its own. After \& a full stop or an apostrophe does not begin a macro.
func roffLine(text string) string {
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + roff.Replace(text) + "\n"
	}
	return roff.Replace(text) + "\n"
}

// manPage returns the page of c in the macros of man(7).
func manPage(c *cobra.Command, date time.Time) string {
	c.InitDefaultHelpFlag()
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 %q %q wattmark\n", roff.Replace(strings.ToUpper(manName(c))),
		date.UTC().Format("Jan 2006"), "wattmark "+Release)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n.SH DESCRIPTION\n", roff.Replace(manName(c)),
		roff.Replace(c.Short), roff.Replace(c.UseLine()))
	manText(&b, cmp.Or(c.Long, c.Short+"."))
	for _, s := range append(flagSections(c), flagSection{"Global flags", c.InheritedFlags()}) {
		if s.Flags.HasAvailableFlags() {
			fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(s.Title))
			s.Flags.VisitAll(func(f *pflag.Flag) { manFlag(&b, f) })
		}
	}
	if c.HasExample() {
		b.WriteString(".SH EXAMPLES\n")
		manText(&b, c.Example)
	}
	var also []string
	if c.HasParent() {
		also = append(also, manName(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			also = append(also, manName(sub))
		}
	}
	for i, name := range also {
		also[i] = ".BR " + roff.Replace(name) + " (1)"
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", strings.Join(also, " ,\n"))
	return b.String()
}

// manText writes paragraphs; lines that are indented keep their form.
func manText(b *strings.Builder, text string) {
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		fixed := false
		b.WriteString(".PP\n")
		for line := range strings.SplitSeq(paragraph, "\n") {
			if indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"); indented != fixed {
				b.WriteString(map[bool]string{true: ".EX\n", false: ".EE\n"}[indented])
				fixed = indented
			}
			b.WriteString(roffLine(line))
		}
		if fixed {
			b.WriteString(".EE\n")
		}
	}
}

// manFlag writes a flag, its value's kind, its default and its usage.
func manFlag(b *strings.Builder, f *pflag.Flag) {
	if f.Hidden || f.Deprecated != "" {
		return
	}
	kind, usage := pflag.UnquoteUsage(f)
	b.WriteString(".TP\n\\fB")
	if f.Shorthand != "" {
		b.WriteString(`\-` + f.Shorthand + `\fR, \fB`)
	}
	b.WriteString(roff.Replace("--"+f.Name) + `\fR`)
	if kind != "" {
		b.WriteString(` \fI` + roff.Replace(kind) + `\fR`)
	}
	value := f.DefValue
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		value = strings.ReplaceAll(value, home, "~")
	}
	if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, value) {
		usage += " (default " + value + ")"
	}
	b.WriteString("\n" + roffLine(usage))
}
