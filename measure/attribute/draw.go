package attribute

import (
	"fmt"
	"math"
)

// meter is an instant of the host on the scans' clock.
func (e *Engine) meter(host float64) float64 {
	return float64(e.cfg.Clock.A-e.cfg.Delay) + e.rate*host
}

// host is the inverse of meter.
func (e *Engine) host(t float64) float64 { return (t - float64(e.cfg.Clock.A-e.cfg.Delay)) / e.rate }

// draw fetches the next kernel that touches the window.
func (e *Engine) draw() error {
	for {
		k, err, ok := e.next()
		if e.more = ok; !ok || err != nil {
			e.err = err
			return err
		}
		switch {
		case k.Name < 0 || !(k.Start <= k.End) || math.IsInf(float64(k.Start), 0) || math.IsInf(float64(k.End), 0):
			e.err = fmt.Errorf("attribute: name %d from %v to %v: %w", k.Name, float64(k.Start), float64(k.End), ErrKernel)
		case float64(k.Start) < e.begun:
			e.err = fmt.Errorf("attribute: a kernel begins at %v, after one at %v: %w", float64(k.Start), e.begun, ErrOrder)
		}
		if e.err != nil {
			return e.err
		}
		e.begun = float64(k.Start)
		if e.grow(k); e.clip(&k) {
			e.ahead = k
			return nil
		}
	}
}

// grow counts a kernel among those of its name.
func (e *Engine) grow(k Kernel) {
	if n := k.Name + 1 - len(e.names); n > 0 {
		e.names = append(e.names, make([]account, n)...)
	}
	a := &e.names[k.Name]
	a.launches++
	if e.rate*float64(k.End-k.Start) < float64(e.cfg.Resolution) {
		a.short++
	}
}

// clip cuts a kernel to the window; false for one that lies outside of it.
func (e *Engine) clip(k *Kernel) bool {
	start, end := e.meter(float64(k.Start)), e.meter(float64(k.End))
	if end < e.from || start > e.to {
		e.outside++
		return false
	}
	if start < e.from || end > e.to {
		e.cut++
	}
	e.names[k.Name].busy.add(min(end, e.to) - max(start, e.from))
	return true
}
