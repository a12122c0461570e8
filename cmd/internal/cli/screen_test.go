package cli

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

func TestWrapped(t *testing.T) {
	for line, want := range map[string]string{
		"short\n": "short\n",
		"the energy of the work is 95.3 J ± 2.3 J, or so\n":   "the energy of the work is\n95.3 J ± 2.3 J, or so\n",
		"  quality  doubtful: no start marker was found\n":    "  quality  doubtful: no start\n           marker was found\n",
		"  caution: one run of each, and no more\n":           "  caution: one run of each,\n    and no more\n",
		" a    b │ c                      d  e\n":             " a    b │ c                      d  e\n",
		"  by  wattmark run --kernel 'gemm|attention' -- x\n": "  by  wattmark run --kernel\n      'gemm|attention' -- x\n",
		"  80 W | a plot of ASCII alone      |\n":             "  80 W | a plot of ASCII alone      |\n",
		"a prompt without an end that is long [y/N] ":         "a prompt without an end that\nis long [y/N] ",
	} {
		got := wrapped(line, 30)
		if got != want {
			t.Errorf("%q:\n%q, want\n%q", line, got, want)
		}
		for l := range strings.SplitSeq(got, "\n") {
			if ansi.StringWidth(l) > 30 && !strings.Contains(l, "│") && !strings.Contains(l, " |") {
				t.Errorf("%q is %d wide", l, ansi.StringWidth(l))
			}
		}
	}
}

// Help is wrapped once, however its source is broken.
func TestHelpIsWrappedOnce(t *testing.T) {
	for text, want := range map[string]string{
		"A task for each GPU, and a\ngroup with their total.\n\nMore.":          "A task for each GPU, and a group with their total.\n\nMore.",
		"Formats:\n\n  csv   device time, and\n        power\n  arrow the same": "Formats:\n\n  csv   device time, and power\n  arrow the same",
		"Do:\n  wattmark demo\n  wattmark tasks\nthen that.":                    "Do:\n  wattmark demo\n  wattmark tasks\nthen that.",
		"all:\n* one\n- two\n--three":                                           "all:\n* one\n- two --three",
	} {
		if got := joined(text); got != want {
			t.Errorf("%q:\n%q, want\n%q", text, got, want)
		}
	}
}

func TestPieces(t *testing.T) {
	var b strings.Builder
	s := &Screen{w: &b, Columns: 20}
	for _, piece := range []string{"  clock    ", "markers: ", "12 ms added", "\nNext? ", "y\n"} {
		if _, err := s.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.String(); got != "  clock    markers: \n  12 ms added\nNext? y\n" {
		t.Errorf("%q", got)
	}
}

// Without UTF-8 in the locale the output is ASCII; an unset one is UTF-8.
func TestLocale(t *testing.T) {
	for _, c := range []struct {
		all, ctype, lang string
		want             bool
	}{
		{"", "", "", false},
		{"C", "", "en_US.UTF-8", true},
		{"", "", "POSIX", true},
		{"", "de_DE.utf8", "C", false},
		{"C.UTF-8", "", "C", false},
		{"", "", "de_DE.ISO-8859-1", true},
	} {
		t.Setenv("LC_ALL", c.all)
		t.Setenv("LC_CTYPE", c.ctype)
		t.Setenv("LANG", c.lang)
		if got := wantsASCII(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if got := ToASCII("╭─┤ 1 ± 2 µs × 3"); got != ".-| 1 +- 2 us x 3" {
		t.Error(got)
	}
}

// ASCII has a sign for each that pictures are drawn of.
func TestPicturesInASCII(t *testing.T) {
	for _, r := range ToASCII("─━│┤┼╭╮╰╯═■±▁▂▃▄▅▆▇█→✓") {
		if r > 126 {
			t.Errorf("%c stays", r)
		}
	}
}
