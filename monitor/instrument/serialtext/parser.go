package serialtext

import (
	"fmt"

	"wattmark/measure"
)

// parser is what lineParser and frameParser have in common.
type parser interface {
	next(b []byte) (n int, ok bool)
	current() *sample
	errors() (malformed, skipped uint64)
	reason() string
}

func newParser(o Options, l layout) parser {
	if f := o.Frame; f != nil {
		header, _ := f.header()
		order, _ := f.order()
		return newFrameParser(l, header, order, f.check())
	}
	return newLineParser(l, o.Comment)
}

// Parser reads the values of lines or frames, as options describe them, out of
// bytes that somebody kept. It knows nothing of time or of what is missing.
type Parser struct{ p parser }

// NewParser makes a parser; its error says which option cannot be used.
func NewParser(o Options) (*Parser, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	l, err := o.layout()
	if err != nil {
		return nil, err
	}
	return &Parser{newParser(o, l)}, nil
}

// Next consumes bytes of b until a line or frame was read. It returns how many it
// took and whether there is one; call it until it returns false, which it does
// only when all of b is taken.
func (p *Parser) Next(b []byte) (n int, ok bool) { return p.p.next(b) }

// Counts are those of the channels in what Next read last; valid until its next
// call.
func (p *Parser) Counts() []measure.Count { return p.p.current().counts }

// Unread returns the lines that could not be read and the bytes that belonged to
// no frame since it was called last.
func (p *Parser) Unread() (lines, bytes uint64) { return p.p.errors() }
