package scope

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/scpi"
)

// State is what a scope's trigger does.
type State uint8

// The states.
const (
	Stopped  State = iota + 1 // memory stands and can be read
	Waiting                   // armed for a single acquisition, not triggered yet
	Sampling                  // a single acquisition is triggered and fills memory
	Free                      // it runs by itself, acquisition after acquisition
)

func (s State) String() string {
	return [...]string{"unknown", "stopped", "waiting", "sampling", "free-running"}[min(s, Free)]
}

// Dialect speaks the commands of one family of scopes. A Device makes one for
// itself, calls it on one goroutine, and hands in the link. Methods send and
// ask, and return the link's errors as they are; they do not retry: the Device
// calls again what can be repeated (all but Arm, Force and Stop) when its error is
// one of the link's, scpi.ErrReply or ErrFewer, possibly over a new connection
// behind *CLS. Each of these must therefore send every setting that it rests
// on, and a Dialect keeps no state but what it learned in ReadBack and what it
// was told to do (Arm, Force, Stop).
type Dialect interface {
	// SetUp sets the channels of the plan, with the others off, the window, the
	// depth, and an edge trigger that no signal reaches, so that only Force starts
	// the memory, at its first point. The Device looks into the error queue behind
	// it. SetAll sends a list of settings and waits for each.
	SetUp(ctx context.Context, c *scpi.Client, p *Plan) error
	// ReadBack asks what the scope made of SetUp, and refuses, with an error that
	// wraps scpi.ErrInstrument, what differs from it by more than rounding.
	ReadBack(ctx context.Context, c *scpi.Client, p *Plan) (Memory, error)
	// Scale asks how the codes of a channel (1, 2, …) in deep memory are scaled. It
	// is asked after ReadBack and again behind a recording: both must be equal to
	// the last bit (but for Begin), else the recording is refused.
	Scale(ctx context.Context, c *scpi.Client, channel int) (Scale, error)
	// Arm begins one single acquisition.
	Arm(ctx context.Context, c *scpi.Client) error
	// Force triggers it. It is sent once and never again.
	Force(ctx context.Context, c *scpi.Client) error
	// State asks what the trigger does. Before Force a scope that has armed is
	// Waiting; one that is Sampling then has triggered by itself.
	State(ctx context.Context, c *scpi.Client) (State, error)
	// Stop ends the acquisition. The Device then asks State until it is Stopped.
	Stop(ctx context.Context, c *scpi.Client) error
	// Held asks how many points of a channel a stopped scope holds. told is false
	// where it only knows the size of its memory, also after an early Stop: the
	// Device then keeps to the points that must have been taken by the host's clock.
	Held(ctx context.Context, c *scpi.Client, channel int) (points int, told bool, err error)
	// Read appends the codes of points first to first+n−1 (first counts from 0) to
	// dst, as Memory.Codes says, exactly n of them: n is at most Memory.Piece. What
	// is too few may be returned as it is: the Device counts. A block longer than
	// it can be is to be refused before it is read: bound QueryBlock.
	Read(ctx context.Context, c *scpi.Client, channel, first, n int, dst []byte) ([]byte, error)
}

// Plan is what is to be set: the options of the bench file on the model that
// answers.
type Plan struct {
	Options
	Model Model
	// Used are the numbers of the channels in use, ascending; the first is the
	// trigger's source.
	Used []int
	// Points is the depth of one channel to set; 0 where the family does not set it.
	Points int
}

// On returns the input of a channel, and whether it is in use.
func (p *Plan) On(channel int) (Input, bool) {
	in, on := p.Inputs[ChannelName(channel)]
	return in, on
}

// OutOfReach is a trigger level in volts that the first channel cannot show: so
// many divisions (the screen ends at 4) above its middle.
func (p *Plan) OutOfReach(divisions float64) float64 {
	in, _ := p.On(p.Used[0])
	return divisions*in.Scale - in.Offset
}

// Memory is what a scope records of each channel.
type Memory struct {
	Points int     // of a channel, when it is full
	Step   float64 // seconds from one to the next
	Piece  int     // the most points that one Read may ask for
	Codes  Codes
}

// Scale is how codes become volts at the probe's tip: V = Gain·code + Zero.
type Scale struct {
	Gain, Zero float64 // V a code; volts of code 0
	Division   float64 // V a division, as read back
	Step       float64 // seconds a point, as this channel's preamble has it
	// Begin is when the first point in memory was taken, in seconds behind the
	// trigger, of a scope that tells; 0 at others. The Device leaves out the points
	// before the trigger. It counts behind a recording only.
	Begin float64
	// Least and Most are the codes that mean over range.
	Least, Most measure.Count
	// Quantum is how many codes a step of the converter is wide; 0 for one.
	Quantum float64
}

// Checker is a Dialect of scopes that do not know SYST:ERR?, which the Device
// otherwise asks behind SetUp.
type Checker interface {
	// Check reports what the scope has to complain about since *CLS. It may find
	// nothing where the scope has no way to say so: ReadBack then has to look at
	// every setting.
	Check(ctx context.Context, c *scpi.Client) error
}

// ErrFewer: the scope gave less than it holds, as some do when they are asked
// too soon after a stop. The Device asks again, after a pause.
var ErrFewer = errors.New("the scope gave fewer points than it holds")

// SetAll sends settings one after another and waits for each: scopes drop
// commands that overtake them.
func SetAll(ctx context.Context, c *scpi.Client, settings ...string) error {
	for _, s := range settings {
		if err := c.Command(ctx, s); err != nil {
			return err
		}
		if _, err := c.QueryNumber(ctx, "*OPC?"); err != nil {
			return err
		}
	}
	return nil
}

// Send sends commands that have no reply.
func Send(ctx context.Context, c *scpi.Client, commands ...string) error {
	for _, s := range commands {
		if err := c.Command(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// Expect asks for a number that must be what was set, within a part of it.
func Expect(ctx context.Context, c *scpi.Client, query string, want, within float64) error {
	got, err := c.QueryNumber(ctx, query)
	if err == nil && !(abs(got-want) <= within*abs(want)) {
		err = fmt.Errorf("%w: %s gives %v after %v was set", scpi.ErrInstrument, query, got, want)
	}
	return err
}

// Pause waits, unless ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
