package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"time"

	"wattmark/measure"
)

// Totals is what several tasks come to.
type Totals struct {
	Tasks, Measured uint64 // Measured have a window
	// Energy is the sum. An error that lasts, such as a channel's gain, is taken as one
	// for all tasks of an instrument, all others as independent.
	Energy   measure.Estimate
	Duration measure.Seconds // of the windows
	Samples  uint64
}

// Grouping is what tasks are added up by.
type Grouping uint8

// The groupings.
const (
	ByUser   Grouping = 1
	ByDay    Grouping = 2 // of the launch; see AggregateQuery.Offset
	ByGPU    Grouping = 3
	ByKernel Grouping = 4 // names of recorded kernels
	ByJob    Grouping = 5
	ByTag    Grouping = 6 // the value of AggregateQuery.Tag
)

// AggregateQuery asks what tasks come to.
type AggregateQuery struct {
	Filter
	By     Grouping
	Offset measure.Seconds // of the days from UTC, east positive
	Tag    string          // the key that ByTag goes by
}

// AggregateRow is one user, day, GPU, kernel, job or value of a tag.
type AggregateRow struct {
	// Key is empty for what nobody told; of a GPU its UUID, or else its model.
	Key, Label string
	Totals
	Launches uint64 // of a kernel
}

// Aggregate adds tasks up, the greatest energy first, days newest first. Of a
// kernel the tasks are those that it ran in; the uncertainty of its energy is the
// sum of theirs, an upper bound. Errors may wrap ErrPattern.
func (d *DB) Aggregate(ctx context.Context, q AggregateQuery) ([]AggregateRow, error) {
	op := "add tasks up"
	names, err := q.names()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	c := q.conditions(names)
	var rows []AggregateRow
	switch q.By {
	case ByKernel:
		rows, err = d.kernelTotals(ctx, c)
	case ByUser:
		rows, err = d.totals(ctx, c, "(SELECT login FROM user WHERE user_id=t.user_id)", "''")
	case ByDay:
		day := fmt.Sprintf("coalesce(CAST((t.launched_ns+%d)/%d AS TEXT),'')", int64(float64(q.Offset)*1e9)+dayShift*dayNanos, dayNanos)
		rows, err = d.totals(ctx, c, day, "''")
		nameDays(rows)
	case ByGPU:
		rows, err = d.totals(ctx, c, "coalesce(nullif(t.gpu_uuid,''), t.bench_gpu, t.gpu)", "t.gpu")
	case ByJob:
		rows, err = d.totals(ctx, c, "coalesce(t.job,'')", "''")
	case ByTag:
		c.args = slices.Insert(c.args, 0, any(q.Tag)) // the key stands before the conditions
		rows, err = d.totals(ctx, c, "coalesce((SELECT g.value FROM task_tag g WHERE g.task_id=t.task_id AND g.key=?),'')", "''")
	default:
		return nil, fmt.Errorf("%s: there is no grouping %d", op, q.By)
	}
	slices.SortFunc(rows, func(a, b AggregateRow) int {
		if q.By == ByDay {
			return cmp.Compare(b.Key, a.Key)
		}
		return cmp.Or(cmp.Compare(b.Energy.Energy, a.Energy.Energy), cmp.Compare(a.Key, b.Key))
	})
	return rows, wrap(op, err)
}

// Days are counted from a century before 1970, so that dividing rounds down.
const (
	dayNanos = 24 * 3600 * 1_000_000_000
	dayShift = 36525
)

// nameDays turns keys that are counted days into dates.
func nameDays(rows []AggregateRow) {
	for i, r := range rows {
		if n, err := strconv.Atoi(r.Key); err == nil {
			rows[i].Key = time.Unix(0, 0).UTC().AddDate(0, 0, n-dayShift).Format(time.DateOnly)
		}
	}
}

// Totals adds all tasks of a filter up. Errors may wrap ErrPattern.
func (d *DB) Totals(ctx context.Context, f Filter) (Totals, error) {
	names, err := f.names()
	if err != nil {
		return Totals{}, fmt.Errorf("add tasks up: %w", err)
	}
	rows, err := d.totals(ctx, f.conditions(names), "''", "''")
	if err != nil || len(rows) == 0 {
		return Totals{}, wrap("add tasks up", err)
	}
	return rows[0].Totals, nil
}

