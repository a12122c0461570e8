package exchange

import (
	"context"
	"errors"
	"iter"
	"sort"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// scans reads a task's scans into batches.
type scans struct {
	ctx      context.Context
	db       Chunks
	id       store.TaskID
	setup    *measure.Setup
	window   *measure.Window
	host     hostTime
	hostTime bool
}

// beside is how many scans around the window are read with it: readings that are
// brought to one instant look at their neighbours.
const beside = 256

// blocks yields the blocks that reach into the window.
func (s *scans) blocks() iter.Seq2[*measure.Block, error] {
	tb := s.setup.Timebase
	near := func(yield func(*chunk.Chunk, error) bool) {
		for c, err := range s.db.Chunks(s.ctx, s.id, 0) {
			if err == nil && s.window != nil {
				margin := beside * tb.TicksPerScan
				if first := float64(c.FirstTick); first-margin > tb.Ticks(s.window.To) {
					return
				} else if !tb.Stamped && first+float64(c.Scans)*tb.TicksPerScan+margin < tb.Ticks(s.window.From) {
					continue
				}
			}
			if !yield(c, err) {
				return
			}
		}
	}
	return chunk.DecodeAll(near, s.setup)
}

// within returns the scans [lo, hi) of n that lie in the window.
func (s *scans) within(n int, tick func(int) float64) (lo, hi int) {
	if s.window == nil {
		return 0, n
	}
	tb := s.setup.Timebase
	lo = sort.Search(n, func(i int) bool { return tb.Seconds(tick(i)) >= s.window.From })
	hi = lo + sort.Search(n-lo, func(i int) bool { return tb.Seconds(tick(lo+i)) > s.window.To })
	return lo, hi
}

// filler collects rows and yields full batches.
type filler struct {
	batch Batch
	yield func(*Batch, error) bool
	fill  func(b *Batch, lo, hi int)
}

var errStopped = errors.New("the reader stopped")

func newFiller(columns []Column, yield func(*Batch, error) bool) *filler {
	f := &filler{yield: yield, batch: Batch{Columns: make([]Values, len(columns))}}
	for i, c := range columns {
		v := &f.batch.Columns[i]
		switch c.Type {
		case Int32:
			v.I32 = make([]int32, 0, BatchRows)
		case Int64:
			v.I64 = make([]int64, 0, BatchRows)
		default:
			v.F64 = make([]float64, 0, BatchRows)
		}
	}
	return f
}

// add takes rows [lo, hi) of what fill reads.
func (f *filler) add(lo, hi int) error {
	for lo < hi {
		n := min(hi-lo, BatchRows-f.batch.Rows)
		f.fill(&f.batch, lo, lo+n)
		f.batch.Rows += n
		lo += n
		if f.batch.Rows == BatchRows {
			if err := f.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *filler) flush() error {
	if f.batch.Rows == 0 {
		return nil
	}
	if !f.yield(&f.batch, nil) {
		return errStopped
	}
	f.batch.Rows = 0
	for i := range f.batch.Columns {
		v := &f.batch.Columns[i]
		v.I32, v.I64, v.F64 = v.I32[:0], v.I64[:0], v.F64[:0]
	}
	return nil
}

// end hands on what is left, or the error.
func (f *filler) end(err error) {
	if err == nil {
		err = f.flush()
	}
	if err != nil && !errors.Is(err, errStopped) {
		f.yield(nil, err)
	}
}

// raw yields counts.
func (s *scans) raw(columns []Column, channels []int) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		f := newFiller(columns, yield)
		var block *measure.Block
		f.fill = func(b *Batch, lo, hi int) { s.fillRaw(b, block, channels, lo, hi) }
		var err error
		for block, err = range s.blocks() {
			if err == nil {
				err = f.add(s.within(block.Scans(), func(i int) float64 { return block.TickAt(s.setup.Timebase, i) }))
			}
			if err != nil {
				break
			}
		}
		f.end(err)
	}
}

func (s *scans) fillRaw(b *Batch, from *measure.Block, channels []int, lo, hi int) {
	tb := s.setup.Timebase
	scan, tick := &b.Columns[0].I64, &b.Columns[1]
	whole := wholeTicks(tb)
	for i := lo; i < hi; i++ {
		*scan = append(*scan, int64(from.FirstScan)+int64(i))
		if t := from.TickAt(tb, i); whole {
			tick.I64 = append(tick.I64, int64(t))
		} else {
			tick.F64 = append(tick.F64, t)
		}
	}
	for k, c := range channels {
		v := &b.Columns[2+k]
		v.I32 = append(v.I32, from.Counts[c][lo:hi]...)
	}
	if s.hostTime {
		v := &b.Columns[2+len(channels)]
		for i := lo; i < hi; i++ {
			v.I64 = append(v.I64, s.host.nanos(tb.Seconds(from.TickAt(tb, i))))
		}
	}
}

// derived yields volts, amperes and watts.
func (s *scans) derived(columns []Column, rails []int) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		f := newFiller(columns, yield)
		var powers *measure.Powers
		f.fill = func(b *Batch, lo, hi int) { s.fillDerived(b, powers, rails, lo, hi) }
		stream, err := measure.NewPowerStream(s.setup, func(p *measure.Powers) error {
			powers = p
			return f.add(s.within(p.Scans(), p.Tick))
		})
		if err != nil {
			f.end(err)
			return
		}
		for b, err := range s.blocks() {
			if err == nil {
				err = stream.Add(b)
			}
			if err != nil {
				f.end(err)
				return
			}
		}
		f.end(stream.Close())
	}
}

func (s *scans) fillDerived(b *Batch, p *measure.Powers, rails []int, lo, hi int) {
	tb := s.setup.Timebase
	for i := lo; i < hi; i++ {
		b.Columns[0].I64 = append(b.Columns[0].I64, int64(p.FirstScan)+int64(i))
		b.Columns[1].F64 = append(b.Columns[1].F64, float64(tb.Seconds(p.Tick(i))))
		total := 0.0
		for r := range p.Rails {
			total += float64(p.Rails[r].P[i])
		}
		b.Columns[2].F64 = append(b.Columns[2].F64, total)
	}
	at := 3
	for _, r := range rails {
		if cols := &p.Rails[r]; len(cols.I) > 0 {
			b.Columns[at].F64 = appendAll(b.Columns[at].F64, cols.I[lo:hi])
			b.Columns[at+1].F64 = appendAll(b.Columns[at+1].F64, cols.V[lo:hi])
			at += 2
		}
		b.Columns[at].F64 = appendAll(b.Columns[at].F64, p.Rails[r].P[lo:hi])
		at++
	}
	if s.hostTime {
		for i := lo; i < hi; i++ {
			b.Columns[at].I64 = append(b.Columns[at].I64, s.host.nanos(tb.Seconds(p.Tick(i))))
		}
	}
}

func appendAll[T ~float64](dst []float64, src []T) []float64 {
	for _, v := range src {
		dst = append(dst, float64(v))
	}
	return dst
}
