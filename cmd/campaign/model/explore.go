package model

import (
	"fmt"
	"slices"

	"wattmark/monitor/capture"
	"wattmark/store"
)

// Result is what an exploration came to.
type Result struct {
	States, Steps int
	// Taken is how often each row of the two tables, and each move of the model, was
	// taken; Refused how often a table was asked for a row that it does not have.
	Taken, Refused map[string]int
	// Violation is the first that was met, with the shortest way to it; empty for none.
	Violation string
	Trace     []string
}

// origin is how a state was first reached.
type origin struct {
	from int32
	nth  uint8 // of the steps from there
	does action
}

// Explore visits every state that can be reached, and stops at the first that breaks an
// invariant. When none does, it looks whether from every state the place can come to
// rest once the faults cease.
func Explore(r Rules) Result {
	m := &machine{r: r}
	res := m.explore(nil)
	res.Taken, res.Refused = m.taken.rows()
	return res
}

// explore visits every state, and tells look of every step: the way to the state that
// it is taken from, and which of the steps from there it is. look may be nil.
func (m *machine) explore(look func(way func() []uint8, from *place, s *step)) (res Result) {
	start := place{up: true}
	places, origins := []place{start}, []origin{{from: -1}}
	number := map[place]int32{start: 0}
	var back [][]int32 // by state: those from which a step without fault leads here
	back = append(back, nil)
	for i := 0; i < len(places); i++ {
		for nth, s := range m.next(places[i]) {
			res.Steps++
			if look != nil {
				look(func() []uint8 { return append(way(origins, i), uint8(nth)) }, &places[i], &s)
			}
			m.taken.move(s.does)
			if why := broken(m.r, &s.to); why != "" {
				res.States, res.Violation, res.Trace = len(places), why, append(trace(origins, i), s.does.String())
				return res
			}
			forget(&s.to)
			n, seen := number[s.to]
			if !seen {
				n = int32(len(places))
				number[s.to] = n
				places, origins, back = append(places, s.to), append(origins, origin{int32(i), uint8(nth), s.does}), append(back, nil)
			}
			if !s.fault && n != int32(i) {
				back[n] = append(back[n], int32(i))
			}
		}
	}
	res.States = len(places)
	if i := stuck(m.r, places, back); i >= 0 {
		res.Violation, res.Trace = "the place cannot come to rest from here: "+fmt.Sprintf("%+v", places[i]), trace(origins, i)
	}
	return res
}

// forget takes out of a state what nothing can depend on any more, so that states
// that differ in it alone are one.
func forget(p *place) {
	for i := range p.all {
		c := &p.all[i]
		if c.daemon == done {
			c.daemon = resting
		}
		if c.daemon != ending {
			c.daemonSaw = false
		}
		if c.session != ending {
			c.sawWhole = false
		}
		if c.life.Ended() {
			c.begun, c.asked, c.told = false, false, false
		}
		if c.session != done && c.session != dead {
			continue
		}
		c.session = done
		c.wire &= toMonitor
		if c.life == 0 {
			c.wire &^= askStop | askRelease
		}
		if c.life == 0 && c.wire == 0 && c.daemon == resting && c.state != store.Running {
			*c = one{session: done}
		}
	}
}

// stuck returns a state from which no way without faults leads to rest, −1 for none.
func stuck(r Rules, places []place, back [][]int32) int {
	good := make([]bool, len(places))
	var todo []int32
	for i := range places {
		if atRest(r, &places[i]) {
			good[i] = true
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range back[n] {
			if !good[from] {
				good[from] = true
				todo = append(todo, from)
			}
		}
	}
	return slices.Index(good, false)
}

// atRest: nobody has the bench, no task is half done, and no task's capture is left.
func atRest(r Rules, p *place) bool {
	if !p.up || p.bench != 0 {
		return false
	}
	for i := range r.Captures {
		c := &p.all[i]
		if c.state == store.Running || c.life != 0 && c.state != 0 && !c.leftByHand() || c.session != done && c.session != dead {
			return false
		}
	}
	return true
}

// leftByHand: somebody ended the task while its monitor had more, and nobody fetches
// that any more. The capture stays until the monitor's keep drops it.
func (c *one) leftByHand() bool { return c.byHand && c.life.Ended() && c.have < c.chunks }

// broken tells which invariant a state breaks; empty for none.
func broken(r Rules, p *place) string {
	for i := range r.Captures {
		c := &p.all[i]
		runs := c.life == capture.Arming || c.life == capture.Running || c.life == capture.Stopping
		switch {
		case p.up && (p.bench == uint8(i+1)) != runs:
			return fmt.Sprintf("capture %d is %v, and the bench is held by %d", i+1, c.life, p.bench)
		case c.refused:
			return fmt.Sprintf("capture or task %d had to take a step that its table does not have: %v, state %d", i+1, c.life, c.state)
		case c.untrue:
			return fmt.Sprintf("capture or task %d is %v and %d, which is not what happened to it", i+1, c.life, c.state)
		case c.life == capture.Arming && c.chunks > 0:
			return fmt.Sprintf("capture %d has chunks, and has not begun", i+1)
		case c.twice:
			return fmt.Sprintf("task %d was ended twice", i+1)
		case p.up && (c.life == capture.Running || c.life == capture.Stopping) && !c.begun, c.life == capture.Stopping && !c.asked, c.life == capture.Arming && c.begun:
			return fmt.Sprintf("capture %d is %v without cause", i+1, c.life)
		case (c.state == store.Complete || c.state == store.Untrimmed) && (c.have != c.total || c.ended != capture.Complete):
			return fmt.Sprintf("task %d has all with %d of %d chunks of a capture that was %v", i+1, c.have, c.total, c.ended)
		case c.state != store.Complete && c.state > store.Running && !c.reason:
			return fmt.Sprintf("task %d is not complete, and says no reason", i+1)
		case c.state == store.Complete && c.reason && c.session == done && c.daemon == resting && c.ended != capture.Complete:
			return fmt.Sprintf("task %d is complete, and its capture was %v", i+1, c.ended)
		case c.acked > 0 && c.have < c.acked-1 && c.chunks < c.acked-1:
			return fmt.Sprintf("capture %d: %d chunks were called durable; %d are on the monitor, %d on the host", i+1, c.acked-1, c.chunks, c.have)
		case c.released && c.state != 0 && c.have < c.total:
			return fmt.Sprintf("capture %d was released with %d chunks, and %d are stored", i+1, c.total, c.have)
		case c.released && c.state == store.Running:
			return fmt.Sprintf("capture %d was released before its task had ended", i+1)
		}
	}
	return ""
}

// way tells which step leads on from each state on the way to one.
func way(origins []origin, i int) (nth []uint8) {
	for ; origins[i].from >= 0; i = int(origins[i].from) {
		nth = append(nth, origins[i].nth)
	}
	slices.Reverse(nth)
	return nth
}

// trace names the steps to a state.
func trace(origins []origin, i int) (names []string) {
	for ; origins[i].from >= 0; i = int(origins[i].from) {
		names = append(names, origins[i].does.String())
	}
	slices.Reverse(names)
	return names
}
