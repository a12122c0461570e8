package dialect

import "strings"

// kind is what a token is.
type kind byte

const (
	space kind = iota // and comments
	word
	quoted // "name" or 'text'
	number
	param // ? or ?7
	sign
)

type token struct {
	kind kind
	text string
}

// name is what stands in the quotes of a quoted name; empty for all else.
func (t token) name() string {
	if t.kind != quoted || len(t.text) < 2 || t.text[0] != '"' {
		return ""
	}
	return strings.ReplaceAll(t.text[1:len(t.text)-1], `""`, `"`)
}

// is reports whether a token is a word, in any case.
func (t token) is(w string) bool { return t.kind == word && strings.EqualFold(t.text, w) }

// split cuts SQL into tokens; joined, they are the text again.
func split(q string) (out []token) {
	for len(q) > 0 {
		k, n := first(q)
		out = append(out, token{k, q[:n]})
		q = q[n:]
	}
	return out
}

func first(q string) (kind, int) {
	c := q[0]
	switch {
	case strings.HasPrefix(q, "--"):
		if n := strings.IndexByte(q, '\n'); n >= 0 {
			return space, n
		}
		return space, len(q)
	case c == ' ' || c == '\n' || c == '\t' || c == '\r':
		return space, span(q, func(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' })
	case c == '\'' || c == '"':
		return quoted, closing(q, c)
	case letter(c):
		return word, span(q, func(c byte) bool { return letter(c) || digit(c) })
	case digit(c):
		return number, span(q, func(c byte) bool { return digit(c) || c == '.' })
	case c == '?':
		return param, 1 + span(q[1:], digit)
	}
	return sign, 1
}

func letter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80 }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// span returns how many bytes from the first on are of a class.
func span(q string, of func(byte) bool) int {
	for i := range len(q) {
		if !of(q[i]) {
			return i
		}
	}
	return len(q)
}

// closing returns the length of a quoted text, in which a doubled sign stands for itself.
func closing(q string, sign byte) int {
	for i := 1; i < len(q); i++ {
		if q[i] != sign {
			continue
		}
		if i+1 < len(q) && q[i+1] == sign {
			i++
			continue
		}
		return i + 1
	}
	return len(q)
}
