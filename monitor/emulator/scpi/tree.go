package scpi

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lazy"
)

// Call is one program message unit as a handler gets it.
type Call struct {
	// Suffixes are the numbers in the header, 1 where one was left out: :CHAN2:SCAL has 2.
	Suffixes []int
	// Args are the parameters, without quotes.
	Args []string
}

// Text reads parameter i.
func (c Call) Text(i int) (string, error) {
	if i >= len(c.Args) {
		return "", ErrMissing
	}
	return c.Args[i], nil
}

// Number reads parameter i.
func (c Call) Number(i int) (float64, error) {
	text, err := c.Text(i)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) { // Go's words for them are not SCPI's
		return 0, ErrType
	}
	return v, nil
}

// Bool reads parameter i: ON, OFF, 1 or 0.
func (c Call) Bool(i int) (bool, error) {
	text, err := c.Text(i)
	switch strings.ToUpper(text) {
	case "ON", "1":
		return true, nil
	case "OFF", "0":
		return false, nil
	}
	return false, cmp.Or(err, error(ErrType))
}

// Word reads parameter i as one of the words, given with their short form in capitals, and returns that short form.
func (c Call) Word(i int, words ...string) (string, error) {
	text, err := c.Text(i)
	for _, w := range words {
		if word := strings.ToUpper(text); word == Short(w) || word == strings.ToUpper(w) {
			return Short(w), nil
		}
	}
	return "", cmp.Or(err, error(ErrValue))
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

// Short is the capitals of a pattern.
func Short(pattern string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return -1
		}
		return r
	}, pattern)
}

// node is one word of a pattern: a bracket where it may be left out, the word, and <n> where a number may stand.
var node = lazy.Regexp(`(\[?):?(\*?\w+)(<n>)?:?\]?`)

// compile makes an expression of a pattern that matches headers in capitals, with a colon before each word. Its groups
// are the numbers. A word goes to the first node that it fits.
func compile(pattern string) *regexp.Regexp {
	form := node().ReplaceAllStringFunc(pattern, func(text string) string {
		m := node().FindStringSubmatch(text)
		out := ":(?:" + regexp.QuoteMeta(Short(m[2])) + "|" + regexp.QuoteMeta(strings.ToUpper(m[2])) + ")"
		if m[3] != "" {
			out += `(\d*)`
		}
		if m[1] != "" {
			out = "(?:" + out + ")?"
		}
		return out
	})
	return regexp.MustCompile("^" + form + "$")
}

// match reports whether a header has the form of a command, and returns its numbers.
func (c command) match(header string) (suffixes []int, ok bool) {
	m := c.form.FindStringSubmatch(header)
	if m == nil {
		return nil, false
	}
	for _, digits := range m[1:] {
		n, err := strconv.Atoi(cmp.Or(digits, "1"))
		if err != nil {
			return nil, false
		}
		suffixes = append(suffixes, n)
	}
	return suffixes, true
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
	head, absolute := strings.CutPrefix(head, ":")
	if absolute {
		path = nil
	}
	u.words = slices.Concat(path, strings.Split(head, ":"))
	return u, u.words[:len(u.words)-1]
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

// Take makes a setter that reads parameter 0, which take may refuse.
func Take[T any](read func(Call, int) (T, error), take func(T) error) func(Call) error {
	return func(c Call) error {
		v, err := read(c, 0)
		if err == nil {
			err = take(v)
		}
		return err
	}
}

// Do makes a setter that reads parameter 0 and does something with it.
func Do[T any](read func(Call, int) (T, error), do func(T)) func(Call) error {
	return Take(read, func(v T) error { do(v); return nil })
}

// OneOf reads a parameter as Call.Word does.
func OneOf(words ...string) func(Call, int) (string, error) {
	return func(c Call, i int) (string, error) { return c.Word(i, words...) }
}

// Set makes a setter of a number, which take may refuse or round.
func Set(take func(float64) error) func(Call) error { return Take(Call.Number, take) }

// Put sets a number that must lie between two limits.
func Put[T ~int | ~uint16 | ~float64](at *T, v, least, most float64) error {
	if !(v >= least && v <= most) {
		return ErrRange
	}
	*at = T(v)
	return nil
}

// Within makes a setter of a number between two limits.
func Within[T ~int | ~uint16 | ~float64](at *T, least, most float64) func(Call) error {
	return Set(func(v float64) error { return Put(at, v, least, most) })
}

// Word makes a setter of one of some words, kept in its short form.
func Word(at *string, words ...string) func(Call) error {
	return Do(OneOf(words...), func(w string) { *at = w })
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

// Sole is a setting that has but one value.
func Sole(pattern, word string) Command {
	return Command{Pattern: pattern, Query: Fixed(word), Set: Do(OneOf(word), func(string) {})}
}

// Kept is a setting without an effect, kept in a map by its pattern.
func Kept(at *map[string]string, pattern string, words ...string) Command {
	return Command{
		Pattern: pattern, Set: Do(OneOf(words...), func(w string) { (*at)[pattern] = w }),
		Query: Reply(func() string { return (*at)[pattern] }),
	}
}

// Numeric is a setting that is a number, in a maker's form.
func Numeric(pattern string, form func(float64) string, at *float64, set func(Call) error) Command {
	return Command{Pattern: pattern, Set: set, Query: Reply(func() string { return form(*at) })}
}

// Switch is a setting that is on or off.
func Switch(pattern string, at *bool) Command {
	set := Do(Call.Bool, func(on bool) { *at = on })
	return Command{Pattern: pattern, Set: set, Query: Reply(func() string { return Flag(*at) })}
}

// Whole is a setting that is a whole number between two limits.
func Whole(pattern string, at *int, least, most float64) Command {
	return Command{Pattern: pattern, Query: Show("%d", at), Set: Set(func(v float64) error {
		if v != math.Trunc(v) {
			return ErrRange
		}
		return Put(at, v, least, most)
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

// Headed makes replies begin with their header while on: the pattern with its numbers, in capitals. Where long is not
// nil and false, that is the short form.
func Headed(on, long *bool, all ...Command) []Command {
	for i, c := range all {
		if c.Query == nil {
			continue
		}
		all[i].Query = func(a Call) ([]byte, error) {
			out, err := c.Query(a)
			if out == nil || !*on {
				return out, err
			}
			header := strings.TrimPrefix(strings.NewReplacer("[", "", "]", "").Replace(c.Pattern), ":")
			for _, n := range a.Suffixes {
				header = strings.Replace(header, "<n>", strconv.Itoa(n), 1)
			}
			if long != nil && !*long {
				header = Short(header)
			}
			return append([]byte(":"+strings.ToUpper(header)+" "), out...), err
		}
	}
	return all
}

// Flag is the text of a truth value.
func Flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
