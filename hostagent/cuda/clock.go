package cuda

import (
	"encoding/binary"
	"time"

	"wattmark/hostagent/kernels"
)

// relation is one pair of instants on the GPU's clock and on the host's wall clock.
type relation struct {
	gpu  uint64        // ns of %globaltimer
	host time.Time     // with a monotonic reading, so that a clock that is set tells
	u    time.Duration // half the round trip: the GPU's reading lies within host ± u
}

const roundTrips = 24

// relate takes the shortest of some round trips of a kernel that reads the
// GPU's clock.
func (d *Device) relate() (relation, error) {
	best := relation{u: 1 << 62}
	b := make([]byte, 8)
	for range roundTrips {
		t0 := time.Now()
		if err := d.stamp(0); err != nil {
			return relation{}, err
		}
		if err := d.sync(); err != nil {
			return relation{}, err
		}
		trip := time.Since(t0)
		if err := d.download(b, d.stamps); err != nil {
			return relation{}, err
		}
		if trip/2 < best.u {
			best = relation{binary.LittleEndian.Uint64(b), t0.Add(trip / 2), trip / 2}
		}
	}
	return best, nil
}

// stamp queues a kernel that writes the GPU's time into slot i.
func (d *Device) stamp(i uint64) error {
	at := d.stamps + 8*i
	return d.launchGrid(d.fns[kernels.Clock].handle, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, params(&at))
}

// span maps the GPU's clock to the host's between two relations. The clocks
// drift apart by some parts per million, so both ends count.
type span struct{ a, b relation }

// host returns the host's time of an instant on the GPU's clock, with a monotonic
// reading.
func (s span) host(gpu uint64) time.Time {
	since := int64(gpu - s.a.gpu)
	rate := 1.0
	// Two relations a millisecond apart say less of the rate than 1 does.
	if d := int64(s.b.gpu - s.a.gpu); d > int64(100*time.Millisecond) {
		rate = float64(s.b.host.Sub(s.a.host)) / float64(d)
	}
	return s.a.host.Add(time.Duration(float64(since) * rate))
}
