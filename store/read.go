package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/quality"
)

// taskColumns are the columns of a task's row in the order of scanTask, with those of its user, its
// calibration in use and its group. NULL numbers that a Task has no other form for are read as 0; the
// result's and the clock's stay NULL, which becomes NaN, under the flags before them.
const taskColumns = `t.task_id, t.name, u.login, t.launched_ns, t.monitor, t.capture_id, t.gpu, t.gpu_uuid, t.driver,
	t.marker_code, t.marker_chip_s, t.marker_guard, t.marker_tag_bits, t.marker_tag,
	coalesce(t.instrument_kind,''), coalesce(t.instrument_model,''), coalesce(t.instrument_serial,''),
	coalesce(t.instrument_firmware,''), coalesce(t.instrument_address,''), t.started_ns, t.state, t.reason, t.chunks,
	t.scans, t.nvml_j, coalesce(k.bench,''), coalesce(k.name,''), coalesce(k.calibration_id,0),
	t.clock_used IS NOT NULL, t.clock_origin_s, t.clock_a_s, t.clock_b, t.clock_var_a, t.clock_var_b, t.clock_cov_ab,
	t.clock_rms_s, coalesce(t.clock_used,0), coalesce(t.clock_rejected,0),
	t.has_result, t.from_s, t.to_s, coalesce(t.samples,0), coalesce(t.first_scan,0), coalesce(t.gaps,0),
	coalesce(t.lost,0), t.energy_j, t.energy_u_j, t.mean_w, t.peak_w,
	coalesce(t.bench_gpu,''), coalesce(gm.group_id,0), coalesce(gm.ordinal,0), coalesce(t.job,''),
	t.pinned, t.cold, coalesce(t.nvml_method,''), t.failure, t.exit_code, coalesce(t.owner,'')`

// taskTables joins what taskColumns names. All joins are by a primary or unique key, so a task stays one row.
const taskTables = ` "user" u USING(user_id) LEFT JOIN calibration k USING(calibration_id)` + groupTable

const groupTable = ` LEFT JOIN group_member gm ON gm.task_id=t.task_id `

// briefColumns are those of a Brief, in the order of scanBrief: all columns would make a page half as slow again.
const briefColumns = `t.task_id, t.name, u.login, t.launched_ns, t.gpu, t.gpu_uuid, t.job, t.state, t.reason, t.scans,
	t.nvml_j, t.has_result, t.from_s, t.to_s, coalesce(t.samples,0), coalesce(t.gaps,0), coalesce(t.lost,0), t.energy_j,
	t.energy_u_j, t.mean_w, t.peak_w, coalesce(gm.group_id,0), t.pinned`

// row is a task as its row has it, with the calibration it refers to, and its key in a list.
type row struct {
	Task
	calibration int64
	key         any
}

// taskRows reads rows of taskColumns. more are the columns of the key and of the tags, NULL for none. from has a task t
// and ends in how its user is joined: JOIN hides a task whose user is missing, which Check reports as dangling.
func (s *session) taskRows(more, from, tail string, args ...any) []row {
	return all(s, scanTask, "SELECT "+taskColumns+", "+more+" FROM "+from+taskTables+tail, args...)
}

// briefRows is taskRows of briefColumns. A task whose user is missing is among them.
func (s *session) briefRows(more, from, tail string, args ...any) []row {
	return all(s, scanBrief, "SELECT "+briefColumns+", "+more+" FROM "+from+` LEFT JOIN "user" u USING(user_id)`+
		groupTable+tail, args...)
}

