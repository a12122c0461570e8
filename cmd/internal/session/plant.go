package session

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
)

// plantService lets a simulated GPU in another process load a board; one for each connection.
// Times in arguments are times of day by the caller's clock.
type plantService struct {
	live *board.Live
	card *card
	self *cardUser
}

// Hello sets the caller's process ID and name.
func (s *plantService) Hello(p gpu.ProcessUse) (bool, error) {
	s.self.pid, s.self.name = p.PID, p.Name
	return true, nil
}

// Processes returns the processes with contexts on the card within a span.
func (s *plantService) Processes(t sim.TimeSpan) ([]gpu.ProcessUse, error) {
	caller := newCallerClock(t.Sent)
	return s.card.processes(caller.here(t.From), caller.here(t.To)), nil
}

// callerClock converts a caller's times of day to this process's monotonic clock, by which
// the board runs, so that setting the wall clock moves no load. Both processes read the same
// clocks: the wall clock was set between their readings by what it moved against the monotonic
// one, however long the call took.
type callerClock struct {
	now   time.Time     // when the request arrived, with its monotonic reading
	ahead time.Duration // of the caller's wall clock; 0 unless it was set
}

// newCallerClock returns the conversion for a request sent at a moment.
func newCallerClock(sent sim.Moment) callerClock {
	now := sim.Now()
	c := callerClock{now: now.Day}
	const leastSet = 100 * time.Millisecond // the two clocks are not read at one instant
	if off := sent.Day.Sub(now.Day.Round(0)) - (sent.Up - now.Up); sent.Up != 0 && off.Abs() > leastSet {
		c.ahead = off
	}
	return c
}

// here converts a caller's time to this process's clock: now + (t − now's wall time) − ahead.
func (c callerClock) here(t time.Time) time.Time {
	return c.now.Add(t.Sub(c.now.Round(0)) - c.ahead)
}

// there is the inverse of here; the result has no monotonic reading.
func (c callerClock) there(t time.Time) time.Time {
	return c.now.Round(0).Add(t.Sub(c.now) + c.ahead)
}

// SetSteps schedules steps of the caller's load, and returns the actual beginning of the first. The idle
// load alone ends the caller's context.
func (s *plantService) SetSteps(c sim.StepsChange) (begin time.Time, err error) {
	caller := newCallerClock(c.Sent)
	if len(c.Steps) == 1 && c.Steps[0] == (load.Step{Load: load.Idle}) {
		begin, err = s.card.leave(s.self, caller.here(c.At))
	} else {
		begin, err = s.card.schedule(s.self, caller.here(c.At), c.Steps)
	}
	return caller.there(begin), err
}

// Cancel removes the caller's steps that begin after the instant From.
func (s *plantService) Cancel(after sim.TimeSpan) (bool, error) {
	s.card.cancel(s.self, newCallerClock(after.Sent).here(after.From))
	return true, nil
}

// MeanPower returns the true mean power of a span; NaN if it is older than the
// board's memory.
func (s *plantService) MeanPower(t sim.TimeSpan) (measure.Watt, error) {
	caller := newCallerClock(t.Sent)
	return s.live.MeanPower(caller.here(t.From), caller.here(t.To)), nil
}

// SourceChange is the request to connect a constant source to rails in place of the card,
// exported for net/rpc.
type SourceChange struct {
	Rails   []string // empty for all
	Card    bool     // connect the card again
	Volts   float64
	Amperes float64
}

// Connect connects a source, or the card, to the meter's inputs.
func (s *plantService) Connect(c SourceChange) (bool, error) {
	if len(c.Rails) == 0 {
		c.Rails = lists.Map(s.live.Rails(), func(r board.RailConfig) string { return r.Name })
	}
	var on *board.Reading
	if !c.Card {
		on = &board.Reading{V: measure.Volt(c.Volts), I: measure.Ampere(c.Amperes)}
	}
	return true, errors.Join(lists.Map(c.Rails, func(r string) error { return s.live.Connect(r, on) })...)
}

// Energy returns the true energy of some rails; without names of all.
func (s *plantService) Energy(q RailSpan) (sum measure.Joule, err error) {
	caller := newCallerClock(q.Sent)
	e, err := s.live.Energy(caller.here(q.From), caller.here(q.To))
	if err != nil {
		return 0, err
	}
	for i, r := range s.live.Rails() {
		if len(q.Rails) == 0 || slices.Contains(q.Rails, r.Name) {
			sum += e.Rails[i]
		}
	}
	return sum, nil
}

// RailSpan is the request for a span on some rails.
type RailSpan struct {
	sim.TimeSpan
	Rails []string
}

// ServePlant serves a board on a Unix socket until ctx ends. A socket left from a process
// that no longer exists is replaced; one that is served is an error.
func ServePlant(ctx context.Context, socket string, live *board.Live) error {
	if i, err := os.Lstat(socket); err == nil && i.Mode()&os.ModeSocket != 0 {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		if errors.Is(err, syscall.ECONNREFUSED) { // other errors leave it open whether there is a server
			_ = os.Remove(socket)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("--gpu: %w: is another emulator serving it? choose another name", err)
	}
	return servePlant(ctx, l, live)
}

// servePlant serves a board on a listener, which it closes, until ctx ends.
func servePlant(ctx context.Context, l net.Listener, live *board.Live) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	shared := &card{live: live}
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("--gpu: %w", err)
		}
		go shared.serve(c) // ends with the connection
	}
}

