package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// Totals are sums over several tasks.
type Totals struct {
	Tasks, Measured uint64 // Measured have a window
	// Energy is the sum. An error that lasts, such as a channel's gain, is taken as one
	// for all tasks of an instrument, all others as independent.
	Energy   measure.Estimate
	Duration measure.Seconds // of the windows
	Samples  uint64
}

// Grouping is the key by which tasks are added up.
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

// AggregateQuery selects tasks, and the key by which they are added up.
type AggregateQuery struct {
	Filter
	By     Grouping
	Offset measure.Seconds // of the days from UTC, east positive
	Tag    string          // the key that ByTag goes by
}

// AggregateRow is one user, day, GPU, kernel, job or value of a tag.
type AggregateRow struct {
	// Key is empty where it is unknown; of a GPU its UUID, or else its model.
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
		// Each expression is evaluated once a task, in the common table s.
		rows, err = d.totals(ctx, c, "(SELECT login FROM \"user\" WHERE user_id=t.user_id)", "''")
	case ByDay:
		// Integer division of shifted nanoseconds: SQLite and PostgreSQL round towards zero, and the
		// shift keeps the dividend positive for dates after 1870.
		day := fmt.Sprintf("coalesce(CAST((t.launched_ns+%d)/%d AS TEXT),'')",
			int64(float64(q.Offset)*1e9)+dayShift*dayNanos, dayNanos)
		rows, err = d.totals(ctx, c, day, "''")
		for i, r := range rows {
			if n, err := strconv.Atoi(r.Key); err == nil {
				rows[i].Key = time.Unix(0, 0).UTC().AddDate(0, 0, n-dayShift).Format(time.DateOnly)
			}
		}
	case ByGPU:
		rows, err = d.totals(ctx, c, "coalesce(nullif(t.gpu_uuid,''), t.bench_gpu, t.gpu)", "t.gpu")
	case ByJob:
		rows, err = d.totals(ctx, c, "coalesce(t.job,'')", "''")
	case ByTag:
		c.args = slices.Insert(c.args, 0, any(q.Tag)) // the key stands before the conditions
		rows, err = d.totals(ctx, c,
			"coalesce((SELECT g.value FROM task_tag g WHERE g.task_id=t.task_id AND g.key=?),'')", "''")
	default:
		return nil, fmt.Errorf("%s: there is no grouping %d", op, q.By)
	}
	slices.SortFunc(rows, func(a, b AggregateRow) int {
		if q.By == ByDay {
			return cmp.Compare(b.Key, a.Key)
		}
		return cmp.Or(cmp.Compare(b.Energy.Energy, a.Energy.Energy), cmp.Compare(a.Key, b.Key))
	})
	return rows, err
}

// Days are counted from a century before 1970, so that dividing rounds down.
const (
	dayNanos = 24 * 3600 * 1_000_000_000
	dayShift = 36525
)

// Totals adds all tasks of a filter up. Errors may wrap ErrPattern.
func (d *DB) Totals(ctx context.Context, f Filter) (Totals, error) {
	names, err := f.names()
	if err != nil {
		return Totals{}, fmt.Errorf("add tasks up: %w", err)
	}
	rows, err := d.totals(ctx, f.conditions(names), "''", "''")
	if err != nil || len(rows) == 0 {
		return Totals{}, err
	}
	return rows[0].Totals, nil
}