// scanBrief reads a row of briefRows.
func scanBrief(rows *sql.Rows, t *row) error {
	var hasResult bool
	var tags sql.NullString
	var r measure.Result
	err := rows.Scan(&t.ID, (*text)(&t.Name), (*text)(&t.User), (*moment)(&t.Launched), (*text)(&t.GPU),
		(*text)(&t.GPUUUID), (*text)(&t.Job), &t.State, (*text)(&t.Reason), &t.Scans, &t.NVML, &hasResult,
		(*real)(&r.From), (*real)(&r.To), &r.Samples, &r.Gaps, &r.Lost, (*real)(&r.Total.Energy), (*real)(&r.Total.U),
		(*real)(&r.Mean), (*real)(&r.Peak), &t.Group.Group, &t.Pinned, &t.key, &tags)
	if hasResult {
		t.Result = &r
	}
	return cmp.Or(err, t.tag(tags))
}

// tag sets the tags of a task by their column.
func (t *row) tag(column sql.NullString) (err error) {
	if column.Valid {
		if t.Tags, err = tagsOf(column.String); err != nil {
			return fmt.Errorf("%w: tags of task %d: %w", ErrCorrupt, t.ID, err)
		}
	}
	return nil
}

// oneTask reads a task's row by its number, under a further condition; ErrNotFound where there is none.
func (s *session) oneTask(join string, id TaskID, condition string) (t row) {
	if list := s.taskRows("NULL, NULL", "task t "+join, "WHERE t.task_id=?"+condition, id); len(list) > 0 {
		return list[0]
	}
	s.fail(ErrNotFound)
	return t
}

// scanTask reads a row of taskRows.
func scanTask(rows *sql.Rows, t *row) error {
	// Columns that may be NULL and have a meaning of their own when they are.
	var failure *string
	var exit *int
	var hasClock, hasResult bool
	var cold int64
	var tags sql.NullString
	var f clock.Fit
	var r measure.Result
	m, i := &t.Marker, &t.Instrument
	err := rows.Scan(&t.ID, (*text)(&t.Name), (*text)(&t.User), (*moment)(&t.Launched), &t.Monitor, &t.CaptureID,
		(*text)(&t.GPU), (*text)(&t.GPUUUID), (*text)(&t.Driver), &m.Code, &m.Chip, &m.Guard, &m.TagBits, &m.Tag,
		(*text)(&i.Kind), (*text)(&i.Model), (*text)(&i.Serial), (*text)(&i.Firmware), (*text)(&i.Address),
		(*moment)(&t.Started), &t.State, (*text)(&t.Reason), &t.Chunks, &t.Scans, &t.NVML, (*text)(&t.Bench),
		(*text)(&t.CalibrationID), &t.calibration, &hasClock, (*real)(&f.Origin), (*real)(&f.A), (*real)(&f.B),
		(*real)(&f.VarA), (*real)(&f.VarB), (*real)(&f.CovAB), (*real)(&f.RMS), &f.Used, &f.Rejected, &hasResult,
		(*real)(&r.From), (*real)(&r.To), &r.Samples, &r.FirstScan, &r.Gaps, &r.Lost, (*real)(&r.Total.Energy),
		(*real)(&r.Total.U), (*real)(&r.Mean), (*real)(&r.Peak), (*text)(&t.BenchGPU), &t.Group.Group, &t.Group.Member,
		(*text)(&t.Job), &t.Pinned, &cold, (*text)(&t.NVMLMethod), &failure, &exit, (*text)(&t.Owner), &t.key, &tags)
	if err = cmp.Or(err, t.tag(tags)); err != nil {
		return err
	}
	// cold is 1 for a packed task; other values mark a Partial one (partialCold) and are no packing.
	t.Cold = cold == 1
	if failure != nil {
		t.Failure = &Failure{*failure, exit}
	}
	if hasClock {
		t.Clock = &f
	}
	if hasResult {
		t.Result = &r
	}
	return nil
}

// Unfinished returns the tasks in state Running, oldest first; their tags are left out.
func (d *DB) Unfinished(ctx context.Context) ([]Row, error) {
	s := d.reading(ctx)
	list := s.taskRows("NULL, NULL", "task t JOIN", "WHERE t.state=1 ORDER BY t.task_id")
	return lists.Map(list, func(t row) Row { return t.Row() }), wrap("list unfinished tasks", s.err)
}

