package store

import (
	"cmp"
	"fmt"
	"math"

	"wattmark/measure"
)

// cell is a value of a row: none, an integer, a number, or a text.
type cell struct {
	kind byte
	bits uint64 // an integer, or a number's bits
	text string
	lent []byte // the text, in place of text, until the next row
}

const (
	cellNone byte = iota
	cellInt
	cellReal
	cellText
)

// column is where the values of a column go.
type column interface {
	Scan(v any) error   // as a driver hands it over
	take(c *cell) error // as it was gathered
}

// scanCell takes a driver's value.
func scanCell(to column, v any) error {
	switch x := v.(type) {
	case nil:
		return to.take(&cell{})
	case int64:
		return to.take(&cell{kind: cellInt, bits: uint64(x)})
	case float64:
		return to.take(&cell{kind: cellReal, bits: math.Float64bits(x)})
	case string:
		return to.take(&cell{kind: cellText, text: x})
	case []byte:
		return to.take(&cell{kind: cellText, text: string(x)})
	}
	return fmt.Errorf("%w: a column holds a %T", ErrCorrupt, v)
}

func (c *cell) Scan(v any) error { return scanCell(c, v) }

// take keeps any value.
func (c *cell) take(x *cell) error {
	*c = *x
	if c.lent != nil {
		c.text, c.lent = string(c.lent), nil
	}
	return nil
}

func (c *cell) number() float64 {
	if c.kind == cellInt {
		return float64(int64(c.bits))
	}
	return math.Float64frombits(c.bits)
}

// compare orders values of one kind. Of different kinds they are only in a damaged file,
// and as good as equal.
func (c *cell) compare(o *cell) int {
	switch {
	case c.kind != o.kind:
		return 0
	case c.kind == cellInt:
		return cmp.Compare(int64(c.bits), int64(o.bits))
	case c.kind == cellReal:
		return cmp.Compare(c.number(), o.number())
	}
	return cmp.Compare(c.text, o.text)
}

func (c *cell) wrong(want string) error {
	return fmt.Errorf("%w: a column holds %s in place of %s", ErrCorrupt, [...]string{"nothing", "an integer", "a number", "a text"}[c.kind], want)
}

// integer takes whole numbers; none is 0.
type integer[T ~int64 | ~uint64 | ~uint8] struct{ to *T }

func intTo[T ~int64 | ~uint64 | ~uint8](p *T) integer[T] { return integer[T]{p} }

func (i integer[T]) Scan(v any) error { return scanCell(i, v) }

func (i integer[T]) take(c *cell) error {
	if c.kind > cellInt {
		return c.wrong("an integer")
	}
	*i.to = T(c.bits)
	return nil
}

// flag takes truth values, which are stored as numbers.
type flag struct{ to *bool }

func (f flag) Scan(v any) error { return scanCell(f, v) }

func (f flag) take(c *cell) error {
	if c.kind > cellInt {
		return c.wrong("a truth value")
	}
	*f.to = c.bits != 0
	return nil
}

func (r real[T]) take(c *cell) error {
	switch c.kind {
	case cellText:
		return c.wrong("a number")
	case cellNone:
		*r.to = T(math.NaN())
	default:
		*r.to = T(c.number())
	}
	return nil
}

// take makes a text anew only where it is another one than that of the row before.
func (t text[T]) take(c *cell) error {
	switch {
	case c.kind == cellNone:
		*t.to = ""
	case c.kind != cellText:
		return c.wrong("a text")
	case c.lent == nil:
		*t.to = T(measure.Printable(c.text))
	case string(c.lent) != string(*t.to): // what is in place is printable
		*t.to = T(measure.Printable(string(c.lent)))
	}
	return nil
}
