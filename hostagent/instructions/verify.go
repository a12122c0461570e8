package instructions

import (
	"context"
	"errors"
	"fmt"
)

// verifyTurns is how many turns of the loop are computed again in Go.
const verifyTurns = 1000

// verify runs every block in one thread and compares its result with what Go
// computes; where Go does not know, all levels must agree. It returns the names
// that were held against Go. Programs that do not load are left for later.
func (p *Plan) verify(ctx context.Context, m Machine, cc int) (map[string]bool, error) {
	sound := map[string]bool{}
	for _, i := range p.Instructions {
		if cc < i.Least {
			continue
		}
		var first uint64
		for n, level := range p.Levels {
			x, ok, err := runOnce(ctx, m, i, level, cc)
			if err != nil {
				return nil, fmt.Errorf("instructions: %s at -O%d: %w", i.Name, level, err)
			}
			if !ok {
				break
			}
			if n == 0 {
				first = x
			}
			switch {
			case i.Next != nil && x != i.Result(verifyTurns, operands):
				return nil, fmt.Errorf("%w: %s at -O%d gives %#x after %d steps, %#x is right", ErrResult, i.Name, level, x, verifyTurns*operands, i.Result(verifyTurns, operands))
			case i.Place == NoMemory && x != first:
				return nil, fmt.Errorf("%w: %s gives %#x at -O%d, and %#x at -O%d", ErrResult, i.Name, first, p.Levels[0], x, level)
			}
			sound[i.Name] = i.Next != nil
		}
	}
	return sound, nil
}

// runOnce returns what thread 0 ends with; ok is false where the program does
// not load.
func runOnce(ctx context.Context, m Machine, i Instruction, level, cc int) (x uint64, ok bool, err error) {
	source, err := i.PTX(Kernel{Steps: operands, Block: true, Capability: cc})
	if err != nil {
		return 0, false, err
	}
	p, err := m.Load(ctx, i, source, Setting{Layout: OneThread, Level: level, Steps: operands})
	if err != nil {
		return 0, false, nil //nolint:nilerr // the plan's own run reports it
	}
	l, err := p.Run(ctx, verifyTurns)
	return l.X, true, errors.Join(err, p.Close())
}
