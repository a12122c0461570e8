package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const manual = "../../docs/man"

var (
	comment     = regexp.MustCompile(`(?s)/\*.*?\*/`)
	declaration = regexp.MustCompile(`(?m)^(?:const )?(?:void|int|char) [*]?(\w+)\([^)]*\);`)
	field       = regexp.MustCompile(`(\w+)(?:\[\w+\])?(?:, (\w+))?;`)
)

// pages returns the manual's pages by name, and the page of each name in them.
func pages(t *testing.T) (text, of map[string]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(manual, "*.3"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	text, of = map[string]string{}, map[string]string{}
	names := regexp.MustCompile(`(?m)^\.SH NAME\n(.*) \\- .`)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		page := strings.TrimSuffix(filepath.Base(f), ".3")
		text[page] = string(b)
		m := names.FindStringSubmatch(string(b))
		if m == nil {
			t.Fatalf("%s has no line NAME", f)
		}
		all := strings.Split(m[1], ", ")
		if all[0] != page {
			t.Errorf("%s begins with %s", f, all[0])
		}
		for _, n := range all {
			if of[n] != "" {
				t.Errorf("%s is in %s.3 and %s.3", n, of[n], page)
			}
			of[n] = page
		}
	}
	return text, of
}

// Every function of the headers has a page, as it is declared; every field of their
// structures and every code is told of; and every page that is pointed at is there.
func TestManual(t *testing.T) {
	text, of := pages(t)
	seen := 2 // wattmark and power themselves
	for _, header := range []string{"wattmark.h", "power.h"} {
		b, err := os.ReadFile(header)
		if err != nil {
			t.Fatal(err)
		}
		code := comment.ReplaceAllString(string(b), "")
		for _, m := range declaration.FindAllStringSubmatch(code, -1) {
			seen++
			page := text[of[m[1]]]
			want := ".B " + strings.Join(strings.Fields(m[0]), " ") + "\n"
			if !strings.Contains(page, want) || !strings.Contains(page, "#include <"+header+">") {
				t.Errorf("no page has %s of %s", want, header)
			}
		}
		for name, page := range map[string]string{"wm_options": "wm_begin", "wm_result": "wm_end", "record": "P_waitData"} {
			if _, body, ok := strings.Cut(code, "struct "+name+" {"); ok {
				body, _, _ = strings.Cut(body, "}")
				for _, m := range field.FindAllStringSubmatch(body, -1) {
					for _, f := range slices.DeleteFunc(m[1:], func(s string) bool { return s == "" }) {
						if !regexp.MustCompile(`(?m)^\.IR? (.*" )?` + f + `\b`).MatchString(text[page]) {
							t.Errorf("%s.3 lacks %s of %s", page, f, name)
						}
					}
				}
			}
		}
		for _, m := range regexp.MustCompile(`(WM_E_\w+) = (\d+)`).FindAllStringSubmatch(code, -1) {
			if !strings.Contains(text["wattmark"], ".BR "+m[1]+` " (`+m[2]+`)"`) {
				t.Errorf("wattmark.3 lacks %s (%s)", m[1], m[2])
			}
		}
	}
	if seen != len(of) {
		t.Errorf("%d functions are declared, %d names have pages: %v", seen, len(of), of)
	}
	for page, s := range text {
		for _, m := range regexp.MustCompile(`(?m)^\.BR (\w+) \(3\)`).FindAllStringSubmatch(s, -1) {
			if of[m[1]] == "" && m[1] != "exit" && m[1] != "exec" {
				t.Errorf("%s.3 points at %s(3)", page, m[1])
			}
		}
	}
}

// man itself has nothing to complain of.
func TestManualSyntax(t *testing.T) {
	if _, err := exec.LookPath("man"); err != nil {
		skipTool(t, "no man here: the pages' syntax is not looked at")
	}
	text, _ := pages(t)
	for page := range text {
		c := exec.CommandContext(t.Context(), "man", "--warnings", "-E", "UTF-8", "-P", "cat", "-l", filepath.Join(manual, page+".3"))
		c.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8", "MANROFFOPT=")
		var errs strings.Builder
		c.Stderr = &errs
		out, err := c.Output()
		if err != nil || errs.Len() > 0 || !strings.Contains(string(out), strings.ToUpper(page)+"(3)") {
			t.Errorf("%s: %v\n%s", page, err, errs.String())
		}
	}
}

// What is installed has a page for every name, and make knows them all.
func TestManualIsInstalled(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		skipTool(t, "no make here")
	}
	_, of := pages(t)
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "make", "-C", "../..", "install-man3", "DESTDIR="+dir, "PREFIX=/usr")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, page := range of {
		b, err := os.ReadFile(filepath.Join(dir, "usr/share/man/man3", name+".3"))
		if err != nil || (name != page && string(b) != ".so man3/"+page+".3\n") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