// totalsSQL adds up within keys. What a task's expanded uncertainty is made of counts by the task's own
// coverage factor. Lines of errors that last are added within an instrument, which its serial number names,
// or else the calibration; all others, and tasks without lines, by their squares. With u_i the lines of a
// task's budget of the total (rail -1), U its expanded uncertainty and k = U/√Σu_i² its coverage factor, V
// = Σ (Σ k·u_i)² over groups of lasting lines + Σ (k·u_i)² over all other lines + Σ U² of tasks without
// lines, and the result is √V.
const totalsSQL = `WITH s AS MATERIALIZED (
  SELECT %[1]s AS key, %[2]s AS label, t.task_id id, t.has_result r, t.energy_j e, t.energy_u_j u, t.to_s-t.from_s d,
	t.samples n,
    coalesce(nullif(t.instrument_serial,''), 'calibration '||t.calibration_id) meter
  FROM task t %[3]s),
k AS MATERIALIZED (SELECT id, sum(b.u_j*b.u_j) q FROM s JOIN budget b ON b.task_id=id AND b.rail=-1
	WHERE u IS NOT NULL GROUP BY id HAVING sum(b.u_j*b.u_j)>0),
l AS MATERIALIZED (SELECT key, meter, b.source, u*u*b.u_j*b.u_j/q sq, u*b.u_j/sqrt(q) lin, CASE WHEN b.systematic<>0
AND substr(b.source, 1, instr(b.source||' ',' ')-1) IN ('gain','offset','shunt','skew','assumed','tick')
THEN 1 ELSE 0 END lasts
  FROM s JOIN k USING(id) JOIN budget b ON b.task_id=id AND b.rail=-1),
v AS (SELECT key, sum(sq) v FROM (
    SELECT key, sq FROM l WHERE lasts=0
    UNION ALL SELECT key, sum(lin)*sum(lin) FROM l WHERE lasts=1 GROUP BY key, meter, source
    UNION ALL SELECT key, u*u FROM s WHERE id NOT IN (SELECT id FROM k) AND u IS NOT NULL) parts GROUP BY key)
SELECT s.key, max(s.label), count(*), sum(r), coalesce(sum(e),0), coalesce((SELECT sqrt(v) FROM v WHERE v.key=s.key),0),
  coalesce(sum(d),0), coalesce(sum(n),0) FROM s GROUP BY s.key`

// totals adds up the tasks of some conditions by a key, each expression in SQL.
func (d *DB) totals(ctx context.Context, c *conditions, key, label string) ([]AggregateRow, error) {
	c.add(published)
	return collect(ctx, d, "add tasks up", func(rows *sql.Rows, r *AggregateRow) error {
		return rows.Scan((*text)(&r.Key), (*text)(&r.Label), &r.Tasks, &r.Measured, (*real)(&r.Energy.Energy),
			(*real)(&r.Energy.U), (*real)(&r.Duration), &r.Samples)
	}, fmt.Sprintf(totalsSQL, key, label, c.sql()), c.args...)
}

// NoKernel is the label of the row of Aggregate ByKernel, without a key, that holds
// the energy of recorded tasks while no kernel ran: with it the rows add up to their energy.
const NoKernel = "no kernel"

// kernelTotals adds up the energies by name of the results in use.
func (d *DB) kernelTotals(ctx context.Context, c *conditions) ([]AggregateRow, error) {
	join := ","
	if len(c.where) > 0 {
		join = "CROSS JOIN" // SQLite: from the tasks of the filter to their kernels, never from all kernels
	}
	// Of the result in use: kernel_energy has lines for each result. Classes 1 and 11 are kernels (see fitted).
	c.add("k.task_id=t.task_id AND k.number=t.result")
	c.add(published)
	return collect(ctx, d, "add tasks up", func(rows *sql.Rows, r *AggregateRow) error {
		return rows.Scan((*text)(&r.Key), (*text)(&r.Label), &r.Tasks, &r.Measured, (*real)(&r.Energy.Energy),
			(*real)(&r.Energy.U), (*real)(&r.Duration), &r.Launches)
	}, `SELECT CASE WHEN k.class IN (1,11) THEN k.name ELSE '' END, CASE WHEN k.class IN (1,11) THEN '' ELSE '`+NoKernel+`' END,
		count(DISTINCT t.task_id), count(DISTINCT CASE WHEN k.energy_j IS NOT NULL THEN t.task_id END),
			coalesce(sum(k.energy_j),0), coalesce(sum(k.energy_u_j),0), coalesce(sum(k.busy_s),0), sum(k.launches)
		FROM task t `+join+` kernel_energy k `+c.sql()+`GROUP BY 1, 2`, c.args...)
}

