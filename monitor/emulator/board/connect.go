package board

import (
	"fmt"
	"slices"

	"wattmark/measure"
)

// Connect puts something else than the card on a rail's meter: a calibrator
// that holds a voltage and a current, or with zeros nothing at all. nil gives the
// rail back to the card, which meanwhile has gone on drawing what it draws.
func (b *Board) Connect(rail string, v *Reading) error {
	i := slices.IndexFunc(b.cfg.Rails, func(r RailConfig) bool { return r.Name == rail })
	if i < 0 {
		return fmt.Errorf("board: no rail %q", rail)
	}
	if v != nil {
		c := *v
		c.P = measure.Watt(float64(c.V) * float64(c.I))
		v = &c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := make([]*Reading, len(b.rails))
	if s := b.sources.Load(); s != nil {
		copy(now, *s)
	}
	now[i] = v
	b.sources.Store(&now)
	return nil
}
