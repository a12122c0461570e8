package measure

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Instruments that are read as one come apart as they were.
func TestJoinedIdentities(t *testing.T) {
	for _, parts := range [][]Identity{
		{{Kind: "pmd", Address: "/dev/a"}},
		{{Kind: "pmd", Address: "/dev/a"}, {Kind: "labjack", Model: "T7", Serial: "47", Address: "tcp:h:502"}},
		{{Kind: "nvml"}, {Kind: "nvml"}, {Kind: "pmd"}},
	} {
		if got := JoinIdentities(parts).Parts(); !slices.Equal(got, parts) {
			t.Errorf("%+v became %+v", parts, got)
		}
	}
	odd := Identity{Kind: "a + b", Serial: "1 + 2 + 3"}
	if got := odd.Parts(); len(got) != 1 || got[0] != odd {
		t.Errorf("%+v", got)
	}
	two := JoinIdentities([]Identity{{Kind: "a", Serial: "x + y"}, {Kind: "b"}})
	if got := two.Parts(); len(got) != 2 || got[0].Serial != "x+y" {
		t.Errorf("%+v", got)
	}
}

func TestParseGPUUUID(t *testing.T) {
	const want = "GPU-8f6e1f2a-0b1c-2d3e-4f50-6172839405af"
	for _, s := range []string{want, strings.ToUpper(want), "gpu-8F6E1F2A-0b1c-2d3e-4f50-6172839405af"} {
		if got, err := ParseGPUUUID(s); got != want || err != nil {
			t.Errorf("%s: got %q, %v", s, got, err)
		}
	}
	for s, why := range map[string]string{
		"":                   "not the UUID",
		"0":                  "not the UUID",
		"GPU-8f6e1f2a":       "not the UUID",
		want + "0":           "not the UUID",
		want + "\n":          "not the UUID",
		"MIG-8f6e1f2a/7/0":   "MIG",
		"mig-GPU-8f6e1f2a/1": "MIG",
	} {
		if got, err := ParseGPUUUID(s); got != "" || err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %q, %v", s, got, err)
		}
	}
	if !SameGPU("GPU-AB", "gpu-ab") || SameGPU("", "") || SameGPU("GPU-a", "GPU-b") {
		t.Error("SameGPU")
	}
}

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