// Mark is a digest of a task: it changes with the task's state, result, reason and labels.
type Mark struct {
	ID      TaskID
	Running bool
	Sum     uint64
}

// Watch notices changes of the database. It is not safe for concurrent use.
// It holds one connection out of the pool.
type Watch struct {
	conn    *sql.Conn
	version int64
}

// NewWatch begins to watch, on a connection of its own until Close.
func (d *DB) NewWatch(ctx context.Context) (*Watch, error) {
	conn, err := d.reader.Conn(ctx)
	if err != nil {
		return nil, wrap("watch the database", err)
	}
	return &Watch{conn: conn, version: -1}, nil
}

// Changed reports whether anything was written since it was last asked, by whatever program; the first time
// it is true. PRAGMA data_version changes with commits of other connections only, of this process or
// others; a query of one integer, without a lock.
func (w *Watch) Changed(ctx context.Context) (bool, error) {
	var v int64
	// The number stands for the commits of others that this connection has seen.
	if err := w.conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&v); err != nil {
		return false, wrap("watch the database", err)
	}
	changed := v != w.version
	w.version = v
	return changed, nil
}

// Close gives the connection back.
func (w *Watch) Close() error { return w.conn.Close() }

// Marks returns the marks of the tasks from an id on, and of the others named, in order.
func (d *DB) Marks(ctx context.Context, from TaskID, others []TaskID) ([]Mark, error) {
	// All columns that a revision changes; chunks and scans of running tasks are left out, since they
	// change with every batch.
	const fields = "SELECT task_id, state, coalesce(result,0), has_result, coalesce(energy_j,0), coalesce(from_s,0), " +
		"coalesce(to_s,0), reason, started_ns IS NULL, pinned FROM task t WHERE " + published + " AND "
	scan := func(rows *sql.Rows, m *Mark) error {
		var v [9]sql.RawBytes
		if err := rows.Scan(&m.ID, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &v[8]); err != nil {
			return err
		}
		// The state is a digit; its value is needed beside the digest.
		m.Running = len(v[0]) == 1 && State(v[0][0]-'0') == Running
		m.Sum = digestOfBytes(v[:]...)
		return nil
	}
	s := d.reading(ctx)
	var out []Mark
	for _, id := range others {
		// Those from the id on come with the range below.
		if id < from {
			out = append(out, all(s, scan, fields+"task_id=?", id)...)
		}
	}
	out = append(out, all(s, scan, fields+"task_id>=? ORDER BY task_id", from)...)
	markLabels(s, out)
	return out, wrap("watch the database", s.err)
}

