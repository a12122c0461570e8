package store

import (
	"errors"
	"fmt"
	"strings"
)

// ErrPattern: a pattern for names cannot be.
var ErrPattern = errors.New("bad pattern")

// maxStars bounds how long a pattern may take over a name.
const maxStars = 16

// namePattern is what a pattern for names asks of a name.
type namePattern struct {
	exact bool
	text  string // the whole name, where exact
	// prefix is what the name begins with, and glob the pattern as SQLite's GLOB
	// wants it; empty where the prefix says it all.
	prefix, glob string
	// onlyLow and onlyHigh: only that end of the prefix's range is to be looked up in
	// an index; with both, neither is.
	onlyLow, onlyHigh bool
	few               bool // few names begin so: their tasks are found name by name
	// reach is how far from its beginning a page of few names is looked for, in ids; 0 for
	// as far as it may be.
	reach int64
}

// parsePattern reads a pattern: * is any text, ? any one character; behind a
// backslash, * and ? and the backslash are themselves. Any other backslash, and
// every other character, is itself.
func parsePattern(s string) (p namePattern, err error) {
	var text, glob strings.Builder // text: up to the first wildcard
	wild, stars, runes := false, 0, []rune(s)
	for i := 0; i < len(runes); i++ {
		switch r := runes[i]; {
		case r == '\\' && i+1 < len(runes) && strings.ContainsRune(`*?\`, runes[i+1]):
			i++
			plain(&text, &glob, runes[i], wild)
		case r == '*' && i > 0 && runes[i-1] == '*' && strings.HasSuffix(glob.String(), "*"):
			// Two stars are one.
		case r == '*' || r == '?':
			if r == '*' {
				stars++
			}
			wild = true
			glob.WriteRune(r)
		default:
			plain(&text, &glob, r, wild)
		}
	}
	if stars > maxStars {
		return p, fmt.Errorf("%w: %d stars: at most %d", ErrPattern, stars, maxStars)
	}
	p = namePattern{exact: !wild, text: text.String(), prefix: text.String(), glob: glob.String()}
	if rest := strings.TrimPrefix(p.glob, globOf(p.prefix)); rest == "*" {
		p.glob = ""
	}
	return p, nil
}

func plain(text, glob *strings.Builder, r rune, wild bool) {
	if !wild {
		text.WriteRune(r)
	}
	glob.WriteString(globOf(string(r)))
}

// globOf is a text as GLOB takes it for itself: a set of one where it would stand
// for more.
func globOf(text string) string {
	return strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]").Replace(text)
}

// where adds the conditions on a name.
func (p namePattern) where(c *conditions) {
	if p.exact {
		c.add("t.name=?", p.text)
		return
	}
	switch low, high := "", ""; { // a sign keeps SQLite from the index
	case p.prefix == "":
	case p.onlyLow && p.onlyHigh: // so put, no database takes it for a range of an index
		c.add("(t.name<? OR t.name>=?) IS NOT TRUE", p.prefix, p.prefix+lastRune)
	default:
		if p.onlyHigh {
			low = "+"
		}
		if p.onlyLow {
			high = "+"
		}
		c.add(low+"t.name>=? AND "+high+"t.name<?", p.prefix, p.prefix+lastRune)
	}
	if p.glob != "" {
		c.add("glob(?, t.name)", p.glob)
	}
}
