package main

import (
	"fmt"
	"sync"

	"wattmark/hostagent/measurement"
)

// groupProgress shows the first GPU that still runs, and what all have stored.
type groupProgress struct {
	a    *app
	line *progressLine

	mu    sync.Mutex
	last  []measurement.Progress
	ended []bool
}

func newGroupProgress(a *app, members []measurement.Member) *groupProgress {
	p := &groupProgress{a: a, line: newProgress(a.err), last: make([]measurement.Progress, len(members)), ended: make([]bool, len(members))}
	for i, m := range members {
		p.ended[i] = m.Missing != nil
	}
	return p
}

func (p *groupProgress) update(member int, u measurement.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[member] = u
	p.ended[member] = u.Phase == measurement.PhaseDone
	shown := measurement.Progress{}
	for i, x := range p.last {
		shown.Scans += x.Scans
		if shown.Phase == "" && !p.ended[i] {
			shown.Phase = x.Phase
		}
	}
	if shown.Phase != "" {
		p.line.update(shown)
	}
}

func (p *groupProgress) lost(member int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[member] = true
	p.line.clear()
	fmt.Fprintf(p.a.err, "wattmark: GPU %d is not measured: %v\n", member, err)
}

func (p *groupProgress) end() { p.line.clear() }
