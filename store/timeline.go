package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
)

// Slice is one kernel of a task in device time, or several that follow each other.
type Slice struct {
	From, To measure.Seconds
	// Name is the kernel's; of several, of the one that was busy the longest.
	Name    string
	Kernels uint64
	Busy    measure.Seconds // sum of the durations
	Device  uint32          // of recorded kernels; else 0
	Stream  uint32
}

// Timeline lists the kernels, or the work, in a span of device time.
type Timeline struct {
	Slices  []Slice
	Kernels uint64 // that begin in the span
	Merged  bool   // slices hold several kernels
	// Recorded: the kernels are those of the program's record; otherwise the work as the host noted it.
	Recorded bool
	// Unfitted: there is no clock fit, the two clocks are taken as one.
	Unfitted bool
}

// ErrNoClock: nothing relates the host's clock to device time.
var ErrNoClock = errors.New("no relation between the host's clock and device time")

// reach is how many kernels before a span are looked at for one that reaches into it.
// Kernels on one device overlap little, so that one that began long ago and still runs is among the
// last that began before the span. A look at all of them would be a walk over the whole task.
const reach = 1024

// Timeline returns the kernels between two device times, in order of their begin, in at most the
// given number of slices, or one a stream: where there are more kernels, each slice is a stretch of a stream with
// those that begin in it. Errors wrap ErrNotFound, ErrNoHeader or ErrNoClock.
func (d *DB) Timeline(ctx context.Context, id TaskID, from, to measure.Seconds, slices int) (Timeline, error) {
	op := fmt.Sprintf("read the timeline of task %d", id)
	if slices < 1 || !(from < to) {
		return Timeline{}, fmt.Errorf("%s: %d slices from %v to %v: want one or more, and an end after the begin", op,
			slices, from, to)
	}
	// Host and device time differ by offset and rate: bounds go to host time for the queries, results
	// come back to device time.
	l, err := d.liner(ctx, id)
	if err != nil {
		return Timeline{}, wrap(op, err)
	}
	l.lo, l.hi = l.host(from), l.host(to)
	// Those that began before and reach into the span come first.
	early := l.single(`SELECT * FROM (SELECT * FROM (`+l.source+` ORDER BY start_ns DESC LIMIT ?4) WHERE e>?3)
		ORDER BY s LIMIT ?5`,
		int64(math.MinInt64), l.lo, reach, slices/2)
	// One more than there is room for shows that they are too many.
	within := l.single(l.source+` ORDER BY start_ns LIMIT ?4`, l.lo, l.hi, slices-len(early)+1)
	l.out.Kernels = uint64(len(within))
	// Where single kernels do not fit, stretches of time take the rest of the slices.
	if len(early)+len(within) > slices {
		within = l.merged(slices - len(early))
	}
	if l.out.Slices = append(early, within...); l.out.Recorded {
		l.names()
	}
	return l.out, wrap(op, l.s.err)
}

// liner is one Timeline.
type liner struct {
	s      *session
	id     TaskID
	a      float64 // seconds of device time at origin
	b      float64
	origin int64  // ns since 1970
	lo, hi int64  // the span, ns since 1970
	source string // the kernels as rows (s, e, name, device, stream), within ?1 and ?2 … ?3 of s
	out    Timeline
}

const (
	// Both tables have their primary key from (task_id, start_ns): a span is one range of it.
	recordedSQL = `SELECT start_ns s, end_ns e, name_no name, device_no device, stream FROM launch WHERE task_id=?1
		AND start_ns>=?2 AND start_ns<?3`
	notedSQL = `SELECT start_ns s, end_ns e, name, 0 device, 0 stream FROM kernel WHERE task_id=?1 AND start_ns>=?2
		AND start_ns<?3`
)

// liner reads the relation of the host's clock to device time, t_device = a + b·(t_host −
// origin), and finds the source of the kernels.
func (d *DB) liner(ctx context.Context, id TaskID) (*liner, error) {
	l := &liner{s: d.reading(ctx), id: id, source: notedSQL, b: 1}
	var f clock.Fit
	var fitted bool
	var started sql.NullInt64
	found := l.s.row(`SELECT clock_used IS NOT NULL, clock_origin_s, clock_a_s, clock_b, started_ns,
		EXISTS (SELECT 1 FROM launch l WHERE l.task_id=t.task_id) FROM task t WHERE task_id=?`+d.unlessMine(id), id).
		found(&fitted, (*real)(&f.Origin), (*real)(&f.A), (*real)(&f.B), &started, &l.out.Recorded)
	switch {
	case l.s.err != nil:
		return nil, l.s.err
	case !found:
		return nil, ErrNotFound
	case fitted && f.B > 0:
		// A float of seconds since 1970 does not resolve nanoseconds: the origin's whole seconds
		// become integer nanoseconds, the rest goes to a.
		whole := math.Floor(float64(f.Origin))
		l.origin, l.a, l.b = int64(whole)*1e9, float64(f.A)-f.B*(float64(f.Origin)-whole), f.B
	// Without a fit the monitor's wall clock at device time zero stands in: right to the difference of
	// the two hosts' clocks.
	case started.Valid:
		l.origin, l.out.Unfitted = started.Int64, true
	default:
		return nil, ErrNoClock
	}
	if l.out.Recorded {
		l.source = recordedSQL
	}
	return l, nil
}

// device turns host time to device time.
func (l *liner) device(ns int64) measure.Seconds {
	return measure.Seconds(l.a + l.b*float64(ns-l.origin)/1e9)
}

// host turns device time to host time.
func (l *liner) host(t measure.Seconds) int64 {
	// Bounded, since a span may be given as ±Inf.
	ns := (float64(t) - l.a) / l.b * 1e9
	return l.origin + int64(min(max(ns, -1<<60), 1<<60))
}