// On a connection to a board a call is two gob values, the method's name and its arguments; an
// answer is the error's text, empty for none, and then the result. A train of markers is thousands
// of steps that must arrive before their time: gob carries them several times faster than JSON.

// plantMethods are the calls that serve accepts, by name.
var plantMethods = map[string]plantMethod{
	"Hello":     method((*plantService).Hello),
	"Processes": method((*plantService).Processes),
	"SetSteps":  method((*plantService).SetSteps),
	"Cancel":    method((*plantService).Cancel),
	"MeanPower": method((*plantService).MeanPower),
	"Connect":   method((*plantService).Connect),
	"Energy":    method((*plantService).Energy),
}

// plantMethod reads the arguments of a method and calls it; err is that of reading.
type plantMethod func(*plantService, *gob.Decoder) (result any, failed, err error)

func method[A, R any](f func(*plantService, A) (R, error)) plantMethod {
	return func(s *plantService, in *gob.Decoder) (result any, failed, err error) {
		var a A
		if err = in.Decode(&a); err == nil {
			result, failed = f(s, a)
		}
		return result, failed, err
	}
}

// serve answers the calls of a connection one after the other until the caller closes it.
func (s *plantService) serve(c net.Conn) {
	defer c.Close()
	in, out := gob.NewDecoder(c), gob.NewEncoder(c)
	for {
		var name string
		if in.Decode(&name) != nil {
			return
		}
		var result any
		var failed, err error
		if call, ok := plantMethods[name]; ok {
			result, failed, err = call(s, in)
		} else {
			failed = fmt.Errorf("the emulator has no call %q: is it of another version?", name)
			err = in.DecodeValue(reflect.Value{}) // drops the arguments
		}
		switch {
		case err != nil:
		case failed != nil:
			err = out.Encode(failed.Error())
		default:
			err = errors.Join(out.Encode(""), out.Encode(result))
		}
		if err != nil {
			return
		}
	}
}

// card is the simulated GPU of an emulator, shared by processes. Each process has a context
// and schedules loads of its own; at each instant the board draws the maximum of them, so
// that one process's context and its end do not reduce another's load. It is safe for
// concurrent use.
type card struct {
	live *board.Live

	mu      sync.Mutex
	clients []*cardUser // with a context
	past    []*cardUser // whose context has ended, the latest of them
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

// find returns the place of the change at an instant, and whether there is one.
func (c *cardUser) find(at time.Time) (int, bool) {
	return slices.BinarySearchFunc(c.changes, at, func(l loadChange, t time.Time) int { return l.at.Compare(t) })
}

// insert adds changes, replaces those at the same time, and drops changes older than
// ten minutes except the one still in force.
func (c *cardUser) insert(changes []loadChange) {
	for _, l := range changes {
		i, found := c.find(l.at)
		if !found {
			c.changes = slices.Insert(c.changes, i, l)
		}
		c.changes[i] = l
	}
	old := time.Now().Add(-10 * time.Minute)
	for len(c.changes) > 1 && c.changes[1].at.Before(old) {
		c.changes = c.changes[1:]
	}
}

// busyShare returns the share of a span, 0 to 1, in which the client had kernels on the card.
func (c *cardUser) busyShare(from, to time.Time) float64 {
	var sum time.Duration
	for i, l := range c.changes {
		begin, end := l.at.Sub(from), to.Sub(from)
		if i+1 < len(c.changes) {
			end = min(end, c.changes[i+1].at.Sub(from))
		}
		if l.busy {
			sum += max(0, end-max(0, begin))
		}
	}
	return sum.Seconds() / max(to.Sub(from).Seconds(), 1e-9)
}

// schedule adds steps of a client from an instant on, and returns the actual beginning of the
// first: later than at if a meter has already read the board beyond it. A single client's
// steps go to the board as they are; with several the maximum is computed.
func (k *card) schedule(c *cardUser, at time.Time, steps []load.Step) (time.Time, error) {
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
		changes = append(changes, loadChange{next, w, s.Load > load.ActiveIdle || s.Level > 0})
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
func (k *card) maxSteps(from time.Time) []load.Step {
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
	steps := make([]load.Step, len(times))
	for i, t := range times {
		for _, c := range k.clients {
			n, found := c.find(t)
			if found { // that change holds already
				n++
			}
			if n > 0 {
				steps[i].Level = max(steps[i].Level, c.changes[n-1].level)
			}
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
	k.past = k.past[max(0, len(k.past)-64):]
	c.changes = nil
	if len(k.clients) > 0 {
		return k.redraw(at)
	}
	k.live.Cancel(at)
	return k.live.SetLoad(at, load.Idle)
}

// processes returns the clients that have contexts, and those that worked within a span, with
// their share of busy time in it.
func (k *card) processes(from, to time.Time) (out []gpu.ProcessUse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, c := range slices.Concat(k.clients, k.past) {
		if b := c.busyShare(from, to); i < len(k.clients) || b > 0 {
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
