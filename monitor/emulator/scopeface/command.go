package scopeface

import (
	"math"
	"strings"

	"wattmark/monitor/emulator/scpiface"
)

type (
	call    = scpiface.Call
	command = scpiface.Command
)

// On makes a setter of the channel that a header names by its first number.
func (s *Scope) On(set func(*Channel, scpiface.Call) error) func(scpiface.Call) error {
	return func(c call) error {
		if n := c.Suffixes[0]; n < 1 || n > len(s.Channel) {
			return scpiface.ErrUndefined
		}
		return set(&s.Channel[c.Suffixes[0]-1], c)
	}
}

// Of makes a query of the channel that a header names.
func (s *Scope) Of(get func(*Channel) ([]byte, error)) func(scpiface.Call) ([]byte, error) {
	return func(c call) ([]byte, error) {
		if n := c.Suffixes[0]; n < 1 || n > len(s.Channel) {
			return nil, scpiface.ErrUndefined
		}
		return get(&s.Channel[c.Suffixes[0]-1])
	}
}

// Keep is a channel's setting that is one of some words.
func (s *Scope) Keep(pattern string, at func(*Channel) *string, words ...string) scpiface.Command {
	return command{
		Pattern: pattern,
		Set:     s.On(func(ch *Channel, c call) error { return Word(at(ch), words...)(c) }),
		Query:   s.Of(func(ch *Channel) ([]byte, error) { return []byte(*at(ch)), nil }),
	}
}

// Value is a channel's setting that is a number; set refuses or rounds it, and
// get is what is told.
func (s *Scope) Value(pattern string, get func(*Channel) float64, set func(*Channel, float64) error) scpiface.Command {
	return command{
		Pattern: pattern,
		Set: s.On(func(ch *Channel, c call) error {
			v, err := c.Number(0)
			if err != nil {
				return err
			}
			return set(ch, v)
		}),
		Query: s.Of(func(ch *Channel) ([]byte, error) { return scpiface.Text("%s", scpiface.Exponent(get(ch))) }),
	}
}

// Display is the setting that puts a channel on the screen; changed is called
// where that changes the share of memory.
func (s *Scope) Display(pattern string, changed func()) scpiface.Command {
	return command{
		Pattern: pattern,
		Set: s.On(func(ch *Channel, c call) error {
			v, err := c.Bool(0)
			if err == nil && ch.Shown != v {
				ch.Shown = v
				changed()
			}
			return err
		}),
		Query: s.Of(func(ch *Channel) ([]byte, error) { return []byte(Flag(ch.Shown)), nil }),
	}
}

// Source reads a channel's name behind a word such as CHANnel, into its index.
func (s *Scope) Source(at *int, name string) func(scpiface.Call) error {
	return func(c call) error {
		if len(c.Args) == 0 {
			return scpiface.ErrMissing
		}
		long, w := strings.ToUpper(name), strings.ToUpper(c.Args[0])
		short := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' {
				return -1
			}
			return r
		}, name)
		if rest, ok := strings.CutPrefix(w, long); ok {
			w = rest
		} else if w, ok = strings.CutPrefix(w, short); !ok {
			return scpiface.ErrValue
		}
		if len(w) != 1 || w[0] < '1' || int(w[0]-'0') > len(s.Channel) {
			return scpiface.ErrValue
		}
		*at = int(w[0] - '1')
		return nil
	}
}

// Do makes a setter of what needs no parameter.
func Do(a func()) func(scpiface.Call) error { return func(call) error { a(); return nil } }

// Word makes a setter of one of some words, kept in its short form.
func Word(at *string, words ...string) func(scpiface.Call) error {
	return func(c call) error {
		w, err := c.Word(0, words...)
		if err == nil {
			*at = w
		}
		return err
	}
}

// Set makes a setter of a number.
func Set(take func(float64) error) func(scpiface.Call) error {
	return func(c call) error {
		v, err := c.Number(0)
		if err == nil {
			err = take(v)
		}
		return err
	}
}

// Told makes a query of what a function says.
func Told(say func() string) func(scpiface.Call) ([]byte, error) {
	return func(call) ([]byte, error) { return []byte(say()), nil }
}

// Text makes a query of a word.
func Text(at *string) func(scpiface.Call) ([]byte, error) {
	return func(call) ([]byte, error) { return []byte(*at), nil }
}

// Fixed makes a query of what never changes.
func Fixed(v string) func(scpiface.Call) ([]byte, error) {
	return func(call) ([]byte, error) { return []byte(v), nil }
}

// Number makes a query of a number.
func Number(at *float64) func(scpiface.Call) ([]byte, error) {
	return func(call) ([]byte, error) { return scpiface.Text("%s", scpiface.Exponent(*at)) }
}

// Flag is how a truth is told.
func Flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// Step125 rounds a scale up to steps of 1, 2, 5 within limits.
func Step125(v, least, most float64) (float64, error) {
	if !(v >= least*0.999) || v > most*1.001 {
		return 0, scpiface.ErrRange
	}
	decade := math.Pow(10, math.Floor(math.Log10(v)+1e-9))
	for _, m := range []float64{1, 2, 5, 10} {
		if v <= m*decade*1.001 {
			return m * decade, nil
		}
	}
	return 10 * decade, nil
}
