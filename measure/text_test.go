package measure

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"gemm fp16, n = 4096":   "gemm fp16, n = 4096",
		"Messung Nr. 5 · 学習 🔌":  "Messung Nr. 5 · 学習 🔌",
		"":                      "",
		"\x1b[2Jgone":           "\uFFFD[2Jgone",
		"\u009b31mred":          "\uFFFD31mred",
		"bell\a, back\b\b":      "bell\uFFFD, back\uFFFD\uFFFD",
		"two\nlines\tand a tab": "two lines and a tab",
		"over\rwritten":         "over\uFFFDwritten",
		"caf\xe9":               "caf\uFFFD",
		"evil\u202etxt.exe":     "evil\uFFFDtxt.exe",
	} {
		if got := Printable(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
		if err := CheckText("name", s); (err == nil) != (s == want) || (err != nil && !errors.Is(err, ErrText)) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b]0;title\a\xff")
	f.Fuzz(func(t *testing.T, s string) {
		p := Printable(s)
		if !utf8.ValidString(p) || Printable(p) != p || CheckText("text", p) != nil {
			t.Errorf("%q becomes %q", s, p)
		}
	})
}

func TestExcerptIsShortAndPrintable(t *testing.T) {
	for _, s := range []string{"", "PMD 7", strings.Repeat("a", 1024), strings.Repeat("é", 5000), strings.Repeat("\xff", 2000), strings.Repeat("\x1b[2J", 500)} {
		got := Excerpt(s)
		if len(got) > 1024 || Printable(got) != got || len(s) <= 1024 && s == Printable(s) && got != s {
			t.Errorf("%.20q: %d bytes, %.40q", s, len(got), got)
		}
	}
}