// single reads one slice a kernel.
func (l *liner) single(query string, args ...any) []Slice {
	return all(l.s, func(rows *sql.Rows, s *Slice) error {
		var start, end int64
		if err := rows.Scan(&start, &end, (*text)(&s.Name), &s.Device, &s.Stream); err != nil {
			return err
		}
		s.From, s.To, s.Kernels = l.device(start), l.device(end), 1
		s.Busy = s.To - s.From
		return nil
	}, query, append([]any{l.id}, args...)...)
}

// merged reads stretches of equal length, each with the kernels of one stream that begin in it.
func (l *liner) merged(slices int) []Slice {
	// +1 rounds up, so that the stretches of all streams cover the span with no more than slices.
	l.out.Merged, l.out.Kernels = true, 0
	streams := one[int](l.s, `SELECT count(*) FROM (SELECT DISTINCT device, stream FROM (`+l.source+`))`, l.id, l.lo, l.hi)
	width := (l.hi-l.lo)/int64(max(1, slices/max(1, streams))) + 1
	// The inner query sums each name within a stretch of a stream; the outer one takes the name from the row of
	// max(busy), the name that was busy the longest.
	return all(l.s, func(rows *sql.Rows, s *Slice) error {
		var start, end int64
		var busy float64
		if err := rows.Scan(&start, &end, (*text)(&s.Name), new(any), &s.Kernels, &busy, &s.Device, &s.Stream); err != nil {
			return err
		}
		l.out.Kernels += s.Kernels
		s.From, s.To, s.Busy = l.device(start), l.device(end), measure.Seconds(l.b*busy/1e9)
		return nil
	}, `SELECT min(s) first, max(e), name, max(busy), sum(n), sum(busy), device, stream FROM
		(SELECT (s-?2)/?4 stretch, device, stream, name, min(s) s, max(e) e, sum(e-s) busy, count(*) n FROM (`+l.source+`)
			GROUP BY stretch, device, stream, name)
		GROUP BY stretch, device, stream ORDER BY first`, l.id, l.lo, l.hi, width)
}

// names puts the names in place of their numbers.
func (l *liner) names() {
	names := map[string]string{}
	for rows := range l.s.rows(`SELECT name_no, name FROM launch_name WHERE task_id=?`, l.id) {
		var no, name string
		l.s.fail(rows.Scan(&no, (*text)(&name)))
		names[no] = name
	}
	for i := range l.out.Slices {
		x := &l.out.Slices[i]
		x.Name = names[x.Name]
	}
}

// Trace holds the readings of one software method, in device time.
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

// Traces returns readings of software methods between two device times, at most the given number for each
// method; no methods stands for all. A reading holds until the next one, so the last one before the span
// belongs to it, and the time of the first one behind it. Errors wrap ErrNotFound or ErrNoClock.
func (d *DB) Traces(ctx context.Context, id TaskID, methods []string, from, to measure.Seconds,
	most int,
) (Traces, error) {
	op := fmt.Sprintf("read what software methods read of task %d", id)
	if most < 2 || !(from < to) {
		return Traces{}, fmt.Errorf("%s: %d readings from %v to %v: want two or more, and an end after the begin",
			op, most, from, to)
	}
	l, err := d.liner(ctx, id)
	if err != nil {
		return Traces{}, wrap(op, err)
	}
	t := Traces{Unfitted: l.out.Unfitted}
	// A loose index scan: min(method) above the last one is one step in the primary key (task_id, method,
	// at_ns); DISTINCT would walk all readings.
	for last := (sql.NullString{Valid: true}); last.Valid; {
		last = one[sql.NullString](l.s, `SELECT min(method) FROM reading WHERE task_id=? AND method>?`, id, last.String)
		if last.Valid {
			t.Methods = append(t.Methods, last.String)
		}
	}
	if len(methods) == 0 {
		methods = t.Methods
	}
	for _, m := range methods {
		if r := l.trace(m, from, to, most); len(r.At) > 0 {
			t.Traces = append(t.Traces, r)
		}
	}
	return t, wrap(op, l.s.err)
}

// trace reads one method.
func (l *liner) trace(method string, from, to measure.Seconds, most int) Trace {
	s := l.s
	lo, hi := l.host(from), l.host(to)
	const of = ` FROM reading WHERE task_id=? AND method=? AND at_ns`
	// What was read before and behind the span is looked up by itself: it is one reading each.
	n := one[int](s, `SELECT count(*)`+of+`>=? AND at_ns<?`, l.id, method, lo, hi)
	before := one[sql.NullInt64](s, `SELECT max(at_ns)`+of+`<?`, l.id, method, lo)
	behind := one[sql.NullInt64](s, `SELECT min(at_ns)`+of+`>=?`, l.id, method, hi)
	// The reading before the span holds at its begin: the walk starts with it.
	if before.Valid {
		lo, n = before.Int64, n+1
	}
	// Two readings a stretch, so most/2 stretches.
	th := thinner{
		Trace: Trace{Method: method}, single: n <= most, begin: from, width: (to - from) / measure.Seconds(most/2),
		stretch: math.MinInt,
	}
	for rows := range s.rows(`SELECT at_ns, value`+of+`>=? AND at_ns<? ORDER BY at_ns`, l.id, method, lo, hi) {
		var at int64
		var v float64
		s.fail(rows.Scan(&at, (*real)(&v)))
		th.Until = l.device(at)
		th.add(th.Until, v)
	}
	th.flush()
	if behind.Valid {
		th.Until = l.device(behind.Int64)
	}
	th.Thinned = !th.single
	return th.Trace
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

// add takes a reading. Within a stretch only the least and the greatest stay.
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
