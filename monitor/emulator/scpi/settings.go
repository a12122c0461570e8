package scpi

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
