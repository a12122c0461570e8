package sweep

import (
	"fmt"
	"slices"
	"time"
)

// Plan is what to measure.
type Plan struct {
	Kernel Kernel
	// Blocks are the sizes; Default's, by what the GPU holds, when empty.
	Blocks []uint64
	// Round is how long a full round is to take, Rest how long the GPU rests before
	// each launch, and Idle how long it is measured at rest, before and after all,
	// when it has been left alone for Settle.
	Round, Rest, Idle, Settle time.Duration
	Repeat                    int
	Seed                      uint64
}

// The bounds of a plan: a kernel that runs cannot be stopped.
const (
	mostBlocks = 1 << 20
	mostRepeat = 1000
	mostLaunch = 2 * time.Minute
)

// Check refuses a plan that no GPU could be swept by. Errors wrap ErrPlan.
func (p *Plan) Check() error {
	if err := p.Kernel.valid(); err != nil {
		return err
	}
	for _, n := range p.Blocks {
		if n == 0 || n > mostBlocks {
			return fmt.Errorf("%w: %d blocks: want 1 to %d", ErrPlan, n, mostBlocks)
		}
	}
	switch {
	case p.Round < 10*time.Millisecond || p.Round > 10*time.Second:
		return fmt.Errorf("%w: a round of %v: want 10ms to 10s", ErrPlan, p.Round)
	case p.Rest < 0 || p.Rest > time.Minute || p.Idle <= 0 || p.Idle > time.Minute || p.Settle < 0 || p.Settle > time.Minute:
		return fmt.Errorf("%w: a rest of %v, %v of idleness %v after work: want up to a minute each, and some idleness", ErrPlan, p.Rest, p.Idle, p.Settle)
	case p.Repeat < 1 || p.Repeat > mostRepeat:
		return fmt.Errorf("%w: %d repetitions: want 1 to %d", ErrPlan, p.Repeat, mostRepeat)
	}
	return nil
}

// Sizes are numbers of blocks below, at and above what the GPU holds in a round:
// parts of one, full ones, and some that end within one.
func Sizes(sms, resident uint64) []uint64 {
	r := sms * resident
	out := []uint64{max(1, r/4), max(1, r/2), max(1, 3*r/4), r, r + max(1, r/4), 2 * r, 5 * r / 2, 4 * r, 6 * r, 8 * r}
	slices.Sort(out)
	return slices.Compact(out)
}

// Takes is about how long a plan takes on a GPU.
func (p *Plan) Takes(sms, resident uint64) time.Duration {
	var out time.Duration
	for _, n := range p.Blocks {
		out += p.Rest + time.Duration((n+sms*resident-1)/(sms*resident))*p.Round
	}
	return time.Duration(p.Repeat)*out + 2*(p.Idle+p.Settle)
}