// Users returns all users that have tasks, by name.
func (d *DB) Users(ctx context.Context) ([]UserTasks, error) {
	// The count of all tasks walks the index of task by user; hidden ones, which are few, are counted
	// once through their partial index and subtracted. A user with hidden tasks alone is dropped below.
	out, err := collect(ctx, d, "list users",
		func(rows *sql.Rows, u *UserTasks) error { return rows.Scan((*text)(&u.User), &u.Tasks) },
		`SELECT login, (SELECT count(*) FROM task WHERE task.user_id=u.user_id)-coalesce(p.n,0) FROM "user" u
		LEFT JOIN (SELECT user_id, count(*) n FROM task WHERE `+partialTasks+` GROUP BY user_id) p
		ON p.user_id=u.user_id ORDER BY login`)
	return slices.DeleteFunc(out, func(u UserTasks) bool { return u.Tasks == 0 }), err
}

// TaskIDs returns the numbers of all tasks, oldest number first.
func (d *DB) TaskIDs(ctx context.Context) ([]TaskID, error) {
	return collect(ctx, d, "list tasks", value[TaskID], `SELECT task_id FROM task t WHERE `+published+` ORDER BY task_id`)
}

// Task returns one task with all but its samples and readings, as it stood at one moment.
func (d *DB) Task(ctx context.Context, id TaskID) (t Task, err error) {
	// One transaction: in WAL mode all queries below see the same moment, also while the task is being
	// revised. On a server the driver begins a snapshot.
	err = d.view(ctx, fmt.Sprintf("read task %d", id), func(s *session) {
		row := s.oneTask("JOIN", id, d.unlessMine(id))
		if s.err != nil {
			return
		}
		t = row.Task
		readSetup(s, row.calibration, &t.Setup)
		t.Setup = calib.Aged(t.Setup, t.Launched)
		readMarkers(s, &t)
		readEvents(s, &t)
		readRails(s, &t)
		t.Results = all(s, func(rows *sql.Rows, r *ResultInfo) error {
			err := rows.Scan(&r.Number, (*text)(&r.CalibrationID), (*moment)(&r.Computed), (*real)(&r.Energy),
				(*real)(&r.U), &r.InUse)
			if r.InUse {
				t.ResultNumber = r.Number
			}
			return err
		}, `SELECT r.number, k.name, r.computed_ns, r.energy_j, r.energy_u_j, coalesce(r.number=t.result, 1=0)
			FROM result r JOIN task t USING(task_id) JOIN calibration k ON k.calibration_id=r.calibration_id
			WHERE r.task_id=? ORDER BY r.number`, id)
		t.Tags = readTags(s, id)
		t.Notes = all(s, func(rows *sql.Rows, n *Note) error {
			return rows.Scan(&n.Number, (*moment)(&n.At), (*text)(&n.Text))
		}, `SELECT number, at_ns, text FROM task_note WHERE task_id=? ORDER BY number`, id)
		readProvenance(s, &t)
		// The clipped readings need the events, markers and result from above.
		d.readClipped(s, &t)
	})
	return t, err
}

