package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
)

// Trace is what one software method read, in device time.
type Trace struct {
	// Method and Value are as in Reading; a value is NaN where the sensor gave none.
	Method string
	At     []measure.Seconds
	Value  []float64
	// Thinned: of more readings those with the least and the greatest value of each
	// stretch of time are left.
	Thinned bool
	// Until is when the first reading behind the span was taken: the last one here holds
	// until then. Where none was taken behind the span it is the time of the last one.
	Until measure.Seconds
}

// Traces are readings in a span of device time.
type Traces struct {
	Methods []string // all that the task has readings of, by name
	Traces  []Trace  // of those wanted
	// Unfitted: there is no clock fit, the host's clock and the meter's are taken as one.
	Unfitted bool
}

// Traces returns what software methods read between two device times, in at most so
// many readings a method; no methods are all of them. A reading holds until the next one, so
// the last one before the span belongs to it, and the time of the first one behind it. Errors wrap ErrNotFound or ErrNoClock.
func (d *DB) Traces(ctx context.Context, id TaskID, methods []string, from, to measure.Seconds, most int) (Traces, error) {
	op := fmt.Sprintf("read what software methods read of task %d", id)
	if most < 2 || !(from < to) {
		return Traces{}, fmt.Errorf("%s: %d readings from %v to %v: want two or more, and an end after the begin", op, most, from, to)
	}
	l, err := d.liner(ctx, id)
	if err != nil {
		return Traces{}, wrap(op, err)
	}
	t := Traces{Unfitted: l.out.Unfitted}
	if t.Methods, err = d.readingMethods(ctx, id); err != nil {
		return Traces{}, wrap(op, err)
	}
	if len(methods) == 0 {
		methods = t.Methods
	}
	for _, m := range methods {
		r, err := l.trace(m, from, to, most)
		if err != nil {
			return Traces{}, wrap(op, err)
		}
		if len(r.At) > 0 {
			t.Traces = append(t.Traces, r)
		}
	}
	return t, nil
}

// readingMethods lists the methods that a task has readings of: one look into the index
// each, however many readings there are.
func (d *DB) readingMethods(ctx context.Context, id TaskID) (out []string, err error) {
	for last := ""; ; {
		var next sql.NullString
		err := d.reader.QueryRowContext(ctx, `SELECT min(method) FROM reading WHERE task_id=? AND method>?`, int64(id), last).Scan(&next)
		if err != nil || !next.Valid {
			return out, err
		}
		last = next.String
		out = append(out, last)
	}
}

// trace reads one method.
func (l *liner) trace(method string, from, to measure.Seconds, most int) (Trace, error) {
	lo, hi := l.host(from), l.host(to)
	var n int
	var before, behind sql.NullInt64
	// What was read before and behind the span is looked up by itself: it is one reading each.
	err := errors.Join(
		l.d.reader.QueryRowContext(l.ctx, `SELECT count(*) FROM reading WHERE task_id=? AND method=? AND at_ns>=? AND at_ns<?`, int64(l.id), method, lo, hi).Scan(&n),
		l.d.reader.QueryRowContext(l.ctx, `SELECT max(at_ns) FROM reading WHERE task_id=? AND method=? AND at_ns<?`, int64(l.id), method, lo).Scan(&before),
		l.d.reader.QueryRowContext(l.ctx, `SELECT min(at_ns) FROM reading WHERE task_id=? AND method=? AND at_ns>=?`, int64(l.id), method, hi).Scan(&behind))
	if err != nil {
		return Trace{}, err
	}
	if before.Valid {
		lo, n = before.Int64, n+1
	}
	th := thinner{Trace: Trace{Method: method}, single: n <= most, begin: from, width: (to - from) / measure.Seconds(most/2), stretch: math.MinInt}
	rows, err := l.d.reader.QueryContext(l.ctx, `SELECT at_ns, value FROM reading WHERE task_id=? AND method=? AND at_ns>=? AND at_ns<? ORDER BY at_ns`,
		int64(l.id), method, lo, hi)
	if err != nil {
		return Trace{}, err
	}
	defer rows.Close()
	for rows.Next() {
		var at int64
		var v float64
		if err := rows.Scan(&at, realTo(&v)); err != nil {
			return Trace{}, err
		}
		th.Until = l.device(at)
		th.add(th.Until, v)
	}
	th.flush()
	if behind.Valid {
		th.Until = l.device(behind.Int64)
	}
	th.Thinned = !th.single
	return th.Trace, rows.Err()
}

// thinner keeps two readings of each stretch of time: the least and the greatest.
type thinner struct {
	Trace
	single         bool // keep all
	begin, width   measure.Seconds
	stretch        int
	least, most    float64
	leastAt, topAt measure.Seconds
}

func (t *thinner) add(at measure.Seconds, v float64) {
	if t.single {
		t.At, t.Value = append(t.At, at), append(t.Value, v)
		return
	}
	if s := int(math.Floor(float64((at - t.begin) / t.width))); s != t.stretch {
		t.flush()
		t.stretch, t.least, t.most, t.leastAt, t.topAt = s, v, v, at, at
		return
	}
	// A value that is none gives way to any.
	if v < t.least || math.IsNaN(t.least) {
		t.least, t.leastAt = v, at
	}
	if v > t.most || math.IsNaN(t.most) {
		t.most, t.topAt = v, at
	}
}

// flush writes the stretch, in order of time.
func (t *thinner) flush() {
	if t.single || t.stretch == math.MinInt {
		return
	}
	a, va, b, vb := t.leastAt, t.least, t.topAt, t.most
	if b < a {
		a, va, b, vb = b, vb, a, va
	}
	t.At, t.Value = append(t.At, a), append(t.Value, va)
	if b != a {
		t.At, t.Value = append(t.At, b), append(t.Value, vb)
	}
}
