// Package scpi is the part that all emulated SCPI instruments share: a tree
// of commands with short and long forms, the error queue, the status registers
// of IEEE 488.2, and lines on which clients come and go.
//
//	Instrument (tree, queue, registers)
//	   ├─ Run: one client on a stream (TCP, pseudo-terminal)
//	   ├─ Serve: clients of a listener
//	   └─ Session: whole messages in and out, as USBTMC has them
package scpi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
)

// Error is an entry of the error queue (SCPI-1999, volume 2, chapter 21).
type Error struct {
	Code int
	Text string
}

// Error is the error as the queue gives it: code and text.
func (e *Error) Error() string { return fmt.Sprintf("%d,%q", e.Code, e.Text) }

// The errors that handlers and the framework put into the queue.
var (
	ErrType        = &Error{-104, "Data type error"}
	ErrMissing     = &Error{-109, "Missing parameter"}
	ErrUndefined   = &Error{-113, "Undefined header"}
	ErrConflict    = &Error{-221, "Settings conflict"}
	ErrRange       = &Error{-222, "Data out of range"}
	ErrValue       = &Error{-224, "Illegal parameter value"}
	ErrOverflow    = &Error{-350, "Queue overflow"}
	ErrInterrupted = &Error{-410, "Query INTERRUPTED"}
	ErrUnended     = &Error{-420, "Query UNTERMINATED"}
)

// The bits of the standard event status register (IEEE 488.2, 11.5.1).
const (
	esrComplete  = 1 << 0
	esrQuery     = 1 << 2
	esrDevice    = 1 << 3
	esrExecution = 1 << 4
	esrCommand   = 1 << 5
	esrPowerOn   = 1 << 7
)

// queueSize is how many errors are kept; the last then gives way to -350.
const queueSize = 20

// Instrument is the state that all clients share. It is safe for concurrent use.
type Instrument struct {
	// Signed makes SYST:ERR? answer +0 where there is no error, as Keysight does.
	Signed bool
	// Positive makes the error queue report codes without their sign, as Yokogawa does: 113,"Undefined header".
	Positive bool
	// End is the end of a reply; "\n" where empty.
	End string
	// Cleared, which may be nil, is called by *CLS, for event registers that an instrument has beyond the standard's.
	Cleared func()
	// Busy, which may be nil, is asked before *OPC and *WAI: they wait for so long, and ask again, until
	// it gives zero.
	Busy func() time.Duration

	mu       sync.Mutex
	identity string
	reset    func()
	commands []command
	queue    []*Error
	esr, ese int
	sre      int
	faults   []*Fault
}

// command is a Command with its pattern parsed.
type command struct {
	form *regexp.Regexp
	Command
}

// compiled parses a command's pattern.
func compiled(c Command) command { return command{compile(c.Pattern), c} }

// New makes an instrument. Handlers are called one at a time. reset carries out
// *RST; it may be nil.
func New(identity string, reset func(), commands []Command) *Instrument {
	i := &Instrument{identity: identity, reset: reset, esr: esrPowerOn}
	i.commands = lists.Map(append(i.common(), commands...), compiled)
	return i
}

// SetIdentity changes the answer to *IDN?: another instrument at the same address.
func (i *Instrument) SetIdentity(s string) { i.Do(func() { i.identity = s }) }

// Text makes a reply of text.
func Text(format string, a ...any) ([]byte, error) { return fmt.Appendf(nil, format, a...), nil }

// Block makes a definite block with so many digits of length; 0 for as many as it takes.
func Block(digits int, data []byte) []byte {
	if digits == 0 {
		digits = len(strconv.Itoa(len(data)))
	}
	head := fmt.Sprintf("#%d%0*d", digits, digits, len(data))
	return append([]byte(head), data...)
}

// common are the commands of IEEE 488.2 and the error queue.
func (i *Instrument) common() []Command {
	return []Command{
		{Pattern: "*IDN", Query: Show("%s", &i.identity)},
		Action("*CLS", func() {
			i.queue, i.esr = nil, 0
			if i.Cleared != nil {
				i.Cleared()
			}
		}),
		Action("*RST", func() {
			if i.reset != nil {
				i.reset()
			}
		}),
		{Pattern: "*OPC", Set: func(Call) error { i.esr |= esrComplete; return nil }, Query: Fixed("1")},
		Action("*WAI", func() {}),
		{Pattern: "*TST", Query: Fixed("0")},
		{Pattern: "*ESR", Query: func(Call) ([]byte, error) { v := i.esr; i.esr = 0; return Text("%d", v) }},
		{Pattern: "*ESE", Set: Within(&i.ese, 0, 255), Query: Show("%d", &i.ese)},
		{Pattern: "*SRE", Set: Within(&i.sre, 0, 255), Query: Show("%d", &i.sre)},
		{Pattern: "*STB", Query: func(Call) ([]byte, error) { // the status byte
			b := 0
			if len(i.queue) > 0 {
				b |= 1 << 2
			}
			if i.esr&i.ese != 0 {
				b |= 1 << 5
			}
			if b&i.sre != 0 {
				b |= 1 << 6
			}
			return Text("%d", b)
		}},
		Asked(errorQuery, i.next),
	}
}

// errorQuery is the header of the error queue in SCPI.
const errorQuery = "SYSTem:ERRor[:NEXT]"

// next takes the oldest error out of the queue.
func (i *Instrument) next() string {
	switch {
	case len(i.queue) > 0:
		e := i.queue[0]
		i.queue = i.queue[1:]
		if i.Positive {
			e = &Error{-e.Code, e.Text}
		}
		return e.Error()
	case i.Signed:
		return `+0,"No error"`
	}
	return `0,"No error"`
}