// readSetup reads a calibration; number 0 is none.
func readSetup(s *session, cal int64, to *measure.Setup) {
	if cal == 0 || s.err != nil {
		return
	}
	var missing string
	tb, r := &to.Timebase, &to.Response
	s.row(`SELECT tick_hz, u_tick_rel, ticks_per_scan, stamped, tau_s, window_s, update_s, missing FROM calibration
		WHERE calibration_id=?`, cal).into(&tb.TickHz, &tb.UTickHz, &tb.TicksPerScan, &tb.Stamped, (*real)(&r.Tau),
		(*real)(&r.Window), (*real)(&r.Update), &missing)
	if s.err != nil {
		return
	}
	// The column holds a JSON array, [] for none; a Setup without missing rails has nil, as it had
	// before it was stored, so that both compare as equal.
	s.failed(json.Unmarshal([]byte(missing), &to.Missing), "%w: missing rails", ErrCorrupt)
	to.Missing = lists.Map(to.Missing, measure.Printable)
	// The ordinal of a channel is the column of the chunks; rails refer to channels by it.
	to.Channels = all(s, func(rows *sql.Rows, c *measure.Channel) error {
		return rows.Scan((*text)(&c.Name), &c.Unit, &c.Gain, &c.Offset, &c.UGain, &c.UOffset, &c.Noise, &c.MinCount,
			&c.MaxCount, &c.Skew)
	}, `SELECT name, unit, gain, "offset", u_gain_rel, u_offset, noise, min_count,
		max_count, skew_s FROM channel WHERE calibration_id=? ORDER BY ordinal`, cal)
	to.Rails = all(s, func(rows *sql.Rows, r *measure.Rail) error {
		return rows.Scan((*text)(&r.Name), &r.Role, &r.Wiring, &r.X, &r.Y, &r.Shunt, &r.UShunt, &r.Assumed, &r.UAssumed)
	}, `SELECT name, role, wiring, x, y, shunt_ohm, u_shunt_rel, assumed_v, u_assumed_v
		FROM rail WHERE calibration_id=? ORDER BY ordinal`, cal)
	to.Records = all(s, func(rows *sql.Rows, r *measure.CalibrationRecord) error { return rows.Scan(&r.ID, &r.Text) },
		`SELECT record_id, text FROM calibration_record WHERE calibration_id=? ORDER BY ordinal`, cal)
}

// readMarkers reads a task's markers with their edges, in order.
func readMarkers(s *session, t *Task) {
	t.Markers = all(s, func(rows *sql.Rows, m *marker.Found) error {
		return rows.Scan(&m.Kind, (*real)(&m.T), (*real)(&m.U), (*real)(&m.Begin), (*real)(&m.End),
			(*real)(&m.Correlation), (*real)(&m.PSLR), (*real)(&m.Step), (*real)(&m.Tau), &m.Tag, &m.TagOK, &m.Fallback)
	}, `SELECT kind, t_s, u_s, begin_s, end_s, correlation, pslr_db, step_w, tau_s, tag, tag_ok, fallback
		FROM marker WHERE task_id=? ORDER BY ordinal`, t.ID)
	for rows := range s.rows(`SELECT ordinal, chip, t_s, u_s FROM marker_edge WHERE task_id=? ORDER BY ordinal, edge`,
		t.ID) {
		var i int
		var e marker.Edge
		if s.fail(rows.Scan(&i, &e.Chip, (*real)(&e.T), (*real)(&e.U))); i >= 0 && i < len(t.Markers) {
			t.Markers[i].Edges = append(t.Markers[i].Edges, e)
		}
	}
}

// readEvents reads a task's events, by their first scan.
func readEvents(s *session, t *Task) {
	t.Events = all(s, func(rows *sql.Rows, e *measure.Event) error {
		return rows.Scan(&e.Kind, &e.FirstScan, &e.Scans, &e.Exact, &e.Channel, (*text)(&e.Detail))
	}, `SELECT kind, first_scan, scans, exact, channel, detail FROM event WHERE task_id=? ORDER BY first_scan, kind,
		channel`, t.ID)
}

// readRails reads the rails and all budgets of the result in use.
// rail_result and budget repeat the rows of result_rail and result_budget of the result in use: lists
// and sums read them without a look at the number.
func readRails(s *session, t *Task) {
	collectRails(s, t, "rail_result", "budget", "task_id=?", t.ID)
}

