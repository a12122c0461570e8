package wattmark_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// pages returns the documentation of the tree: path to text.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "testdata/*.md", "testdata/h200/instructions/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(text)
		}
	}
	return all
}

// The first block of README is the two commands that set everything up with nothing but Go.
func TestTwoCommands(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?m)(^    .*\n)+`).FindString(string(text))
	lines := strings.Split(block, "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "    go run ./cmd/wattmark demo ") || !strings.HasPrefix(lines[1], "    make test ") {
		t.Errorf("README begins with\n%s", block)
	}
}

// The documentation stays small enough to read: tables of data belong beside their data.
func TestSizeOfPages(t *testing.T) {
	count, words := 0, 0
	for name, text := range pages(t) {
		if strings.HasPrefix(name, "testdata") {
			continue
		}
		n := len(strings.Fields(text))
		if name == "README.md" && n > 1200 {
			t.Errorf("README.md has %d words, above 1200: move to docs/ what a first reader does not need", n)
		}
		count++
		words += n
	}
	if count > 24 || words > 45000 {
		t.Errorf("%d pages of %d words in all, above 24 and 45 000: for what you add, shorten what repeats or is needed "+
			"least, on any page (wc -w *.md docs/*.md); tables of data go beside their data", count, words)
	}
}

var (
	pageLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	imageSrc = regexp.MustCompile(`<img src="([^"]+)"`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fenced   = regexp.MustCompile("(?s)```.*?```")
)

// anchors returns the fragments that the headings of a page define, as GitHub forms them.
func anchors(text string) (out []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		out = append(out, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return out
}

// Relative links lead to files of the tree, and their fragments to headings.
func TestLinksOfPages(t *testing.T) {
	all, links := pages(t), 0
	for name, text := range all {
		for _, m := range slices.Concat(pageLink.FindAllStringSubmatch(text, -1), imageSrc.FindAllStringSubmatch(text, -1)) {
			file, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			links++
			to := name
			if file != "" {
				to = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if fragment != "" && !slices.Contains(anchors(all[to]), fragment) {
				t.Errorf("%s: %s has no heading for #%s", name, to, fragment)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

// helpTexts returns the recorded help of each command by its words, "wattmark db check".
func helpTexts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("cmd/wattmark/testdata/golden/help/*.txt")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files of recorded help: %v", len(files), err)
	}
	help := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split("\n"+string(text), "\n$ ")[1:] {
			command, body, _ := strings.Cut(part, " --help\n")
			help[command] = body
		}
	}
	return help
}

var (
	shown    = regexp.MustCompile("(?m)^ {4,}(?:\\$ )?(?:go run ./cmd/)?(wattmark(?: .*)?)$|`(wattmark [^`]+)`")
	flagName = regexp.MustCompile(`^--[a-z][a-z0-9-]*`)
	breaks   = regexp.MustCompile(` \\\n\s*`)
)

// Commands on the pages exist, with the flags shown.
func TestCommandsOfPages(t *testing.T) {
	help, commands := helpTexts(t), 0
	for name, text := range pages(t) {
		for _, m := range shown.FindAllStringSubmatch(breaks.ReplaceAllString(text, " "), -1) {
			for line := range strings.SplitSeq(m[1]+m[2], "; wattmark ") {
				line, _, _ = strings.Cut(strings.TrimPrefix(line, "wattmark "), "  #")
				commands++
				for _, complaint := range unknown(help, strings.Fields(line)) {
					t.Errorf("%s: wattmark %s: %s", name, line, complaint)
				}
			}
		}
	}
	if commands < 100 {
		t.Errorf("only %d commands were found", commands)
	}
}

// unknown returns the subcommands and flags among words that the recorded help lacks.
func unknown(help map[string]string, words []string) (out []string) {
	command := "wattmark"
	rest := words
	for len(rest) > 0 && help[command+" "+rest[0]] != "" {
		command, rest = command+" "+rest[0], rest[1:]
	}
	parent := strings.Contains(help[command], "Available Commands:") && strings.Contains(help[command], command+" [flags]\n")
	if parent && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return []string{"no such command"}
	}
	if command == "wattmark" && len(words) > 0 && !strings.HasPrefix(words[0], "-") && words[0] != "completion" {
		return []string{"no such command"}
	}
	for _, word := range words {
		if word == "--" || strings.HasPrefix(word, "#") {
			break
		}
		if flag := flagName.FindString(word); flag != "" && flag != "--help" && flag != "--version" &&
			!regexp.MustCompile(`(?m)^\s.*`+flag+`\b`).MatchString(help[command]) {
			out = append(out, command+" has no "+flag)
		}
	}
	return out
}

var (
	treePath = regexp.MustCompile("[` ](?:\\./)?((?:measure|store|analysis|monitor|hostagent|api|cmd|packaging|proto|\\.ci)/[\\w./-]*\\w)")
	testName = regexp.MustCompile(`\bTest[A-Z]\w+`)
)

// Paths on the pages exist in the tree, and so do the tests that they name.
func TestPathsOfPages(t *testing.T) {
	tests := map[string]bool{}
	err := filepath.WalkDir(".", func(name string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, test := range testName.FindAllString(string(text), -1) {
			tests[test] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range pages(t) {
		for _, m := range treePath.FindAllStringSubmatch(text, -1) {
			path := strings.TrimSuffix(m[1], "/...")
			if strings.Contains(path, "NAME") {
				continue
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, test := range testName.FindAllString(text, -1) {
			if !tests[test] {
				t.Errorf("%s: there is no %s", name, test)
			}
		}
	}
}
