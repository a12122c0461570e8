package marker

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
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
	// fallback returns the plain patterns that stand for markers that were not found.
	fallback(found []Found) []Found
}

// NewDetector returns a detector for spec in the blocks of a capture with the
// given setup, which is read, not kept. The instrument's Response decides how
// the marker looks: chips that are resolved edge by edge, or a sensor's updates
// that each average over a stretch of them. Up-down without a tag cannot distinguish
// start from stop: such markers are taken in turns, and work of four like pulses
// passes for one. Errors wrap ErrSpec, or name the fault of the setup.
func NewDetector(spec Spec, setup *measure.Setup) (*Detector, error) {
	if err := cmp.Or(spec.Validate(), setup.Validate()); err != nil {
		return nil, fmt.Errorf("marker detector: %w", err)
	}
	d := &Detector{setup: *setup, spec: spec}
	perChip := float64(spec.Chip) * float64(setup.Timebase.SampleRate())
	if perChip > maxChipScans {
		return nil, fmt.Errorf("marker detector: %w: a chip of %v has %.3g scans: choose a shorter one", ErrSpec,
			spec.Chip, perChip)
	}
	fresh := perChip
	if u := float64(setup.Response.Update); u > 0 {
		fresh = min(fresh, float64(spec.Chip)/u)
	}
	if fresh < leastFresh {
		return nil, fmt.Errorf(
			"marker detector: %w: a chip of %v, but the instrument shows only %.2g new values a chip: choose a "+
				"chip of %v or more", ErrSpec, spec.Chip, fresh, measure.Seconds(float64(spec.Chip)/fresh))
	}
	per := 1
	if fresh >= leastBins {
		per = pointScans(perChip)
		d.finder = newSampled(spec, setup, per, d.report)
	} else {
		d.finder = newUpdates(spec, setup, d.report)
	}
	d.dec = newDecimator(setup, per, d.finder.point)
	return d, nil
}

// pointScans returns how many scans make a point, so that a chip has pointsPerChip to twice as many
// points, and of those the number that is nearest to offGrid off a whole one: each chip's edge then falls on
// another phase of the points.
func pointScans(perChip float64) (per int) {
	best := math.Inf(1)
	for n := max(1, int(perChip/(2*pointsPerChip))); n <= max(1, int(perChip/pointsPerChip)); n++ {
		_, part := math.Modf(perChip / float64(n))
		if d := math.Abs(math.Min(part, 1-part) - offGrid); d <= best {
			best, per = d, n
		}
	}
	return per
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

// Finish ends the stream: markers that are complete but still
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

// ring keeps the newest values of a stream; its size is a power of two.
type ring[T any] struct {
	buf []T
	n   int64 // values pushed so far
}

func newRing[T any](least int) ring[T] {
	return ring[T]{buf: make([]T, 1<<bits.Len(uint(max(least, 1)-1)))}
}

func (r *ring[T]) push(v T) {
	r.buf[r.n&int64(len(r.buf)-1)] = v
	r.n++
}

// at returns value i of the stream, which must not be older than first.
func (r *ring[T]) at(i int64) *T { return &r.buf[i&int64(len(r.buf)-1)] }

// first is the number of the oldest value kept.
func (r *ring[T]) first() int64 { return max(0, r.n-int64(len(r.buf))) }

func (r *ring[T]) clear() { r.n = 0 }

// Plain reports whether the marker is a plain up-down pattern found in the
// place of a code: it resembles the code asked for, but carries no tag.
func (f *Found) Plain() bool { return f.Fallback && !f.TagOK }

// Pair picks the two markers that bound a task from all that were found, in
// the order of their times. All trimming and timing of tasks uses it, so that
// all name the same two.
//
//   - start is the first start marker with the task's tag, and stop the last
//     stop marker with it: where a host tried again, the window holds all tries.
//   - A stop that begins before the start has ended is another task's.
//   - A marker with another tag bounds nothing.
//   - Where no start, or no stop, with the tag was found, the plain up-down
//     pattern counts in its place, see Plain.
//
// Either may be nil. A stop is picked without a start too: it times the task,
// though it cannot trim it. The pointers are into found.
func Pair(found []Found) (start, stop *Found) {
	own := func(f *Found) bool { return f.TagOK }
	for _, want := range []func(*Found) bool{own, (*Found).Plain} {
		for i := range found {
			if f := &found[i]; start == nil && f.Kind == Start && want(f) {
				start = f
			}
		}
	}
	for _, want := range []func(*Found) bool{own, (*Found).Plain} {
		for i := range found {
			f := &found[len(found)-1-i]
			if stop == nil && f.Kind == Stop && want(f) && (start == nil || f.Begin >= start.End) {
				stop = f
			}
		}
	}
	return start, stop
}

// Inform passes an integrator the rest outside of the markers that bound a task, and the times of the markers'
// steps. It is called before the first Add.
func Inform(g *measure.Integrator, spec Spec, found []Found) {
	before, behind := measure.Seconds(math.NaN()), measure.Seconds(math.NaN()) // where there is no marker
	start, stop := Pair(found)
	if start != nil {
		before = start.Begin
	}
	if stop != nil {
		behind = stop.End
	}
	g.Rest(before, behind)
	for _, f := range []*Found{start, stop} {
		if f == nil || f.Plain() {
			continue
		}
		spec.Tag = f.Tag
		edges := edgesOf(spec.Chips(f.Kind), spec.CodeStart(), float64(spec.Chip), nil)
		at := lists.Map(edges, func(e edge) measure.Seconds { return f.T + measure.Seconds(e.at) })
		g.Steps(at, spec.Chip/3, 0.9*spec.Chip)
	}
}

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
	// The block's own tick counts where it differs by more than rounding: the same scans must get the same times
	// however they are cut into blocks.
	if diff := float64(b.FirstTick) - d.tick(b.FirstScan); !d.tb.Stamped && (diff > 1.5 || diff < -1.5) {
		d.drop()
		d.anchorScan, d.anchorTick = b.FirstScan, float64(b.FirstTick)
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

// sum adds counts up, several at a time: an addition waits for the one before it.
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
		y := 0.0
		if r.y >= 0 {
			y = float64(d.sums[r.y]) * inv
		}
		p += r.lin.Power(float64(d.sums[r.x])*inv, y)
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
