package measure

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// ErrText is wrapped by errors about texts that cannot be shown as they are.
var ErrText = errors.New("not a printable text")

// CheckText refuses a text that is not UTF-8 or holds what a terminal would
// obey rather than show: control characters, escape sequences, marks that turn
// the writing round. what names it in the error.
func CheckText(what, s string) error {
	if Printable(s) != s {
		return fmt.Errorf("%s %q: %w: use printable characters in UTF-8", what, s, ErrText)
	}
	return nil
}

// Printable returns a text that is safe to show on one line of a terminal:
// breaks of lines and tabs become spaces, and whatever else a terminal would
// obey, or is not UTF-8, becomes U+FFFD.
func Printable(s string) string {
	if plain(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// plain reports whether a text is of printable ASCII alone, as nearly all are.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// maxExcerpt bounds what a device or a stranger may say, in bytes.
const maxExcerpt = 1 << 10

// Excerpt is Printable of at most 1 KiB, for what a device or a stranger said.
func Excerpt(s string) string {
	const more = " …"
	if len(s) > maxExcerpt {
		s = Printable(s[:maxExcerpt-len(more)]) + more
	} else {
		s = Printable(s)
	}
	for len(s) > maxExcerpt { // U+FFFD is longer than the byte that it stands for
		s = strings.ToValidUTF8(s[:maxExcerpt-len(more)], "") + more
	}
	return s
}
