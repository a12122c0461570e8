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
	"syscall"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/measure"
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

// SetLoad changes the caller's load, and returns the actual time of the change. The idle load
// ends the caller's context.
func (s *plantService) SetLoad(c sim.LoadChange) (time.Time, error) {
	caller := newCallerClock(c.Sent)
	lay := func() (time.Time, error) {
		return s.card.schedule(s.self, caller.here(c.At), []board.Step{{Load: board.Load(c.Load)}})
	}
	if board.Load(c.Load) == board.Idle {
		lay = func() (time.Time, error) { return s.card.leave(s.self, caller.here(c.At)) }
	}
	begin, err := lay()
	return caller.there(begin), err
}

// SetSteps schedules steps of the caller's load, and returns the actual beginning of the first.
func (s *plantService) SetSteps(c sim.StepsChange) (time.Time, error) {
	caller := newCallerClock(c.Sent)
	begin, err := s.card.schedule(s.self, caller.here(c.At), boardSteps(c.Steps))
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
		for _, r := range s.live.Rails() {
			c.Rails = append(c.Rails, r.Name)
		}
	}
	var on *board.Reading
	if !c.Card {
		on = &board.Reading{V: measure.Volt(c.Volts), I: measure.Ampere(c.Amperes)}
	}
	var errs []error
	for _, r := range c.Rails {
		errs = append(errs, s.live.Connect(r, on))
	}
	return true, errors.Join(errs...)
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
var plantMethods = map[string]func(*plantService, *gob.Decoder) (call func() (any, error), err error){
	"Hello":     method((*plantService).Hello),
	"Processes": method((*plantService).Processes),
	"SetLoad":   method((*plantService).SetLoad),
	"SetSteps":  method((*plantService).SetSteps),
	"Cancel":    method((*plantService).Cancel),
	"MeanPower": method((*plantService).MeanPower),
	"Connect":   method((*plantService).Connect),
	"Energy":    method((*plantService).Energy),
}

// method returns a function that reads the arguments of a method and returns its call.
func method[A, R any](f func(*plantService, A) (R, error)) func(*plantService, *gob.Decoder) (func() (any, error), error) {
	return func(s *plantService, in *gob.Decoder) (func() (any, error), error) {
		var a A
		if err := in.Decode(&a); err != nil {
			return nil, err
		}
		return func() (any, error) { return f(s, a) }, nil
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
		call, err := func() (any, error) {
			return nil, fmt.Errorf("the emulator has no call %q: is it of another version?", name)
		}, error(nil)
		if read, ok := plantMethods[name]; ok {
			call, err = read(s, in)
		} else {
			err = in.DecodeValue(reflect.Value{}) // drops the arguments
		}
		if err != nil {
			return
		}
		result, err := call()
		if err != nil {
			err = out.Encode(err.Error())
		} else {
			err = errors.Join(out.Encode(""), out.Encode(result))
		}
		if err != nil {
			return
		}
	}
}
