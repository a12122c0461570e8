package textin

import (
	"math"

	"wattmark/measure"
)

// Sink takes what Read makes. A block is lent until the call returns.
type Sink struct {
	Block func(*measure.Block) error
	Event func(measure.Event) error
}

// blockRows is the number of scans of a block.
const blockRows = 4096

// gapSteps is how many median steps apart two rows count as having lost what lay
// between, where the file does not number its scans.
const gapSteps = 10

// Read makes blocks of a file that Look has seen. Where scans are missing, by
// their numbers or by their times, an event says how many.
func Read(src Source, columns []Column, s *Survey, sink Sink) error {
	r := reader{v: newValues(columns), s: s, sink: sink}
	r.b.Counts = make([][]measure.Count, len(r.v.q))
	if err := src(r.row); err != nil {
		return err
	}
	return r.flush()
}

type reader struct {
	v        *values
	s        *Survey
	sink     Sink
	b        measure.Block
	rows     uint64
	next     uint64 // number of the next scan where none is lost
	lastTime int64
	lastScan int64
}

func (r *reader) row(row Row) error {
	if err := r.v.read(row); err != nil {
		return err
	}
	if r.rows++; r.rows > r.s.Rows || r.v.time < r.s.First || r.v.time > r.s.Last {
		return fault(row.Number, "the file changed while it was read: import it again")
	}
	if lost, exact := r.lost(); lost > 0 {
		if err := r.flush(); err != nil {
			return err
		}
		if err := r.sink.Event(measure.Event{Kind: measure.EventGap, FirstScan: r.next, Scans: lost, Exact: exact, Channel: -1}); err != nil {
			return err
		}
		r.next += lost
	}
	if len(r.b.Ticks) == 0 {
		r.b.FirstScan, r.b.FirstTick = r.next, (r.v.time-r.s.First)/r.s.tick()
	}
	r.b.Ticks = append(r.b.Ticks, (r.v.time-r.s.First)/r.s.tick())
	for c, q := range r.v.q {
		n := math.Round(q.v / r.s.Gain[c])
		if !(math.Abs(n) < math.MaxInt32) {
			return fault(row.Number, "the file changed while it was read: import it again")
		}
		r.b.Counts[c] = append(r.b.Counts[c], measure.Count(n))
	}
	r.next++
	r.lastTime, r.lastScan = r.v.time, r.v.scan
	if len(r.b.Ticks) == blockRows {
		return r.flush()
	}
	return nil
}

// lost counts the scans missing before the row that was read.
func (r *reader) lost() (n uint64, exact bool) {
	switch {
	case r.rows == 1:
		return 0, false
	case r.v.hasScan:
		return uint64(r.v.scan-r.lastScan) - 1, !r.v.guessed
	}
	if steps := float64(r.v.time-r.lastTime) / r.s.Step; steps > gapSteps {
		return uint64(math.Round(steps)) - 1, false
	}
	return 0, false
}

func (r *reader) flush() error {
	if len(r.b.Ticks) == 0 {
		return nil
	}
	if err := r.sink.Block(&r.b); err != nil {
		return err
	}
	r.b.Ticks = r.b.Ticks[:0]
	for c := range r.b.Counts {
		r.b.Counts[c] = r.b.Counts[c][:0]
	}
	return nil
}
