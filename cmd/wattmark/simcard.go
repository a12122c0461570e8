package main

import (
	"slices"
	"sync"
	"time"

	"wattmark/hostagent"
	"wattmark/measure"
	"wattmark/monitor/emulator/board"
)

// card is the simulated GPU of an emulator as its processes share it. Each has a context
// and lays down loads of its own; the board draws the greatest of them, so that one
// process's context and its end take nothing of another's load away. It is safe for
// concurrent use.
type card struct {
	live *board.Live

	mu      sync.Mutex
	clients []*cardUser // that have contexts
	past    []*cardUser // some that had one
}

// cardUser is a process on the card.
type cardUser struct {
	pid  int
	name string
	laid []laid // in the order of their times; the load of the last one stays
}

// laid is a change of a process's load.
type laid struct {
	at    time.Time
	level measure.Watt
	busy  bool // a kernel is resident
}

// remembered is how long the loads of a process are kept for what it says of its use.
const remembered = 10 * time.Minute

// rememberedUsers is how many processes that have gone are remembered.
const rememberedUsers = 64

// level is the client's load at an instant.
func (c *cardUser) level(at time.Time) laid {
	i, found := slices.BinarySearchFunc(c.laid, at, func(l laid, t time.Time) int { return l.at.Compare(t) })
	switch {
	case found:
		return c.laid[i]
	case i == 0:
		return laid{at: at}
	}
	return c.laid[i-1]
}

// put lays changes down, and forgets what is long past.
func (c *cardUser) put(changes []laid) {
	for _, l := range changes {
		i, found := slices.BinarySearchFunc(c.laid, l.at, func(l laid, t time.Time) int { return l.at.Compare(t) })
		if found {
			c.laid[i] = l
			continue
		}
		c.laid = slices.Insert(c.laid, i, l)
	}
	old := time.Now().Add(-remembered)
	for len(c.laid) > 1 && c.laid[1].at.Before(old) {
		c.laid = c.laid[1:]
	}
}

// busy is how much of a span the client had kernels on the card.
func (c *cardUser) busy(from, to time.Time) float64 {
	var sum time.Duration
	for i, l := range c.laid {
		begin, end := l.at, to
		if i+1 < len(c.laid) {
			end = c.laid[i+1].at
		}
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if l.busy && begin.Before(end) {
			sum += end.Sub(begin)
		}
	}
	return sum.Seconds() / max(to.Sub(from).Seconds(), 1e-9)
}

// lay lays steps of a client down from an instant on, and returns when the first really
// began.
func (k *card) lay(c *cardUser, at time.Time, steps []board.Step) (time.Time, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var changes []laid
	next := at
	for _, s := range steps {
		w := s.Level
		if w <= 0 {
			var err error
			if w, err = k.live.Level(s.Load); err != nil {
				return at, err
			}
		}
		changes = append(changes, laid{next, w, s.Load > board.ActiveIdle || s.Level > 0})
		next = next.Add(s.For)
	}
	if !slices.Contains(k.clients, c) {
		k.clients = append(k.clients, c)
	}
	if len(k.clients) == 1 {
		begin, err := k.live.SetSteps(at, steps)
		c.put(shifted(changes, begin.Sub(at)))
		return begin, err
	}
	c.put(changes)
	begin, err := k.draw(at)
	if late := begin.Sub(at); late > 0 && err == nil { // a meter has read on
		c.laid = slices.DeleteFunc(c.laid, func(l laid) bool { return slices.Contains(changes, l) })
		c.put(shifted(changes, late))
		begin, err = k.draw(begin)
	}
	return begin, err
}

func shifted(changes []laid, by time.Duration) []laid {
	out := slices.Clone(changes)
	for i := range out {
		out[i].at = out[i].at.Add(by)
	}
	return out
}

// draw lays the greatest of all clients' loads down anew, from an instant on.
func (k *card) draw(from time.Time) (begin time.Time, err error) {
	for range 2 { // again where a meter has read on meanwhile: what comes later keeps its time
		k.live.Cancel(from)
		if begin, err = k.live.SetSteps(from, k.steps(from)); err != nil || !begin.After(from) {
			break
		}
		from = begin
	}
	return begin, err
}

// steps are the greatest of all loads from an instant on.
func (k *card) steps(from time.Time) []board.Step {
	times := []time.Time{from}
	for _, c := range k.clients {
		for _, l := range c.laid {
			if l.at.After(from) {
				times = append(times, l.at)
			}
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.CompactFunc(times, time.Time.Equal)
	steps := make([]board.Step, len(times))
	for i, t := range times {
		for _, c := range k.clients {
			steps[i].Level = max(steps[i].Level, c.level(t).level)
		}
		if i+1 < len(times) {
			steps[i].For = times[i+1].Sub(t)
		}
	}
	return steps
}

// cancel drops what a client has laid down for after an instant.
func (k *card) cancel(c *cardUser, after time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c.laid = slices.DeleteFunc(c.laid, func(l laid) bool { return l.at.After(after) })
	if len(k.clients) < 2 || !slices.Contains(k.clients, c) {
		k.live.Cancel(after)
		return
	}
	_, _ = k.draw(after) // levels that were laid before are levels
}

// has tells whether a client has a context.
func (k *card) has(c *cardUser) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.clients, c)
}

// leave ends a client's context: the last one leaves the card idle.
func (k *card) leave(c *cardUser, at time.Time) (time.Time, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clients = slices.DeleteFunc(k.clients, func(x *cardUser) bool { return x == c })
	c.put([]laid{{at: at}})
	k.past = append(k.past, &cardUser{pid: c.pid, name: c.name, laid: slices.DeleteFunc(slices.Clone(c.laid), func(l laid) bool { return l.at.After(at) })})
	k.past = k.past[max(0, len(k.past)-rememberedUsers):]
	c.laid = nil
	if len(k.clients) > 0 {
		return k.draw(at)
	}
	k.live.Cancel(at)
	return k.live.SetLoad(at, board.Idle)
}

// processes are those that have contexts or worked within a span, and how busy each was there.
func (k *card) processes(from, to time.Time) (out []hostagent.ProcessUse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.clients {
		out = append(out, hostagent.ProcessUse{PID: c.pid, Name: c.name, Busy: c.busy(from, to)})
	}
	for _, c := range k.past {
		if b := c.busy(from, to); b > 0 {
			out = append(out, hostagent.ProcessUse{PID: c.pid, Name: c.name, Busy: b})
		}
	}
	return out
}
