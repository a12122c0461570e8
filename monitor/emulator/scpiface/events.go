package scpiface

import (
	"fmt"
	"slices"
	"strings"
)

// UseEvents puts Tektronix's event queue in the place of SYSTem:ERRor: *ESR?
// releases what has gathered, then ALLEv? tells all of it, EVENT? and EVMsg? one
// after another. It is called before clients come. Event codes are those of the
// errors without their sign (programmer manuals, "Status and Events").
func (i *Instrument) UseEvents() {
	i.commands = slices.DeleteFunc(i.commands, func(c command) bool {
		return c.Pattern == "*ESR" || strings.HasPrefix(c.Pattern, "SYSTem:ERRor")
	})
	var released []*Error
	i.Cleared = func() { released = nil }
	none := func() string {
		if len(i.queue) > 0 {
			return `1,"No events to report - new events pending *ESR?"`
		}
		return `0,"No events to report - queue empty"`
	}
	one := func(e *Error) string { return fmt.Sprintf("%d,%q", max(e.Code, -e.Code), e.Text) }
	next := func() (*Error, bool) {
		if len(released) == 0 {
			return nil, false
		}
		e := released[0]
		released = released[1:]
		return e, true
	}
	own := []Command{
		{Pattern: "*ESR", Query: func(Call) ([]byte, error) {
			v := i.esr
			i.queue, i.esr, released = nil, 0, i.queue
			return Text("%d", v)
		}},
		{Pattern: "ALLEv", Query: func(Call) ([]byte, error) {
			var all []string
			for e, ok := next(); ok; e, ok = next() {
				all = append(all, one(e))
			}
			if all == nil {
				return []byte(none()), nil
			}
			return []byte(strings.Join(all, ",")), nil
		}},
		{Pattern: "EVMsg", Query: func(Call) ([]byte, error) {
			if e, ok := next(); ok {
				return []byte(one(e)), nil
			}
			return []byte(none()), nil
		}},
		{Pattern: "EVENT", Query: func(Call) ([]byte, error) {
			if e, ok := next(); ok {
				return Text("%d", max(e.Code, -e.Code))
			}
			code, _, _ := strings.Cut(none(), ",")
			return []byte(code), nil
		}},
	}
	for _, c := range own {
		i.commands = append(i.commands, command{compile(c.Pattern), c})
	}
}