// collectRails reads a result's rails and budgets from two tables.
// Both tables are read with the same condition and key: by task_id, or by task_id and number. Lines of
// a rail that is missing are dropped; Check reports the difference.
func collectRails(s *session, t *Task, rails, budget, where string, key ...any) {
	if t.Result == nil {
		return
	}
	t.Result.Rails = all(s, func(rows *sql.Rows, r *measure.RailResult) error {
		return rows.Scan((*text)(&r.Name), &r.Role, (*real)(&r.Energy.Energy), (*real)(&r.Energy.U), (*real)(&r.Mean),
			(*real)(&r.Peak))
	}, `SELECT name, role, energy_j, energy_u_j, mean_w, peak_w FROM `+rails+` WHERE `+where+` ORDER BY ordinal`,
		key...)
	type line struct {
		rail int
		measure.Contribution
	}
	for _, l := range all(s, func(rows *sql.Rows, l *line) error {
		return rows.Scan(&l.rail, (*text)(&l.Source), (*real)(&l.U), &l.Systematic)
	}, `SELECT rail, source, u_j, systematic FROM `+budget+` WHERE `+where+` ORDER BY rail, ordinal`, key...) {
		// A negative rail, stored as -1, is the budget of the total.
		if l.rail < 0 {
			t.Result.Budget = append(t.Result.Budget, l.Contribution)
		} else if l.rail < len(t.Result.Rails) {
			r := &t.Result.Rails[l.rail]
			r.Budget = append(r.Budget, l.Contribution)
		}
	}
}

// An over-range event counts a channel's clipped readings in one chunk and names the first: the places of
// the others in the chunk are unknown. So the readings that lie in the window and in the markers are
// counted by scan, out of the chunks that reach over an end of those.

// clips counts a task's clipped readings.
type clips struct {
	s     *session
	t     *Task
	heads []head      // without columns
	spans []scanRange // the first is the window, others are markers
	out   []quality.Clipping
	// the chunk read last: several channels of one chunk are counted from one read
	c chunk.Chunk
}

// scanRange is the scans from first to before end.
type scanRange struct{ first, end int64 }

// readClipped counts the clipped readings of a task that has over-range events and a
// window. Without samples, or where a chunk cannot be read, they count as unplaced.
func (d *DB) readClipped(s *session, t *Task) {
	t.Clipped = nil
	events := slices.DeleteFunc(slices.Clone(t.Events), func(e measure.Event) bool {
		return e.Kind != measure.EventOverRange || e.Channel < 0 || e.Channel >= len(t.Setup.Channels)
	})
	if t.Result == nil || len(events) == 0 {
		return
	}
	k := &clips{s: s, t: t, out: make([]quality.Clipping, len(t.Setup.Channels))}
	k.heads = all(s, func(rows *sql.Rows, h *head) error { return rows.Scan(&h.no, &h.first, &h.n, &h.tick) },
		`SELECT chunk_no, first_scan, n, first_tick FROM chunk WHERE task_id=? ORDER BY chunk_no`, t.ID)
	if len(k.heads) == 0 {
		return // without chunks, the verdict rests on the events alone
	}
	k.place()
	byScan := func(e measure.Event, scan int64) int { return cmp.Compare(int64(e.FirstScan), scan) }
	for _, h := range k.heads {
		// Events come in the order of their scans, and chunks' scans grow. Events before the chunk's first scan belong
		// to no stored chunk.
		before, _ := slices.BinarySearchFunc(events, h.first, byScan)
		n, _ := slices.BinarySearchFunc(events, max(h.first, h.end()), byScan) // a damaged count may be negative
		k.elsewhere(events[:before])
		k.chunk(h, events[before:n])
		events = events[n:]
	}
	k.elsewhere(events)
	for c, n := range k.out {
		if n != (quality.Clipping{}) {
			n.Channel = c
			t.Clipped = append(t.Clipped, n)
		}
	}
}

