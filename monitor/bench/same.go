package bench

import "reflect"

// SameInstruments tells whether another bench reads the same instruments in the
// same way, and measures the same GPU under the same name: then only how
// channels make rails can differ, which a monitor can take over while it runs.
func (b *Bench) SameInstruments(o *Bench) bool {
	if b.Name != o.Name || b.GPU != o.GPU || len(b.Instruments) != len(o.Instruments) || !reflect.DeepEqual(b.align(), o.align()) {
		return false
	}
	for i, x := range b.Instruments {
		y := o.Instruments[i]
		if x.Name != y.Name || x.Kind != y.Kind || x.Address != y.Address || x.Delay != y.Delay || !reflect.DeepEqual(x.options, y.options) {
			return false
		}
	}
	return true
}
