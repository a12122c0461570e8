package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"wattmark/hostagent/measurement"
	"wattmark/measure"
)

// progressLine shows a measurement's phase on one line of a terminal, or a
// line a phase where standard error is a file. It is safe for concurrent use.
type progressLine struct {
	w     io.Writer
	live  bool
	every time.Duration

	mu    sync.Mutex
	phase measurement.Phase
	begin time.Time
	shown time.Time
}

var phaseTexts = map[measurement.Phase]string{
	measurement.PhaseBench: "asking the monitor", measurement.PhaseCapture: "starting the capture",
	measurement.PhaseWarmUp: "warming up the GPU", measurement.PhaseMarker: "playing a marker",
	measurement.PhaseWork: "running the work", measurement.PhaseStop: "stopping the capture",
	measurement.PhaseTransfer: "fetching samples", measurement.PhaseAnalysis: "computing joules",
}

func newProgress(w io.Writer) *progressLine {
	return &progressLine{w: w, live: isTerminal(w), every: 100 * time.Millisecond, begin: time.Now()}
}

// update takes a measurement's progress.
func (p *progressLine) update(u measurement.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.Phase == measurement.PhaseDone {
		p.clear()
		return
	}
	changed := u.Phase != p.phase
	p.phase = u.Phase
	now := time.Now()
	if !p.live {
		if changed {
			fmt.Fprintf(p.w, "%6.2f s  %s\n", now.Sub(p.begin).Seconds(), phaseTexts[u.Phase])
		}
		return
	}
	if !changed && now.Sub(p.shown) < p.every {
		return
	}
	p.shown = now
	spin := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[int(now.UnixMilli()/100)%10]
	fmt.Fprintf(p.w, "\r\x1b[K%c %-22s %v, %d samples stored", spin, phaseTexts[u.Phase], measure.SecondsOf(now.Sub(p.begin).Round(100*time.Millisecond)), u.Scans)
}

// warn says on a line of its own what goes wrong meanwhile.
func (p *progressLine) warn(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintln(p.w, "wattmark:", text)
}

func (p *progressLine) clear() {
	if p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
