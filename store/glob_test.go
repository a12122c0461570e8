package store

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, prefix, glob string
		exact                 bool
	}{
		{"gemm", "gemm", "gemm", true},
		{"gemm*", "gemm", "", false},
		{"*", "", "", false},
		{"***", "", "", false},
		{"g*m", "g", "g*m", false},
		{"g?*", "g", "g?*", false},
		{`a\*b`, "a*b", "a[*]b", true},
		{`a\*b*`, "a*b", "", false},
		{`a\b`, `a\b`, `a\b`, true},
		{`a\\*`, `a\`, "", false},
		{`x\`, `x\`, `x\`, true},
		{"[a]*b", "[a]", "[[]a]*b", false},
		{`\?*\*`, "?", "[?]*[*]", false},
	} {
		p := must(parsePattern(c.pattern))(t)
		if p.prefix != c.prefix || p.glob != c.glob || p.exact != c.exact {
			t.Errorf("%s: %+v, want %+v", c.pattern, p, c)
		}
	}
	d := open(t)
	for _, bad := range []string{strings.Repeat("*a", maxStars+1)} {
		_, errs := d.List(t.Context(), ListQuery{Filter: Filter{Name: bad}})
		_, errs2 := d.Totals(t.Context(), Filter{Name: bad})
		_, errs3 := d.Aggregate(t.Context(), AggregateQuery{Filter: Filter{Name: bad}, By: ByUser})
		_, errs4 := d.Selected(t.Context(), Filter{Name: bad}, nil)
		for _, err := range []error{errs, errs2, errs3, errs4} {
			if !errors.Is(err, ErrPattern) {
				t.Errorf("%s: %v, want ErrPattern", bad, err)
			}
		}
	}
	if _, err := d.List(t.Context(), ListQuery{Order: 9}); err == nil {
		t.Error("an order that there is not was taken")
	}
}

// FuzzPattern: a pattern selects what a matcher of our own says, and whatever it
// is it cannot break out of its place.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"gemm*", "*mm?", `a\*b`, "[a-z]", "';--", `\`, "**?**"} {
		f.Add(s, "gemm-fp16")
	}
	f.Add("?", "я")
	f.Add("[*]", "[]]")
	d := open(f)
	f.Fuzz(func(t *testing.T, pattern, name string) {
		p, err := parsePattern(pattern)
		if err != nil || len(pattern) > 64 || len(name) > 64 || !utf8.ValidString(pattern) || !utf8.ValidString(name) || strings.ContainsRune(pattern+name, 0) {
			return
		}
		var c conditions
		p.where(&c)
		var got bool
		ok(t, d.SQL().QueryRow("SELECT count(*) FROM (SELECT ? AS name) t "+c.sql(), append([]any{name}, c.args...)...).Scan(&got))
		if want := glob([]rune(pattern), []rune(name)); got != want {
			t.Errorf("pattern %q, name %q: %v, want %v (%+v)", pattern, name, got, want, p)
		}
	})
}

// glob is the meaning of a pattern, by definition.
func glob(p, s []rune) bool {
	switch {
	case len(p) == 0:
		return len(s) == 0
	case p[0] == '*':
		return glob(p[1:], s) || len(s) > 0 && glob(p, s[1:])
	case len(s) == 0:
		return false
	case p[0] == '?':
		return glob(p[1:], s[1:])
	case p[0] == '\\' && len(p) > 1 && strings.ContainsRune(`*?\`, p[1]):
		return p[1] == s[0] && glob(p[2:], s[1:])
	}
	return p[0] == s[0] && glob(p[1:], s[1:])
}
