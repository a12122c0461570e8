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
	q := &events{i: i}
	i.Cleared = func() { q.released = nil }
	for _, c := range []Command{
		{Pattern: "*ESR", Query: func(Call) ([]byte, error) {
			v := i.esr
			i.queue, i.esr, q.released = nil, 0, i.queue
			return Text("%d", v)
		}},
		{Pattern: "ALLEv", Query: func(Call) ([]byte, error) { return []byte(q.tell(len(q.released))), nil }},
		{Pattern: "EVMsg", Query: func(Call) ([]byte, error) { return []byte(q.tell(1)), nil }},
		{Pattern: "EVENT", Query: func(Call) ([]byte, error) {
			code, _, _ := strings.Cut(q.tell(1), ",")
			return []byte(code), nil
		}},
	} {
		i.commands = append(i.commands, command{compile(c.Pattern), c})
	}
}

// events are those that *ESR? has released.
type events struct {
	i        *Instrument
	released []*Error
}

// tell takes so many events out of the queue, and says so where there is none.
func (q *events) tell(n int) string {
	n = min(n, len(q.released))
	if n == 0 && len(q.i.queue) > 0 {
		return `1,"No events to report - new events pending *ESR?"`
	}
	if n == 0 {
		return `0,"No events to report - queue empty"`
	}
	all := make([]string, n)
	for k, e := range q.released[:n] {
		all[k] = fmt.Sprintf("%d,%q", max(e.Code, -e.Code), e.Text)
	}
	q.released = q.released[n:]
	return strings.Join(all, ",")
}
