package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/measure/clock"
)

// Slice is one kernel of a task in device time, or several that follow each other.
type Slice struct {
	From, To measure.Seconds
	// Name is the kernel's; of several, of the one that was busy the longest.
	Name    string
	Kernels uint64
	Busy    measure.Seconds // sum of the durations
	Device  uint32          // of one recorded kernel; else 0
	Stream  uint32
}

// Timeline is what ran in a span of device time.
type Timeline struct {
	Slices  []Slice
	Kernels uint64 // that begin in the span
	Merged  bool   // slices hold several kernels
	// Recorded: the kernels are those that the program's record tells; otherwise the
	// work as the host noted it.
	Recorded bool
	// Unfitted: there is no clock fit, the two clocks are taken as one.
	Unfitted bool
}

// ErrNoClock: nothing relates the host's clock to device time.
var ErrNoClock = errors.New("no relation between the host's clock and device time")

// reach is how many kernels before a span are looked at for one that reaches into it.
const reach = 1024

// Timeline returns what ran between two device times, in order of the begin, in at
// most so many slices: where there are more kernels, each slice is a stretch of
// time with those that begin in it. Errors wrap ErrNotFound, ErrNoHeader or ErrNoClock.
func (d *DB) Timeline(ctx context.Context, id TaskID, from, to measure.Seconds, slices int) (Timeline, error) {
	op := fmt.Sprintf("read the timeline of task %d", id)
	if slices < 1 || !(from < to) {
		return Timeline{}, fmt.Errorf("%s: %d slices from %v to %v: want one or more, and an end after the begin", op, slices, from, to)
	}
	l, err := d.liner(ctx, id)
	if err != nil {
		return Timeline{}, wrap(op, err)
	}
	l.lo, l.hi, l.slices = l.host(from), l.host(to), slices
	if err := l.read(); err != nil {
		return Timeline{}, wrap(op, err)
	}
	return l.out, nil
}

// liner is one Timeline.
type liner struct {
	ctx    context.Context
	d      *DB
	id     TaskID
	a      float64 // seconds of device time at origin
	b      float64
	origin int64 // ns since 1970
	lo, hi int64 // the span, ns since 1970
	slices int
	source string // the kernels as rows (s, e, name, device, stream), within ?1 and ?2 … ?3 of s
	out    Timeline
}

const (
	recordedSQL = `SELECT start_ns s, end_ns e, name_no name, device_no device, stream FROM launch WHERE task_id=?1 AND start_ns>=?2 AND start_ns<?3`
	notedSQL    = `SELECT start_ns s, end_ns e, name, 0 device, 0 stream FROM kernel WHERE task_id=?1 AND start_ns>=?2 AND start_ns<?3`
)

func (d *DB) liner(ctx context.Context, id TaskID) (*liner, error) {
	l := &liner{ctx: ctx, d: d, id: id, source: notedSQL, b: 1}
	var f clock.Fit
	var fitted bool
	var started sql.NullInt64
	err := d.reader.QueryRowContext(ctx, `SELECT clock_used IS NOT NULL, clock_origin_s, clock_a_s, clock_b, started_ns,
		EXISTS (SELECT 1 FROM launch l WHERE l.task_id=t.task_id) FROM task t WHERE task_id=?`+d.unlessMine(id), int64(id)).
		Scan(&fitted, realTo(&f.Origin), realTo(&f.A), realTo(&f.B), &started, &l.out.Recorded)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, ErrNotFound
	case err != nil:
		return nil, err
	case fitted && f.B > 0:
		// The origin is told in seconds, which cannot say nanoseconds of 1970's count: its
		// whole seconds become nanoseconds, the rest goes to a.
		whole := math.Floor(float64(f.Origin))
		l.origin, l.a, l.b = int64(whole)*1e9, float64(f.A)-f.B*(float64(f.Origin)-whole), f.B
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
	ns := (float64(t) - l.a) / l.b * 1e9
	return l.origin + int64(min(max(ns, -1<<60), 1<<60))
}

// read reads single kernels, and stretches of them where these are too many.
func (l *liner) read() error {
	// Those that began before and reach into the span come first.
	early, err := l.single(`SELECT * FROM (SELECT * FROM (`+l.source+` ORDER BY start_ns DESC LIMIT ?4) WHERE e>?3) ORDER BY s LIMIT ?5`,
		int64(math.MinInt64), l.lo, reach, l.slices/2)
	if err != nil {
		return err
	}
	within, err := l.single(l.source+` ORDER BY start_ns LIMIT ?4`, l.lo, l.hi, l.slices-len(early)+1)
	if err != nil {
		return err
	}
	l.out.Kernels = uint64(len(within))
	if len(early)+len(within) <= l.slices {
		l.out.Slices = append(early, within...)
	} else if err := l.merged(l.slices - len(early)); err != nil {
		return err
	} else {
		l.out.Slices = append(early, l.out.Slices...)
	}
	if l.out.Recorded {
		return l.names()
	}
	return nil
}

func (l *liner) single(query string, args ...any) ([]Slice, error) {
	return collect(l.ctx, l.d.reader, func(rows *sql.Rows, s *Slice) error {
		var start, end int64
		if err := rows.Scan(&start, &end, textTo(&s.Name), &s.Device, &s.Stream); err != nil {
			return err
		}
		s.From, s.To, s.Kernels = l.device(start), l.device(end), 1
		s.Busy = s.To - s.From
		return nil
	}, query, append([]any{int64(l.id)}, args...)...)
}

// merged reads stretches of equal length, each with the kernels that begin in it.
func (l *liner) merged(slices int) error {
	width := (l.hi-l.lo)/int64(slices) + 1
	var err error
	l.out.Merged, l.out.Kernels = true, 0
	l.out.Slices, err = collect(l.ctx, l.d.reader, func(rows *sql.Rows, s *Slice) error {
		var start, end int64
		var busy float64
		if err := rows.Scan(&start, &end, textTo(&s.Name), new(any), &s.Kernels, &busy); err != nil {
			return err
		}
		l.out.Kernels += s.Kernels
		s.From, s.To, s.Busy = l.device(start), l.device(end), measure.Seconds(l.b*busy/1e9)
		return nil
	}, `SELECT min(s), max(e), name, max(busy), sum(n), sum(busy) FROM
		(SELECT (s-?2)/?4 stretch, name, min(s) s, max(e) e, sum(e-s) busy, count(*) n FROM (`+l.source+`) GROUP BY stretch, name)
		GROUP BY stretch ORDER BY stretch`, int64(l.id), l.lo, l.hi, width)
	return err
}

// names puts the names in place of their numbers.
func (l *liner) names() error {
	t, err := collect(l.ctx, l.d.reader, func(rows *sql.Rows, n *[2]string) error { return rows.Scan(&n[0], textTo(&n[1])) },
		`SELECT name_no, name FROM launch_name WHERE task_id=?`, int64(l.id))
	if err != nil {
		return err
	}
	names := make(map[string]string, len(t))
	for _, n := range t {
		names[n[0]] = n[1]
	}
	for i := range l.out.Slices {
		s := &l.out.Slices[i]
		s.Name = names[s.Name]
	}
	return nil
}
