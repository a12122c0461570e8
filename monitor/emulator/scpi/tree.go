package scpi

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Call is one program message unit as a handler gets it.
type Call struct {
	// Suffixes are the numbers in the header, 1 where one was left out:
	// :CHAN2:SCAL has 2.
	Suffixes []int
	// Args are the parameters, without quotes.
	Args []string
}

// Number reads parameter i.
func (c Call) Number(i int) (float64, error) {
	if i >= len(c.Args) {
		return 0, ErrMissing
	}
	v, err := strconv.ParseFloat(c.Args[i], 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) { // Go's words for them are not SCPI's
		return 0, ErrType
	}
	return v, nil
}

// Bool reads parameter i: ON, OFF, 1 or 0.
func (c Call) Bool(i int) (bool, error) {
	if i >= len(c.Args) {
		return false, ErrMissing
	}
	switch strings.ToUpper(c.Args[i]) {
	case "ON", "1":
		return true, nil
	case "OFF", "0":
		return false, nil
	}
	return false, ErrType
}

// Word reads parameter i as one of the words, given with their short form in
// capitals, and returns that short form.
func (c Call) Word(i int, words ...string) (string, error) {
	if i >= len(c.Args) {
		return "", ErrMissing
	}
	for _, w := range words {
		if (node{pattern: w}).matches(c.Args[i]) {
			return Short(w), nil
		}
	}
	return "", ErrValue
}

// Command is one header of the tree. Pattern has the short form in capitals,
// <n> where a number may stand, and brackets around nodes that may be left out:
// "TIMebase[:MAIN]:SCALe", "CHANnel<n>:OFFSet". A nil handler means that the
// header has no such form. A query may give both a reply and an error.
type Command struct {
	Pattern string
	Set     func(Call) error
	Query   func(Call) ([]byte, error)
	// Pause, which may be nil, is asked once Set is done: the instrument carries
	// out no more of this client's messages for so long, and then asks again,
	// until it gives zero. Other clients are served meanwhile.
	Pause func() time.Duration
}

// node is one word of a pattern.
type node struct {
	pattern            string
	numbered, optional bool
}

// Short is the capitals of a pattern.
func Short(pattern string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return -1
		}
		return r
	}, pattern)
}

// matches reports whether a word is the node's long or short form, in upper or lower case.
func (n node) matches(word string) bool {
	word = strings.ToUpper(word)
	return word == Short(n.pattern) || word == strings.ToUpper(n.pattern)
}

// match reports whether a word of a header is this node, and its number.
func (n node) match(word string) (suffix int, ok bool) {
	if n.matches(word) {
		return 1, true
	}
	if !n.numbered {
		return 0, false
	}
	i := strings.IndexAny(word, "0123456789")
	if i < 1 || !n.matches(word[:i]) {
		return 0, false
	}
	v, err := strconv.Atoi(word[i:])
	return v, err == nil
}

// compile splits a pattern. It panics on one that is malformed: patterns are
// part of the program.
func compile(pattern string) (nodes []node) {
	rest := strings.TrimPrefix(pattern, ":")
	for rest != "" {
		var n node
		var word string
		if inner, ok := strings.CutPrefix(rest, "["); ok {
			word, rest, ok = strings.Cut(inner, "]")
			if !ok {
				panic(fmt.Sprintf("scpi: pattern %q: a bracket does not close", pattern))
			}
			n.optional = true
			word = strings.Trim(word, ":")
		} else if i := strings.IndexAny(rest, ":["); i >= 0 {
			word, rest = rest[:i], rest[i:]
		} else {
			word, rest = rest, ""
		}
		rest = strings.TrimPrefix(rest, ":")
		n.pattern, n.numbered = strings.CutSuffix(word, "<n>")
		nodes = append(nodes, n)
	}
	return nodes
}

// match reports whether the words of a header are the nodes of a pattern. A node that may be left out
// is first tried with the next word and then without it, so that a word goes to the first node it fits.
func match(nodes []node, words []string) (suffixes []int, ok bool) {
	if len(nodes) == 0 {
		return nil, len(words) == 0
	}
	n := nodes[0]
	if len(words) > 0 {
		if v, ok := n.match(words[0]); ok {
			if rest, ok := match(nodes[1:], words[1:]); ok {
				if n.numbered {
					rest = append([]int{v}, rest...)
				}
				return rest, true
			}
		}
	}
	if !n.optional {
		return nil, false
	}
	rest, ok := match(nodes[1:], words)
	if ok && n.numbered {
		rest = append([]int{1}, rest...)
	}
	return rest, ok
}

// unit is one program message unit.
type unit struct {
	words []string
	query bool
	args  []string
}

