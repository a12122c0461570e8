package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/internal/cli"
)

// shellWords splits a line of the shell into its commands, each into words: quotes are taken off, comments,
// redirections and variables before a command are left out.
func shellWords(line string) (commands [][]string) {
	var words []string
	end := func() {
		for len(words) > 0 && regexp.MustCompile(`^\w+=`).MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	token := regexp.MustCompile(`^(?:[^\s;|&'"()<>\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|\$\([^)]*\))+`)
	quotes := regexp.MustCompile(`'([^']*)'|"([^"]*)"|\\(.)`)
	for line != "" {
		switch word := token.FindString(line); {
		case strings.HasPrefix(word, "#"):
			line = line[strings.IndexByte(line+"\n", '\n'):]
			end()
		case word != "":
			words = append(words, quotes.ReplaceAllString(word, "$1$2$3"))
			line = line[len(word):]
		case strings.ContainsRune("\n;|&()", rune(line[0])):
			end()
			line = line[1:]
		case line[0] == '<' || line[0] == '>':
			line = regexp.MustCompile(`^[<>&]+\s*\S*`).ReplaceAllString(line, "")
		default:
			line = line[1:]
		}
	}
	end()
	return commands
}

// parsed checks the words behind "wattmark" as the program would before it works: the command, its flags and the
// values of these, what goes together, and the number of arguments. "…" stands for words that are left out.
func parsed(words []string) error {
	top := root(&cli.App{Streams: cli.Streams{Out: io.Discard, Err: io.Discard}, Args: words})
	top.InitDefaultHelpFlag()
	top.InitDefaultVersionFlag()
	short := false
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { short = short || w == "…"; return w == "…" })
	c, rest, err := top.Find(words)
	if err != nil {
		return err
	}
	c.InitDefaultHelpFlag()
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if !c.Runnable() || c.Flags().Changed("help") || c.Flags().Changed("version") || short {
		return nil
	}
	if c.HasSubCommands() && c.Flags().NArg() > 0 && c.Args == nil {
		return fmt.Errorf("%s has no command %s", c.CommandPath(), c.Flags().Arg(0))
	}
	for _, check := range []func() error{
		func() error { return c.ValidateArgs(c.Flags().Args()) }, c.ValidateRequiredFlags, c.ValidateFlagGroups,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// named checks that a command that the text names exists, and has the flags that are named with it.
func named(words []string) error {
	c, rest, err := root(&cli.App{}).Find(words)
	if err != nil {
		return err
	}
	for _, w := range rest {
		flag, _, _ := strings.Cut(strings.TrimPrefix(w, "--"), "=")
		if strings.HasPrefix(w, "--") && flag != "" && flag != "help" && c.Flags().Lookup(flag) == nil && c.InheritedFlags().Lookup(flag) == nil {
			return fmt.Errorf("%s has no %s", c.CommandPath(), w)
		}
	}
	return nil
}

// lineFault checks a command line of a page or of a help without running it: flags and arguments of wattmark, targets
// of make, folders and tests of go. It returns the first fault.
func lineFault(line string) error {
	line, _, _ = strings.Cut(line, "   ") // in a list of forms what each does
	for _, words := range shellWords(line) {
		var err error
		switch words[0] {
		case "wattmark":
			err = parsed(words[1:])
		case "make":
			err = madeBy(words[1:])
		case "go":
			err = ranByGo(words[1:])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(words, " "), err)
		}
	}
	return nil
}

// madeBy checks the targets of make.
func madeBy(words []string) error {
	rules, err := os.ReadFile("../../Makefile")
	if err != nil {
		return err
	}
	for _, target := range words {
		if !strings.Contains(target, "=") && !regexp.MustCompile(`(?m)^([\w-]+ )*`+regexp.QuoteMeta(target)+`( [\w-]+)*:`).Match(rules) {
			return fmt.Errorf("make has no target %s", target)
		}
	}
	return nil
}

// ranByGo checks the package of go run and go test, the test's name and the test's own flags.
func ranByGo(words []string) error {
	if words[0] != "run" && words[0] != "test" || len(words) < 2 || words[len(words)-1] == "." {
		return nil
	}
	dir, source, own := "", "", false
	for i, w := range words {
		switch {
		case strings.HasPrefix(w, "./") && dir == "":
			dir = filepath.Join("../..", w)
			files, err := filepath.Glob(filepath.Join(dir, "*.go"))
			if err != nil || len(files) == 0 {
				return fmt.Errorf("%s has no package", w)
			}
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					return err
				}
				source += string(text)
			}
		case w == "-run" && words[i+1] != "^$" && !slices.ContainsFunc(regexp.MustCompile(`func (Test\w+)`).FindAllStringSubmatch(source, -1),
			func(m []string) bool { return regexp.MustCompile(words[i+1]).MatchString(m[1]) }):
			return fmt.Errorf("%s has no test %s", dir, words[i+1])
		case w == "-args" || w == "-limit" || w == "-schedules" || w == "-update":
			own = true
		}
		if own && regexp.MustCompile(`^-[a-z]+$`).MatchString(w) && w != "-args" && w != "-seed" &&
			!strings.Contains(source, `"`+w[1:]+`"`) {
			return fmt.Errorf("the tests of %s have no flag %s", dir, w)
		}
	}
	return nil
}

// pagesWithCommands returns the paths of all pages.
func pagesWithCommands(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(names, "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md", "../../testdata/h200/instructions/README.md")
}

// No line of a page is wrong, run by a test or not; no example of a help; and no flag that the text names is none of
// the program's.
func TestLinesOfPagesAreRight(t *testing.T) {
	t.Parallel()
	flags := map[string]bool{"help": true, "version": true}
	var examples []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		examples = append(examples, strings.Split(strings.ReplaceAll(c.Example, "\\\n", ""), "\n")...)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root(&cli.App{}))
	lines := len(examples)
	for _, line := range examples {
		if err := lineFault(line); err != nil {
			t.Error("help: ", err)
		}
	}
	span, flag := regexp.MustCompile("`[^`\n]+`"), regexp.MustCompile(`(?:^|[ `+"`"+`(])--([a-z][a-z0-9-]+)`)
	for _, name := range pagesWithCommands(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocksOf(string(text)) {
			lines += len(b.lines)
			for _, line := range b.lines {
				if err := lineFault(line); err != nil {
					t.Errorf("%s: %v", filepath.Base(name), err)
				}
			}
		}
		for _, s := range span.FindAllString(string(text), -1) {
			if words := strings.Fields(strings.Trim(s, "`")); words[0] == "wattmark" && !strings.ContainsAny(s, "<|") {
				lines++
				if err := named(words[1:]); err != nil {
					t.Errorf("%s: %s: %v", filepath.Base(name), s, err)
				}
			}
			if foreign.MatchString(s) {
				continue
			}
			for _, m := range flag.FindAllStringSubmatch(s, -1) {
				if !flags[m[1]] {
					t.Errorf("%s: %s: wattmark has no --%s", filepath.Base(name), s, m[1])
				}
			}
		}
	}
	t.Logf("%d command lines", lines)
	if lines < 400 {
		t.Errorf("found only %d command lines", lines)
	}
}

// foreign begins what other programs are given.
var foreign = regexp.MustCompile("^`(ncu|nsys|nvidia-smi|nvidia-ctk|docker|podman|go |make|curl|perf|amd-smi|xpu-smi|git|pip|redocly|openssl|ssh|mypy|--print-units)")
