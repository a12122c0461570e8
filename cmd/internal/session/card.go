package session

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
)

// card is the simulated GPU of an emulator, shared by processes. Each process has a context
// and schedules loads of its own; at each instant the board draws the maximum of them, so
// that one process's context and its end do not reduce another's load. It is safe for
// concurrent use.
type card struct {
	live *board.Live

	mu      sync.Mutex
	clients []*cardUser // with a context
	past    []*cardUser // whose context has ended, the latest pastUsers of them
}

// cardUser is a process on the card.
type cardUser struct {
	pid     int
	name    string
	changes []loadChange // sorted by time; the last one holds on
}

// loadChange is a change of a process's load at a time on the monotonic clock.
type loadChange struct {
	at    time.Time
	level measure.Watt
	busy  bool // a kernel is resident
}

// loadHistory is how long the past loads of a process are kept, for its use of the card.
const loadHistory = 10 * time.Minute

// pastUsers is the number of ended processes that are kept.
const pastUsers = 64

// loadAt returns the client's load at an instant, zero before the first change.
func (c *cardUser) loadAt(at time.Time) loadChange {
	i, found := slices.BinarySearchFunc(c.changes, at, func(l loadChange, t time.Time) int { return l.at.Compare(t) })
	switch {
	case found:
		return c.changes[i]
	case i == 0:
		return loadChange{at: at}
	}
	return c.changes[i-1]
}

// insert adds changes, replaces those at the same time, and drops changes older than
// loadHistory except the one still in force.
func (c *cardUser) insert(changes []loadChange) {
	for _, l := range changes {
		i, found := slices.BinarySearchFunc(c.changes, l.at, func(l loadChange, t time.Time) int { return l.at.Compare(t) })
		if found {
			c.changes[i] = l
			continue
		}
		c.changes = slices.Insert(c.changes, i, l)
	}
	old := time.Now().Add(-loadHistory)
	for len(c.changes) > 1 && c.changes[1].at.Before(old) {
		c.changes = c.changes[1:]
	}
}

// busyShare returns the share of a span, 0 to 1, in which the client had kernels on the card.
func (c *cardUser) busyShare(from, to time.Time) float64 {
	var sum time.Duration
	for i, l := range c.changes {
		begin, end := l.at, to
		if i+1 < len(c.changes) {
			end = c.changes[i+1].at
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

// schedule adds steps of a client from an instant on, and returns the actual beginning of the
// first: later than at if a meter has already read the board beyond it. A single client's
// steps go to the board as they are; with several the maximum is computed.
func (k *card) schedule(c *cardUser, at time.Time, steps []board.Step) (time.Time, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var changes []loadChange
	next := at
	for _, s := range steps {
		w := s.Level
		if w <= 0 {
			var err error
			if w, err = k.live.Level(s.Load); err != nil {
				return at, err
			}
		}
		changes = append(changes, loadChange{next, w, s.Load > board.ActiveIdle || s.Level > 0})
		next = next.Add(s.For)
	}
	if !slices.Contains(k.clients, c) {
		k.clients = append(k.clients, c)
	}
	if len(k.clients) == 1 {
		begin, err := k.live.SetSteps(at, steps)
		c.insert(shifted(changes, begin.Sub(at)))
		return begin, err
	}
	c.insert(changes)
	begin, err := k.redraw(at)
	// The board began late: move the client's own changes by the delay and compute again.
	if late := begin.Sub(at); late > 0 && err == nil {
		c.changes = slices.DeleteFunc(c.changes, func(l loadChange) bool { return slices.Contains(changes, l) })
		c.insert(shifted(changes, late))
		begin, err = k.redraw(begin)
	}
	return begin, err
}

// shifted returns the changes, each later by a duration.
func shifted(changes []loadChange, by time.Duration) []loadChange {
	out := slices.Clone(changes)
	for i := range out {
		out[i].at = out[i].at.Add(by)
	}
	return out
}

// redraw replaces the board's schedule from an instant on by the maximum of all clients'
// loads, and returns its actual beginning. The caller holds mu.
func (k *card) redraw(from time.Time) (begin time.Time, err error) {
	// If a meter has meanwhile read beyond from, the schedule begins late and all of it would
	// be delayed: the second pass computes it for the actual beginning.
	for range 2 {
		k.live.Cancel(from)
		if begin, err = k.live.SetSteps(from, k.maxSteps(from)); err != nil || !begin.After(from) {
			break
		}
		from = begin
	}
	return begin, err
}

// maxSteps returns the maximum of all clients' loads from an instant on, one step between
// each two changes of any of them.
func (k *card) maxSteps(from time.Time) []board.Step {
	times := []time.Time{from}
	for _, c := range k.clients {
		for _, l := range c.changes {
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
			steps[i].Level = max(steps[i].Level, c.loadAt(t).level)
		}
		if i+1 < len(times) {
			steps[i].For = times[i+1].Sub(t)
		}
	}
	return steps
}

// cancel removes a client's changes after an instant.
func (k *card) cancel(c *cardUser, after time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c.changes = slices.DeleteFunc(c.changes, func(l loadChange) bool { return l.at.After(after) })
	if len(k.clients) < 2 || !slices.Contains(k.clients, c) {
		k.live.Cancel(after)
		return
	}
	_, _ = k.redraw(after) // an error is one of unknown loads, and these levels are in watts
}

// leave ends a client's context, and returns when its load really ends. The card is idle
// after the last client's. Its past load is kept for processes.
func (k *card) leave(c *cardUser, at time.Time) (time.Time, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clients = slices.DeleteFunc(k.clients, func(x *cardUser) bool { return x == c })
	c.insert([]loadChange{{at: at}})
	k.past = append(k.past, &cardUser{
		pid: c.pid, name: c.name,
		changes: slices.DeleteFunc(slices.Clone(c.changes), func(l loadChange) bool { return l.at.After(at) }),
	})
	k.past = k.past[max(0, len(k.past)-pastUsers):]
	c.changes = nil
	if len(k.clients) > 0 {
		return k.redraw(at)
	}
	k.live.Cancel(at)
	return k.live.SetLoad(at, board.Idle)
}

// processes returns the clients that have contexts, and those that worked within a span, with
// their share of busy time in it.
func (k *card) processes(from, to time.Time) (out []gpu.ProcessUse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.clients {
		out = append(out, gpu.ProcessUse{PID: c.pid, Name: c.name, Busy: c.busyShare(from, to)})
	}
	for _, c := range k.past {
		if b := c.busyShare(from, to); b > 0 {
			out = append(out, gpu.ProcessUse{PID: c.pid, Name: c.name, Busy: b})
		}
	}
	return out
}

// serve serves one process until it closes its connection, and then ends its context.
func (k *card) serve(c net.Conn) {
	self := &cardUser{}
	(&plantService{k.live, k, self}).serve(c)
	k.mu.Lock()
	open := slices.Contains(k.clients, self)
	k.mu.Unlock()
	if open {
		_, _ = k.leave(self, time.Now())
	}
}
