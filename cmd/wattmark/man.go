package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

func (a *app) manCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages of all commands", Args: cobra.ExactArgs(1),
		Long: `Write a manual page of section 1 for each command into a folder, which is made
where it is missing. make install-man does it; those of the C library are in
docs/man, and make install-lib installs them.

SOURCE_DATE_EPOCH sets their date.`,
		Example: "  wattmark man /usr/local/share/man/man1\n  wattmark man /tmp/man && man -l /tmp/man/wattmark-run.1",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.man(cmd.Root(), args[0]) },
	}
	return a.jsonFlag(c)
}

func (a *app) man(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("man: %w", err)
	}
	forEverybody(root)
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "wattmark " + release, Manual: "wattmark"}, dir); err != nil {
		return fmt.Errorf("man: %w", err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "wattmark*.1"))
	if err != nil {
		return fmt.Errorf("man: %w", err)
	}
	if a.json {
		return a.printJSON(map[string]any{"directory": dir, "pages": len(pages)})
	}
	_, err = fmt.Fprintf(a.out, "%d pages in %s\n", len(pages), dir)
	return err
}

// forEverybody takes out of the commands what belongs to who writes the pages: the
// home folder in defaults, and the day.
func forEverybody(c *cobra.Command) {
	c.DisableAutoGenTag = true
	home, err := os.UserHomeDir()
	if err == nil && home != "/" {
		plain := func(f *pflag.Flag) { f.DefValue = strings.ReplaceAll(f.DefValue, home, "~") }
		c.Flags().VisitAll(plain)
		c.PersistentFlags().VisitAll(plain)
	}
	for _, sub := range c.Commands() {
		forEverybody(sub)
	}
}