// split parses one unit, whose header stands below path unless it begins with a
// colon, and returns the path for the next.
func split(text string, path []string) (u unit, next []string) {
	head, args, _ := strings.Cut(strings.TrimSpace(text), " ")
	if i := strings.IndexByte(head, '\t'); i >= 0 {
		head, args = head[:i], head[i+1:]+" "+args
	}
	head, u.query = strings.CutSuffix(head, "?")
	u.args = arguments(args)
	if strings.HasPrefix(head, "*") {
		u.words = []string{head}
		return u, path
	}
	// A header without a colon in front stands beside the one before it in the message.
	absolute := strings.HasPrefix(head, ":")
	words := strings.Split(strings.TrimPrefix(head, ":"), ":")
	if !absolute {
		words = append(append([]string(nil), path...), words...)
	}
	u.words = words
	return u, words[:len(words)-1]
}

// arguments splits parameters at commas outside of quotes and parentheses.
func arguments(s string) []string {
	if s = strings.TrimSpace(s); s == "" {
		return nil
	}
	out := cut(s, ',')
	for i, p := range out { // without blanks and quotes
		p = strings.TrimSpace(p)
		if n := len(p); n >= 2 && p[0] == p[n-1] && (p[0] == '"' || p[0] == '\'') {
			p = p[1 : n-1]
		}
		out[i] = p
	}
	return out
}

// cut splits at a mark outside of quotes, and at commas outside of parentheses, too.
func cut(s string, mark rune) (out []string) {
	var quoted rune
	open, start := false, 0
	for i, r := range s {
		switch {
		case quoted != 0 && r == quoted:
			quoted = 0
		case quoted == 0 && (r == '"' || r == '\''):
			quoted = r
		case quoted == 0 && (r == '(' || r == ')'):
			open = mark == ',' && r == '('
		case quoted == 0 && !open && r == mark:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

// Store makes a setter that reads parameter 0 and keeps it.
func Store[T any](read func(Call, int) (T, error), at *T) func(Call) error {
	return func(c Call) error {
		v, err := read(c, 0)
		if err == nil {
			*at = v
		}
		return err
	}
}

// Set makes a setter of a number, which take may refuse or round.
func Set(take func(float64) error) func(Call) error {
	return func(c Call) error {
		v, err := c.Number(0)
		if err == nil {
			err = take(v)
		}
		return err
	}
}

// Within makes a setter of a number between two limits.
func Within(at *float64, least, most float64) func(Call) error {
	return Set(func(v float64) error {
		if !(v >= least && v <= most) {
			return ErrRange
		}
		*at = v
		return nil
	})
}

// Word makes a setter of one of some words, kept in its short form.
func Word(at *string, words ...string) func(Call) error {
	return Store(func(c Call, i int) (string, error) { return c.Word(i, words...) }, at)
}

// Reply makes a query of a function's text.
func Reply(text func() string) func(Call) ([]byte, error) {
	return func(Call) ([]byte, error) { return []byte(text()), nil }
}

// Show makes a query of a value in a form of package fmt.
func Show[T any](format string, at *T) func(Call) ([]byte, error) {
	return func(Call) ([]byte, error) { return Text(format, *at) }
}

// Number makes a query of a number.
func Number(at *float64) func(Call) ([]byte, error) {
	return Reply(func() string { return Exponent(*at) })
}

// Fixed makes a query with a constant answer.
func Fixed(v string) func(Call) ([]byte, error) { return Reply(func() string { return v }) }

// Choice is a setting that is one of some words.
func Choice(pattern string, at *string, words ...string) Command {
	return Command{Pattern: pattern, Set: Word(at, words...), Query: Show("%s", at)}
}

// Kept is a setting without an effect, kept in a map by its pattern.
func Kept(at *map[string]string, pattern string, words ...string) Command {
	return Command{Pattern: pattern, Set: func(c Call) error {
		w, err := c.Word(0, words...)
		if err == nil {
			(*at)[pattern] = w
		}
		return err
	}, Query: Reply(func() string { return (*at)[pattern] })}
}

// Switch is a setting that is on or off.
func Switch(pattern string, at *bool) Command {
	return Command{Pattern: pattern, Set: Store(Call.Bool, at), Query: Reply(func() string { return Flag(*at) })}
}

// Whole is a setting that is a whole number between two limits.
func Whole(pattern string, at *int, least, most float64) Command {
	return Command{Pattern: pattern, Query: Show("%d", at), Set: Set(func(v float64) error {
		if n := int(v); !(v >= least && v <= most) || v != float64(n) {
			return ErrRange
		}
		*at = int(v)
		return nil
	})}
}

// Action is a command without a parameter.
func Action(pattern string, do func()) Command {
	return Command{Pattern: pattern, Set: func(Call) error { do(); return nil }}
}

// Asked is a query without a command of its own.
func Asked(pattern string, answer func() string) Command {
	return Command{Pattern: pattern, Query: Reply(answer)}
}

// Flag is the text of a truth value.
func Flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
