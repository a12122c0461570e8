package capture

import (
	"sync"

	"wattmark/measure"
	"wattmark/measure/marker"
)

// forkedDetector runs a detector on a goroutine of its own.
type forkedDetector struct {
	det  *marker.Detector
	in   chan *measure.Block
	out  chan error
	once sync.Once
}

func newForkedDetector(d *marker.Detector) *forkedDetector {
	return &forkedDetector{det: d, in: make(chan *measure.Block), out: make(chan error, 1)}
}

// push hands a block over; wait must follow.
func (f *forkedDetector) push(b *measure.Block) {
	f.once.Do(func() {
		go func() {
			for b := range f.in {
				f.out <- f.det.Push(b)
			}
		}()
	})
	f.in <- b
}

// wait returns when the block handed over was seen.
func (f *forkedDetector) wait() error { return <-f.out }

// close ends the goroutine.
func (f *forkedDetector) close() { close(f.in) }
