package wt300

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// show is the answer to NUM:NORM:ITEMn?.
func (it item) show() string {
	if it.function == "NONE" {
		return it.function
	}
	return fmt.Sprintf("%s,%d", it.function, it.element)
}

// readItem reads the parameters of NUM:NORM:ITEMn: a function and an element that the meter has.
func (f *Face) readItem(c scpi.Call) (it item, err error) {
	it.element = 1
	if it.function, err = c.Word(0, "U", "I", "P", "NONE"); err != nil || it.function == "NONE" || len(c.Args) < 2 {
		return it, err
	}
	v, err := c.Number(1)
	it.element = int(v)
	if err == nil && (it.element < 1 || it.element > maxElements || !f.elements[it.element].there) {
		err = scpi.ErrRange
	}
	return it, err
}

// read is the answer to NUM:VAL?.
func (f *Face) read() []byte {
	f.update()
	if len(f.reads) == keptReads {
		f.reads = append(f.reads[:0], f.reads[keptReads/2:]...)
	}
	f.reads = append(f.reads, Read{f.base + f.count, f.due(f.count)})
	out := make([]float64, f.number)
	for i := range out {
		out[i] = f.value(f.items[i])
	}
	f.noData, f.overload = max(0, f.noData-1), max(0, f.overload-1)
	if f.format == "FLO" {
		b := make([]byte, 0, 4*len(out))
		for _, v := range out {
			b = binary.BigEndian.AppendUint32(b, math.Float32bits(float32(v)))
		}
		return scpi.Block(4, b)
	}
	s := make([]string, len(out))
	for i, v := range out {
		switch s[i] = fmt.Sprintf("%.4E", v); v {
		case nothing:
			s[i] = "NAN"
		case infinite:
			s[i] = "INF"
		}
	}
	return []byte(strings.Join(s, ","))
}

// value is an element's reading of one quantity, with over-range and no data as FLOAT's codes.
func (f *Face) value(it item) float64 {
	k := slices.Index([]string{"U", "I", "P"}, it.function)
	switch {
	case k < 0 || f.noData > 0 || f.base+f.count == 0:
		return nothing
	case f.overload > 0:
		return infinite
	}
	return f.shown[it.element][k]
}

// infinite and nothing are FLOAT's codes for over-range and for no data.
const (
	infinite = 9.9e37
	nothing  = 9.91e37
)

// Late lets the next update be completed so much later than it is due, by less
// than one update; its average ends when it was due.
func (f *Face) Late(d time.Duration) { f.Do(func() { f.update(); f.late = d }) }

// NoData makes the next reads give no data.
func (f *Face) NoData(reads int) { f.Do(func() { f.noData = reads }) }

// Overload makes the next reads give over-range.
func (f *Face) Overload(reads int) { f.Do(func() { f.overload = reads }) }

// Reads are the reads of the last time, at most some thousands.
func (f *Face) Reads() (out []Read) {
	f.Do(func() { out = append(out, f.reads...) })
	return out
}

// keptReads bounds the reads that are kept for comparison with the truth.
const keptReads = 4096

// setRate begins a new grid of updates.
func (f *Face) setRate(d time.Duration) {
	f.base += f.count
	f.rate, f.origin, f.count, f.late = d, f.cfg.Now(), 0, 0
}

// period is the true distance of updates.
func (f *Face) period() float64 { return float64(f.rate) * (1 + f.clock) }

// due is the board's time of update n, without its delay.
func (f *Face) due(n int64) time.Duration {
	return f.origin + time.Duration(math.Round(float64(n)*f.period()))
}

// update completes the updates that are due and returns how long it is to the
// next.
func (f *Face) update() time.Duration {
	now := f.cfg.Now()
	if next := f.due(f.count+1) + f.late; now < next {
		return next - now
	}
	f.late = 0
	// Of several updates that went by since the last look only the newest is shown: as on the meter,
	// the others are overwritten.
	f.count = max(f.count+1, int64(float64(now-f.origin)/f.period()))
	if !f.hold {
		f.latch(f.due(f.count)-time.Duration(f.period()), f.due(f.count))
	}
	if f.filter[0] == "FALL" || f.filter[0] == "BOTH" {
		f.events |= 1
	}
	return max(f.due(f.count+1)-now, time.Microsecond)
}

// latch computes the elements' readings of an interval.
func (f *Face) latch(from, to time.Duration) {
	mean := f.board.MeanPower(from, to)
	f.board.Observe(to)
	for n := range f.elements {
		e := &f.elements[n]
		v := &f.shown[n]
		*v = values{e.offsetU, e.offsetI, e.zero}
		if !e.there || e.rail < 0 || math.IsNaN(float64(mean)) {
			continue
		}
		r := f.board.Rail(e.rail, measure.Watt(mean))
		if f.cfg.Wall != nil && n == 1 {
			const mains = 230
			p := f.cfg.Wall(mean, from, to)
			r = board.Reading{V: mains, I: measure.Ampere(p / mains), P: p}
		}
		v[0] += float64(r.V) * e.gainU
		v[1] += float64(r.I) * e.gainI
		v[2] += float64(r.P) * e.gainP
		// The meter shows up to 1.4 times a range; a power of which either factor is over has none.
		if v[0] > 1.4*f.volts {
			v[0], v[2] = infinite, infinite
		}
		if v[1] > 1.4*f.amperes {
			v[1], v[2] = infinite, infinite
		}
	}
}
