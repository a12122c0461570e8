package marker

import (
	"cmp"
	"fmt"
	"slices"

	"wattmark/measure"
)

// Detector finds the markers of one Spec in a stream of blocks. It takes part
// in the capture's own pace: counts are added up, a point is made of many
// scans, and only points are correlated and fitted. Its memory does not grow
// with the stream. One goroutine owns it.
type Detector struct {
	spec   Spec
	setup  measure.Setup
	dec    *decimator
	finder finder
	found  []Found
	on     func(Found)

	finished bool
}

// finder finds markers in a trace of points.
type finder interface {
	point(p point)
	finish()
	// fallback returns what stands for markers that were not found.
	fallback(found []Found) []Found
}

// NewDetector returns a detector for spec in the blocks of a capture with the
// given setup, which is read, not kept. The instrument's Response decides how
// the marker looks: chips that are resolved edge by edge, or a sensor's updates
// that each average over a stretch of them. Up-down without a tag cannot tell
// start from stop: such markers are taken in turns, and work of four like pulses
// passes for one. Errors wrap ErrSpec, or say what is wrong with the setup.
func NewDetector(spec Spec, setup *measure.Setup) (*Detector, error) {
	if err := spec.Validate(); err != nil {
		return nil, fmt.Errorf("marker detector: %w", err)
	}
	if err := setup.Validate(); err != nil {
		return nil, fmt.Errorf("marker detector: %w", err)
	}
	d := &Detector{setup: *setup, spec: spec}
	perChip := float64(spec.Chip) * float64(setup.Timebase.SampleRate())
	if perChip > maxChipScans {
		return nil, fmt.Errorf("marker detector: %w: a chip of %v has %.3g scans: choose a shorter one", ErrSpec, spec.Chip, perChip)
	}
	fresh := perChip
	if u := float64(setup.Response.Update); u > 0 {
		fresh = min(fresh, float64(spec.Chip)/u)
	}
	if fresh < leastFresh {
		return nil, fmt.Errorf("marker detector: %w: a chip of %v, but the instrument shows only %.2g new values a chip: choose a chip of %v or more",
			ErrSpec, spec.Chip, fresh, measure.Seconds(float64(spec.Chip)/fresh))
	}
	per := 1
	if fresh >= leastBins {
		per = max(1, int(perChip/pointsPerChip))
		d.finder = newSampled(spec, setup, per, d.report)
	} else {
		d.finder = newUpdates(spec, setup, d.report)
	}
	d.dec = newDecimator(setup, per, d.finder.point)
	return d, nil
}

const (
	// maxChipScans bounds the scans of a chip, so that their sum stays exact.
	maxChipScans = 1 << 31
	// leastFresh is the number of new values a chip below which chips go unseen.
	leastFresh = 0.6
)

// OnFound has f called, from within Push and Finish, for every marker found
// from now on, in the order of their times; those of the fallback come last.
func (d *Detector) OnFound(f func(Found)) { d.on = f }

// Found returns the markers found so far, in the order of their times.
func (d *Detector) Found() []Found { return d.found }

// report takes a marker from the finder. Where start and stop look alike they
// alternate, the start first; a stop began one chip before its first pulse.
func (d *Detector) report(f Found) {
	if d.spec.ambiguous() && len(d.found)%2 == 1 {
		f.Kind = Stop
		f.T, f.Begin, f.End = f.T-d.spec.Chip, f.Begin-d.spec.Chip, f.End-d.spec.Chip
		for i := range f.Edges {
			f.Edges[i].Chip++
		}
	}
	d.add(f)
}

func (d *Detector) add(f Found) {
	d.found = append(d.found, f)
	if d.on != nil {
		d.on(f)
	}
}

// Push takes the next block of the stream. The block is borrowed until the
// call returns. A marker is reported a few chips after its end, since its
// sidelobes must be seen. Errors wrap measure.ErrShape.
func (d *Detector) Push(b *measure.Block) error {
	if err := b.Validate(d.setup.Timebase, len(d.setup.Channels)); err != nil {
		return fmt.Errorf("marker detector: %w", err)
	}
	d.dec.push(b)
	return nil
}

// Finish says that the stream has ended: markers that are complete but still
// waited for their sidelobes are reported now. It always returns nil.
//
// Where no start, or no stop, of a code was found, the papers' plain up-down
// pattern of the same chip is taken for it: Fallback, and not TagOK. The first
// one is the start, the last one the stop. Such a pattern is weak evidence: it
// carries no tag, and work that makes four like pulses with silence around them
// passes for it. Slow sensors have no fallback.
func (d *Detector) Finish() error {
	d.finder.finish()
	if d.finished {
		return nil
	}
	d.finished = true
	for _, f := range d.finder.fallback(d.found) {
		d.add(f)
	}
	slices.SortStableFunc(d.found, func(a, b Found) int { return cmp.Compare(a.T, b.T) })
	return nil
}