// totalsSQL adds up within keys. What a task's expanded uncertainty is made of
// counts by the task's own coverage factor. Lines of errors that last are added
// within an instrument, which its serial number names, or else the calibration;
// all others, and tasks without lines, by their squares.
const totalsSQL = `WITH s AS MATERIALIZED (
  SELECT %[1]s AS key, %[2]s AS label, t.task_id id, t.has_result r, t.energy_j e, t.energy_u_j u, t.to_s-t.from_s d, t.samples n,
    coalesce(nullif(t.instrument_serial,''), 'calibration '||t.calibration_id) meter
  FROM task t %[3]s),
k AS MATERIALIZED (SELECT id, sum(b.u_j*b.u_j) q FROM s JOIN budget b ON b.task_id=id AND b.rail=-1 WHERE u IS NOT NULL GROUP BY id HAVING sum(b.u_j*b.u_j)>0),
l AS MATERIALIZED (SELECT key, meter, b.source, u*u*b.u_j*b.u_j/q sq, u*b.u_j/sqrt(q) lin, CASE WHEN b.systematic<>0
    AND substr(b.source, 1, instr(b.source||' ',' ')-1) IN ('gain','offset','shunt','skew','assumed','tick') THEN 1 ELSE 0 END lasts
  FROM s JOIN k USING(id) JOIN budget b ON b.task_id=id AND b.rail=-1),
v AS (SELECT key, sum(sq) v FROM (
    SELECT key, sq FROM l WHERE lasts=0
    UNION ALL SELECT key, sum(lin)*sum(lin) FROM l WHERE lasts=1 GROUP BY key, meter, source
    UNION ALL SELECT key, u*u FROM s WHERE id NOT IN (SELECT id FROM k) AND u IS NOT NULL) parts GROUP BY key)
SELECT s.key, max(s.label), count(*), sum(r), coalesce(sum(e),0), coalesce((SELECT sqrt(v) FROM v WHERE v.key=s.key),0),
  coalesce(sum(d),0), coalesce(sum(n),0) FROM s GROUP BY s.key`

func (d *DB) totals(ctx context.Context, c *conditions, key, label string) ([]AggregateRow, error) {
	c.add(published)
	return collect(ctx, d.reader, func(rows *sql.Rows, r *AggregateRow) error {
		return rows.Scan(textTo(&r.Key), textTo(&r.Label), &r.Tasks, &r.Measured, realTo(&r.Energy.Energy), realTo(&r.Energy.U),
			realTo(&r.Duration), &r.Samples)
	}, fmt.Sprintf(totalsSQL, key, label, c.sql()), c.args...)
}

// NoKernel is the label of the row of Aggregate ByKernel, without a key, that holds
// what recorded tasks drew while no kernel ran: with it the rows come to their energy.
const NoKernel = "no kernel"

// kernelTotals adds up the energies by name of the results in use.
func (d *DB) kernelTotals(ctx context.Context, c *conditions) ([]AggregateRow, error) {
	join := "JOIN"
	if len(c.where) > 0 {
		join = "CROSS JOIN" // from the tasks of the filter to their kernels, never from all kernels
	}
	c.add(published)
	return collect(ctx, d.reader, func(rows *sql.Rows, r *AggregateRow) error {
		return rows.Scan(textTo(&r.Key), textTo(&r.Label), &r.Tasks, &r.Measured, realTo(&r.Energy.Energy), realTo(&r.Energy.U), realTo(&r.Duration), &r.Launches)
	}, `SELECT CASE WHEN k.class=1 THEN k.name ELSE '' END, CASE WHEN k.class=1 THEN '' ELSE '`+NoKernel+`' END, count(DISTINCT t.task_id), count(DISTINCT CASE WHEN k.energy_j IS NOT NULL THEN t.task_id END),
			coalesce(sum(k.energy_j),0), coalesce(sum(k.energy_u_j),0), coalesce(sum(k.busy_s),0), sum(k.launches)
		FROM task t `+join+` kernel_energy k ON k.task_id=t.task_id AND k.number=t.result `+c.sql()+`GROUP BY 1, 2`, c.args...)
}
