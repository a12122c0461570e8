package scpi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
)

// Link is a client for a series of exchanges, with the first error. Behind an error nothing is sent, and all
// answers are zero. One goroutine owns it.
type Link struct {
	ctx    context.Context
	client *Client
	// Err is the first error.
	Err error
}

// Link makes one for a series of exchanges, without an error.
func (c *Client) Link(ctx context.Context) *Link { return &Link{ctx: ctx, client: c} }

// Keep keeps an error, unless there is one already.
func (l *Link) Keep(err error) {
	if l.Err == nil {
		l.Err = err
	}
}

// Fail keeps an error as fmt.Errorf makes it.
func (l *Link) Fail(format string, a ...any) { l.Keep(fmt.Errorf(format, a...)) }

// Send sends commands that have no reply.
func (l *Link) Send(commands ...string) {
	for _, s := range commands {
		if l.Err == nil {
			l.Err = l.client.Command(l.ctx, s)
		}
	}
}

// SetAll sends settings one after another and waits for each: some instruments drop
// commands that overtake them.
func (l *Link) SetAll(settings ...string) {
	for _, s := range settings {
		l.Send(s)
		l.Number("*OPC?")
	}
}

// SetChecked sends a setting and looks into the error queue behind it. A complaint of an instrument that is called what
// names the option to change, if there is one.
func (l *Link) SetChecked(what, setting, option string) {
	if l.Send(setting); l.Err != nil {
		return
	}
	if l.Check(setting); errors.Is(l.Err, ErrInstrument) && option != "" {
		l.Err = fmt.Errorf("%w: this %s does not take that: change %s", l.Err, what, option)
	}
}

// Check looks into the error queue; see Client.Check.
func (l *Link) Check(after string) {
	if l.Err == nil {
		l.Err = l.client.Check(l.ctx, after)
	}
}

// Answer asks and reads the reply with parse; see Ask.
func Answer[T any](l *Link, query string, parse func(string) (T, error)) (v T) {
	if l.Err == nil {
		v, l.Err = Ask(l.ctx, l.client, query, parse)
	}
	return v
}

// Number asks for a number.
func (l *Link) Number(query string) float64 { return Answer(l, query, ParseNumber) }

// Block asks for a definite block of at most so many bytes, and appends its data to dst.
func (l *Link) Block(query string, most int, dst []byte) []byte {
	if l.Err == nil {
		dst, l.Err = l.client.QueryBlock(l.ctx, query, most, dst)
	}
	return dst
}

// Sleep waits for d, or until the link's context ends.
func (l *Link) Sleep(d time.Duration) {
	if l.Err == nil {
		l.Err = backoff.Sleep(l.ctx, d)
	}
}

// Expect asks for a number that must equal the setting, within a part of it.
func (l *Link) Expect(query string, want, within float64) {
	if got := l.Number(query); !(math.Abs(got-want) <= within*math.Abs(want)) {
		l.Fail("%w: %s gives %v after %v was set", ErrInstrument, query, got, want)
	}
}