// elsewhere counts events whose chunks are not stored as outside: they were trimmed away, or the
// missing scans are counted as lost.
func (k *clips) elsewhere(events []measure.Event) {
	for _, e := range events {
		k.out[e.Channel].Outside += e.Scans
	}
}

// place finds the scans of the window and of the markers.
func (k *clips) place() {
	r := k.t.Result
	k.spans = []scanRange{{int64(r.FirstScan), endScan(k.s, k.t.ID, r.FirstScan, r.Samples)}}
	start, stop := marker.Pair(k.t.Markers)
	for _, m := range []*marker.Found{start, stop} {
		if m != nil {
			k.spans = append(k.spans, scanRange{k.scanAt(m.Begin), k.scanAt(m.End)})
		}
	}
}

// scanAt is the scan at a device time, as near as ticks at an even distance allow.
// Stamped instruments do not sample at an even distance; within one chunk, which spans a fraction of a
// second, the deviation is far below a marker's length.
func (k *clips) scanAt(at measure.Seconds) int64 {
	tb := k.t.Setup.Timebase
	tick := tb.Ticks(at)
	i, _ := slices.BinarySearchFunc(k.heads, tick, func(h head, tick float64) int {
		if float64(h.tick) <= tick {
			return -1
		}
		return 1
	})
	h := k.heads[max(i-1, 0)]
	in := (tick - float64(h.tick)) / tb.TicksPerScan
	return h.first + int64(min(max(in, 0), float64(h.n)))
}

// chunk takes the events of a stored chunk. They are enough where the chunk lies wholly
// in one span, or in none; else its readings are counted.
func (k *clips) chunk(h head, events []measure.Event) {
	// cut: an end of a span lies within the chunk, and the place of each clipped reading matters.
	cut := slices.ContainsFunc(k.spans, func(s scanRange) bool {
		return s.first < h.end() && s.end > h.first && (s.first > h.first || s.end < h.end())
	})
	var done []int // channels
	for _, e := range events {
		if slices.Contains(done, e.Channel) {
			continue
		}
		done = append(done, e.Channel)
		var told uint64
		twice := 0
		// One event of a channel in a chunk counts its readings; of several the sum may count some of
		// them twice, so the readings themselves are counted.
		for _, x := range events {
			if x.Channel == e.Channel {
				told, twice = told+x.Scans, twice+1
			}
		}
		// Wholly inside or outside each span: every reading lies where the first scan of the chunk does.
		if !cut && twice == 1 {
			k.add(e.Channel, h.first, told)
			continue
		}
		err := k.count(h, e.Channel)
		if errors.Is(err, ErrCorrupt) || errors.Is(err, errNoMore) {
			k.out[e.Channel].Unplaced += told
		} else {
			k.s.fail(err)
		}
	}
}

// count counts a channel's clipped readings in a chunk, scan by scan.
func (k *clips) count(h head, channel int) error {
	// The chunk is read through the caller's transaction, so that a retention or a repair at the same
	// time cannot take it away between two queries.
	if len(k.c.Columns) == 0 || ChunkNo(k.c.No) != h.no {
		sh := shape{k.t.Setup.Timebase, len(k.t.Setup.Channels)}
		if err := readChunk(k.s.ctx, k.s.on, k.t.ID, uint64(h.no), sh, &k.c); err != nil {
			// An empty chunk does not pass as the one read last.
			k.c.Columns = k.c.Columns[:0]
			return err
		}
	}
	err := k.c.OverRange(k.t.Setup.Channels[channel], channel, func(scan uint64) { k.add(channel, int64(scan), 1) })
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// add counts readings that lie with a scan.
func (k *clips) add(channel int, scan int64, n uint64) {
	out := &k.out[channel]
	// The spans are tried in order, the window (spans[0]) before the markers.
	for i, s := range k.spans {
		switch {
		case scan < s.first || scan >= s.end:
		case i == 0:
			out.Inside += n
			return
		default:
			out.Markers += n
			return
		}
	}
	out.Outside += n
}
