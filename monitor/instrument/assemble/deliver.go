package assemble

import (
	"fmt"

	"wattmark/measure"
)

// Flush delivers everything that is certain; it is also for a line that has
// fallen silent, and for the end. Call it between Scan calls.
func (a *Assembler) Flush() error {
	if err := a.decide(); err != nil {
		return err
	}
	if err := a.report(); err != nil {
		return err
	}
	if len(a.block.Ticks) == 0 {
		return nil
	}
	err := a.sink.Block(&a.block)
	a.block.Ticks = a.block.Ticks[:0]
	for c := range a.block.Counts {
		a.block.Counts[c] = a.block.Counts[c][:0]
	}
	return err
}

// report tells once a block what was skipped and repaired, so that a bad line
// cannot flood the stream with events.
func (a *Assembler) report() error {
	if a.skipped > 0 {
		e := measure.Event{Kind: measure.EventResync, FirstScan: a.skippedAt, Exact: true, Channel: -1, Detail: fmt.Sprintf("%d bytes skipped to find the next scan", a.skipped)}
		a.skipped = 0
		if err := a.sink.Event(e); err != nil {
			return err
		}
	}
	if a.repaired > 0 {
		e := measure.Event{Kind: measure.EventNote, FirstScan: a.nextScan, Exact: true, Channel: -1, Detail: fmt.Sprintf("%d scans repeated or with a corrupted time stamp, put right", a.repaired)}
		a.repaired = 0
		return a.sink.Event(e)
	}
	return nil
}