// digestOfBytes is a digest of a row's values, a NUL behind each.
func digestOfBytes(values ...sql.RawBytes) uint64 {
	h := fnv.New64a()
	for _, b := range values {
		_, _ = h.Write(b)
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// markLabels adds the tasks' tags and notes to their marks. Tasks with neither keep theirs.
func markLabels(s *session, marks []Mark) {
	if len(marks) == 0 {
		return
	}
	at := map[TaskID]int{}
	for i, m := range marks {
		at[m.ID] = i
	}
	// One walk from the least id on: tags and notes are few against a query for each task.
	first := slices.Min(slices.Collect(maps.Keys(at)))
	for _, query := range []string{
		`SELECT task_id, key, value FROM task_tag WHERE task_id>=?`,
		`SELECT task_id, number, text FROM task_note WHERE task_id>=?`,
	} {
		for rows := range s.rows(query, first) {
			var id TaskID
			var v [2]sql.RawBytes
			s.fail(rows.Scan(&id, &v[0], &v[1]))
			if i, asked := at[id]; asked {
				// A sum of digests, so that the order of rows does not matter.
				marks[i].Sum += digestOfBytes(v[:]...)
			}
		}
	}
}

// newestTasks is among how many of the newest tasks a capture's task is looked for:
// captures that a monitor holds are of today.
const newestTasks = 1000

// TaskOfCapture returns the task that a monitor's capture is for, of the newest tasks; 0 where none is.
func (d *DB) TaskOfCapture(ctx context.Context, captureID string) (TaskID, error) {
	if captureID == "" {
		return 0, nil
	}
	s := d.reading(ctx)
	var id TaskID
	s.row(`SELECT task_id FROM (SELECT task_id, capture_id FROM task t WHERE `+published+` ORDER BY task_id DESC LIMIT ?) t
		WHERE capture_id=? ORDER BY task_id DESC LIMIT 1`, newestTasks, captureID).found(&id)
	return id, wrap("find the task of capture "+captureID, s.err)
}

// TagHeld is the tag whose value is the monitor that keeps a task's capture until the task is replicated.
const TagHeld = "held"

// Untagged returns the tasks that have ended and do not bear a tag, oldest number first, at most so many.
func (d *DB) Untagged(ctx context.Context, key string, most int) ([]TaskID, error) {
	// By ascending id with a limit: the walk ends with the page.
	return collect(ctx, d, "list tasks without tag "+key, value[TaskID], `SELECT t.task_id FROM task t WHERE t.state<>?
		AND `+published+` AND NOT EXISTS (SELECT 1 FROM task_tag g WHERE g.task_id=t.task_id AND g.key=?)
		ORDER BY t.task_id LIMIT ?`, Running, key, most)
}

// Tagged returns the tasks that bear a tag, with its value.
func (d *DB) Tagged(ctx context.Context, key string) (map[TaskID]string, error) {
	s, out := d.reading(ctx), map[TaskID]string{}
	for rows := range s.rows(`SELECT g.task_id, g.value FROM task_tag g JOIN task t ON t.task_id=g.task_id WHERE g.key=?
		AND `+published, key) {
		var id TaskID
		var value string
		s.fail(rows.Scan(&id, &value))
		out[id] = value
	}
	return out, wrap("list tasks with tag "+key, s.err)
}

// OfCapture returns the task of a monitor's capture; ErrNotFound where there is none.
func (d *DB) OfCapture(ctx context.Context, monitor, capture string) (id TaskID, err error) {
	s := d.reading(ctx)
	if !s.row(`SELECT task_id FROM task t WHERE capture_id=? AND monitor=? AND `+published+` ORDER BY task_id DESC
		LIMIT 1`, capture, monitor).found(&id) {
		s.fail(ErrNotFound)
	}
	return id, wrap("find the task of capture "+capture, s.err)
}

// OfBenchCapture returns the tasks of a capture of a bench, by whatever address its monitor was known.
func (d *DB) OfBenchCapture(ctx context.Context, bench, capture string) (out []Task, err error) {
	ids, err := collect(ctx, d, "find the tasks of capture "+capture, value[TaskID],
		`SELECT task_id FROM task WHERE capture_id=? ORDER BY task_id`, capture)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		t, err := d.Task(ctx, id)
		if errors.Is(err, ErrNotFound) {
			continue // it was deleted meanwhile
		} else if err != nil {
			return nil, err
		}
		if t.Bench == bench {
			out = append(out, t)
		}
	}
	return out, nil
}

// Whole returns the task of this monitor, capture, launch, GPU, user and name, and whether it is here with all that
// belongs to it. ErrNotFound where there is none.
func (d *DB) Whole(ctx context.Context, t NewTask) (id TaskID, whole bool, err error) {
	c := copier{to: d, login: t.User, task: copiedRow{
		"capture_id": t.CaptureID, "monitor": t.Monitor, "gpu_uuid": t.GPUUUID, "name": t.Name,
		"launched_ns": nanos(t.Launched),
	}}
	s := d.reading(ctx)
	if c.find(s); c.new == 0 {
		s.fail(ErrNotFound)
	}
	return c.new, c.done.Known, wrap("look for a task", s.err)
}
