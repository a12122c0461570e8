package marker

import (
	"wattmark/measure"
)

// point is the mean total power of a few neighbouring scans.
type point struct {
	t float64 // the centre of its scans, seconds of device time
	p float64 // watts
	// clipped: a reading behind it stands at an end of its channel's range.
	clipped bool
}

// railSum is one rail's power as a function of two of the decimator's sums.
type railSum struct {
	lin  measure.Linear
	x, y int // indices into sums; y is −1 where the rail has one channel
}

// decimator turns blocks of counts into points. It adds up raw counts exactly,
// channel by channel, and scales the means once a point, so that the cost of a
// scan is one integer addition a channel.
type decimator struct {
	tb       measure.Timebase
	per      int // scans a point
	rails    []railSum
	channels []int // the channels that any rail reads
	sums     []int64
	ends     [][2]int64 // of the channels' ranges, equal where there is none
	clipped  bool       // a scan in sums

	n         int     // scans in sums
	firstTick float64 // of the point under way
	tickSum   int64   // stamped: of ticks behind the first one
	ticks0    int64
	lastTick  float64

	next       uint64 // the scan expected next
	begun      bool
	anchorScan uint64 // uniform: tick = anchorTick + (scan − anchorScan)·TicksPerScan
	anchorTick float64

	emit func(point)
}

func newDecimator(setup *measure.Setup, per int, emit func(point)) *decimator {
	d := &decimator{tb: setup.Timebase, per: per, emit: emit}
	index := map[int]int{}
	use := func(c int) int {
		if c < 0 {
			return -1
		}
		if _, ok := index[c]; !ok {
			index[c] = len(d.channels)
			d.channels = append(d.channels, c)
			ch := &setup.Channels[c]
			d.ends = append(d.ends, [2]int64{int64(ch.MinCount), int64(ch.MaxCount)})
		}
		return index[c]
	}
	for _, r := range setup.Rails {
		d.rails = append(d.rails, railSum{lin: r.Linear(setup.Channels), x: use(r.X), y: use(r.Y)})
	}
	d.sums = make([]int64, len(d.channels))
	return d
}

// push takes a block that has been validated.
func (d *decimator) push(b *measure.Block) {
	n := b.Scans()
	if n == 0 {
		return
	}
	if !d.begun || b.FirstScan != d.next {
		d.drop()
		d.begun = true
		d.anchorScan, d.anchorTick = b.FirstScan, float64(b.FirstTick)
	}
	d.next = b.FirstScan + uint64(n)
	if !d.tb.Stamped {
		d.reanchor(b)
	}
	for i := 0; i < n; {
		k := min(d.per-d.n, n-i)
		d.add(b, i, i+k)
		i += k
		if d.n == d.per {
			d.flush()
		}
	}
}

// reanchor follows the block's own tick where it says more than rounding: the
// same scans must get the same times however they are cut into blocks.
func (d *decimator) reanchor(b *measure.Block) {
	want := d.tick(b.FirstScan)
	if diff := float64(b.FirstTick) - want; diff > 1.5 || diff < -1.5 {
		d.drop()
		d.anchorScan, d.anchorTick = b.FirstScan, float64(b.FirstTick)
	}
}

func (d *decimator) tick(scan uint64) float64 {
	return d.anchorTick + float64(scan-d.anchorScan)*d.tb.TicksPerScan
}

// add adds scans [from, to) of the block to the point under way.
func (d *decimator) add(b *measure.Block, from, to int) {
	if d.tb.Stamped {
		ticks := b.Ticks[from:to]
		if d.n == 0 {
			d.ticks0 = ticks[0]
		}
		for _, t := range ticks {
			d.tickSum += t - d.ticks0
		}
	} else {
		if d.n == 0 {
			d.firstTick = d.tick(b.FirstScan + uint64(from))
		}
		d.lastTick = d.tick(b.FirstScan + uint64(to-1))
	}
	for i, c := range d.channels {
		d.sums[i] += sum(b.Counts[c][from:to])
		if e := d.ends[i]; e[0] != e[1] && !d.clipped {
			d.clipped = reaches(b.Counts[c][from:to], e[0], e[1])
		}
	}
	d.n += to - from
}

// sum adds counts up. Four sums run side by side, so that an addition need not
// wait for the one before it.
func sum(v []measure.Count) int64 {
	var a, b, c, e int64
	for len(v) >= 8 {
		w := v[:8:8]
		a += int64(w[0]) + int64(w[4])
		b += int64(w[1]) + int64(w[5])
		c += int64(w[2]) + int64(w[6])
		e += int64(w[3]) + int64(w[7])
		v = v[8:]
	}
	for _, x := range v {
		a += int64(x)
	}
	return a + b + c + e
}

// reaches reports whether a count stands at an end of a range or beyond it.
func reaches(v []measure.Count, least, most int64) bool {
	var out int64 // negative once one does
	for _, x := range v {
		out |= (int64(x) - least - 1) | (most - 1 - int64(x))
	}
	return out < 0
}

// flush emits the point under way.
func (d *decimator) flush() {
	inv := 1 / float64(d.n)
	tick := (d.firstTick + d.lastTick) / 2
	if d.tb.Stamped {
		tick = float64(d.ticks0) + float64(d.tickSum)*inv
	}
	var p float64
	for i := range d.rails {
		r := &d.rails[i]
		x := float64(d.sums[r.x]) * inv
		cur, volt := r.lin.I0+r.lin.IX*x, r.lin.V0
		if r.y >= 0 {
			y := float64(d.sums[r.y]) * inv
			cur += r.lin.IY * y
			volt += r.lin.VY * y
		}
		p += cur * volt
	}
	clipped := d.clipped
	d.drop()
	d.emit(point{float64(d.tb.Seconds(tick)), p, clipped})
}

// drop forgets the point under way: at a gap it is less than a thirtieth of a
// chip, and a point of fewer scans would have another noise and another width.
func (d *decimator) drop() {
	d.n, d.tickSum, d.clipped = 0, 0, false
	clear(d.sums)
}