// raise puts an error into the queue and sets its status bit.
func (i *Instrument) raise(err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{-200, "Execution error: " + err.Error()}
	}
	// The hundreds of a code are its class, which has a bit of the standard event status register.
	i.esr |= cmp.Or(map[int]int{-1: esrCommand, -2: esrExecution, -4: esrQuery}[e.Code/100], esrDevice)
	if len(i.queue) == queueSize {
		e = ErrOverflow
		i.queue = i.queue[:queueSize-1]
	}
	i.queue = append(i.queue, e)
}

// Raise puts an error into the queue, as an instrument's own trouble does.
func (i *Instrument) Raise(e *Error) { i.Do(func() { i.raise(e) }) }

// Do calls f while no client is served, for access to the handlers' state.
func (i *Instrument) Do(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f()
}

// execute carries out a program message and returns its response message
// without an end; none where nothing was asked, or an unknown thing.
// It ends early, with none, where ctx ends within a pause.
func (i *Instrument) execute(ctx context.Context, line string) []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	var replies [][]byte
	var path []string
	for _, text := range cut(line, ';') {
		if strings.TrimSpace(text) == "" {
			continue
		}
		var u unit
		u, path = split(text, path)
		if i.Busy != nil && (strings.EqualFold(u.words[0], "*OPC") || strings.EqualFold(u.words[0], "*WAI")) {
			if err := i.pause(ctx, i.Busy); err != nil {
				return nil
			}
		}
		reply, pause, err := i.do(u)
		if pause != nil && err == nil {
			if err := i.pause(ctx, pause); err != nil {
				return nil
			}
		}
		if err != nil {
			i.raise(err)
		}
		if u.query && (err == nil || reply != nil) {
			replies = append(replies, reply)
		}
	}
	return bytes.Join(replies, []byte{';'})
}

// do carries out one command of a message. A header that no command has is an error in the queue,
// as is a query of a command that cannot be asked.
func (i *Instrument) do(u unit) (reply []byte, pause func() time.Duration, err error) {
	header := strings.ToUpper(":" + strings.Join(u.words, ":"))
	for _, c := range i.commands {
		suffixes, ok := c.match(header)
		call := Call{Suffixes: suffixes, Args: u.args}
		switch {
		case !ok:
		case u.query && c.Query != nil:
			reply, err = c.Query(call)
			return reply, nil, err
		case !u.query && c.Set != nil:
			return nil, c.Pause, c.Set(call)
		}
	}
	return nil, nil, ErrUndefined
}

// Exponent writes a number as these instruments do.
func Exponent(v float64) string { return strconv.FormatFloat(v, 'E', 6, 64) }

// maxList bounds a channel list: no instrument has more channels.
const maxList = 1024

// Channels reads parameter i as a channel list: (@101,103:105).
func (c Call) Channels(i int) (out []int, err error) {
	if i >= len(c.Args) {
		return nil, ErrMissing
	}
	list, begins := strings.CutPrefix(c.Args[i], "(@")
	list, ends := strings.CutSuffix(list, ")")
	if !begins || !ends {
		return nil, ErrType
	}
	for _, part := range strings.Split(list, ",") {
		from, to, span := strings.Cut(strings.TrimSpace(part), ":")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && span {
			last, err = strconv.Atoi(to)
		}
		switch {
		case err != nil:
			return nil, ErrType
		case last < first || last-first >= maxList-len(out):
			return nil, ErrRange
		}
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}

// MoveErrorQuery gives the error queue another header, for instruments that
// speak IEEE 488.2 but not SCPI. It is called before clients are served.
func (i *Instrument) MoveErrorQuery(pattern string) {
	for n, c := range i.commands {
		if c.Pattern == errorQuery {
			i.commands[n].form = compile(pattern)
		}
	}
}

// UseEvents puts Tektronix's event queue in the place of SYSTem:ERRor: *ESR?
// releases the events gathered, then ALLEv? returns all of them, EVENT? and EVMsg? one
// after another. It is called before clients come. Event codes are those of the
// errors without their sign (programmer manuals, "Status and Events").
func (i *Instrument) UseEvents() {
	i.commands = slices.DeleteFunc(i.commands, func(c command) bool {
		return c.Pattern == "*ESR" || strings.HasPrefix(c.Pattern, "SYSTem:ERRor")
	})
	var released []*Error // by *ESR?
	i.Cleared = func() { released = nil }
	// take takes so many events out of the queue, or the code for none.
	take := func(n int) string {
		n = min(n, len(released))
		if n == 0 && len(i.queue) > 0 {
			return `1,"No events to report - new events pending *ESR?"`
		}
		if n == 0 {
			return `0,"No events to report - queue empty"`
		}
		all := make([]string, n)
		for k, e := range released[:n] {
			all[k] = fmt.Sprintf("%d,%q", max(e.Code, -e.Code), e.Text)
		}
		released = released[n:]
		return strings.Join(all, ",")
	}
	i.commands = append(i.commands, lists.Map([]Command{
		{Pattern: "*ESR", Query: func(Call) ([]byte, error) {
			v := i.esr
			i.queue, i.esr, released = nil, 0, i.queue
			return Text("%d", v)
		}},
		Asked("ALLEv", func() string { return take(len(released)) }),
		Asked("EVMsg", func() string { return take(1) }),
		Asked("EVENT", func() string {
			code, _, _ := strings.Cut(take(1), ",")
			return code
		}),
	}, compiled)...)
}
