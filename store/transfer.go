package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// One copier carries tasks between databases of any kind. Each way of carrying is a sequence of its steps:
//
//	CopyTask           look  begin  samples      verify     conclude
//	TakeTask           look  begin  takeSamples  checksums  concludeCounted
//	Import, Detach     look  begin  samples                 conclude
//	Import, NoSamples  look  begin                          concludeCounted
//	Salvage            as Import, and goes on behind rows that cannot be read
//
// begin stores all rows but the samples as a Partial task, in one transaction; samples follow in
// transactions of their own; the last step publishes the task. A copier that is interrupted
// leaves a Partial task, and the next one goes on behind the chunks that are there.

// CopiedTask is the outcome for one task.
type CopiedTask struct {
	From  TaskID `json:"task_id"`
	To    TaskID `json:"copy_id"`
	Known bool   `json:"known"` // it was there already, whole
	// Differs are the parts of a known task that were not as at the source: "tags", "notes",
	// "pin", "state", "results", "provenance", "measurement", "samples". Updated: they are now.
	Differs []string `json:"differs,omitempty"`
	Updated bool     `json:"updated"`
	Resumed bool     `json:"resumed"` // a copy that was interrupted was finished
	Chunks  uint64   `json:"chunks"`  // that the task has; of Import, those that it copied
	Scans   uint64   `json:"samples"`
	Rows    uint64   `json:"rows"` // of all tables, compared by their number
}

// unfinishedCopy and importing are the reasons of tasks whose samples are still being copied.
const (
	unfinishedCopy = "its copy from another database is not complete: copy again"
	importing      = "its import from another database is not complete: import again"
)

// ErrRunning: the task is still being measured.
var ErrRunning = errors.New("task still runs")

// CopyOptions change how a task is copied.
type CopyOptions struct {
	// Update makes a task that is there already, and differs, as it is here.
	Update bool
	// Samples receives the number of scans of each transaction once it is stored; nil for none.
	Samples func(scans uint64)
	// User is the user of the copy; empty for that of the task.
	User string
}

// copier carries one task.
type copier struct {
	from, to *DB
	id, new  TaskID // the task's number at the source and at the target; new is 0 until begin
	login    string
	user     string // of the copy in place of login; empty for login
	task     copiedRow
	tables   []copiedTable // of tasks, those that others refer to first
	reason   string        // of the Partial task
	keepID   bool          // into a new file: the task is not there, and keeps its number
	broken   *salvage      // nil unless rows of the source may be unreadable
	told     func(scans uint64)
	copied   uint64 // chunks
	done     CopiedTask
}

// CopyTask copies a task with all that belongs to it to another database, of whatever kind
// the two are. A task is known by its monitor, capture, launch, GPU, user and name: one that
// is there is compared and not copied again, and one whose copy was interrupted is finished.
// With o.Update, differences are removed, but for samples. At last both sides' rows are
// counted, and each chunk that was copied is read back and checked against its checksum and
// the source's. Errors wrap ErrNotFound, ErrRunning, or ErrCorrupt where the copy is not the same.
func (d *DB) CopyTask(ctx context.Context, to *DB, id TaskID, o CopyOptions) (CopiedTask, error) {
	op := fmt.Sprintf("copy task %d to %s", id, to.path)
	if to.writer == nil {
		return CopiedTask{}, fmt.Errorf("%s: %w", op, ErrReadOnly)
	}
	c := copier{
		from: d, to: to, id: id, user: o.User, reason: unfinishedCopy, told: o.Samples, done: CopiedTask{From: id},
	}
	var err error
	if c.tables, err = copiedTables(ctx, d, to); err == nil {
		err = c.run(ctx, c.begin, c.samples, c.verify, c.conclude)
	}
	if err == nil && c.done.Known {
		err = c.compare(ctx)
	}
	// One whose samples differ is another measurement, and is left alone.
	if err == nil && o.Update && len(c.done.Differs) > 0 && !slices.Contains(c.done.Differs, "samples") {
		c.done.Updated = true
		err = c.update(ctx)
	}
	return c.done, wrap(op, err)
}

// run takes the steps until the task is known to be there whole, as it is when another copier was faster. A
// copy with wrong samples is deleted: to continue it would find the same again. look comes before all
// steps. The target's number is in done.To after each step, so that a failed copy names its Partial task.
func (c *copier) run(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range append([]func(context.Context) error{c.look}, steps...) {
		if err := step(ctx); err != nil {
			if c.new != 0 && (errors.Is(err, ErrCorrupt) || errors.Is(err, ErrConflict)) {
				return errors.Join(err, c.to.discard(context.WithoutCancel(ctx), c.new, thisProcess()))
			}
			return err
		}
		if c.done.To = c.new; c.done.Known {
			return nil
		}
	}
	return nil
}

// look reads the task's row, and finds the task at the target. Partial tasks are not there; a
// salvage takes those that no program has hidden.
func (c *copier) look(ctx context.Context) (err error) {
	from := c.from.reading(ctx)
	if c.task = copiedOne(from, "task", "task_id=?", c.id); from.err != nil {
		return from.err
	}
	t := c.task
	// Values come as the driver has them: a number of a state is an int64.
	switch state := t["state"]; {
	case state == int64(Running) && c.broken == nil:
		return ErrRunning
	case state == int64(Partial) && c.broken == nil:
		return ErrNotFound
	// A Partial task with an owner and the mark was hidden by a program, which will publish or delete
	// it. Without them its state is damage, and a salvage takes the task as incomplete.
	case state == int64(Partial) && t["cold"] == int64(partialCold) && t["owner"] != nil && t["owner"] != "":
		return errHidden
	case state == int64(Partial):
		t["state"] = int64(Incomplete)
		t["reason"] = strings.TrimSuffix(fmt.Sprintf("its state was damaged: partial; %v", t["reason"]), "; ")
	}
	if from.row(`SELECT login FROM "user" WHERE user_id=?`, t["user_id"]).into(&c.login); from.err != nil {
		c.login = fmt.Sprintf("user %v", t["user_id"])
	}
	if err = c.broken.forgive(from.err, "the name of its user", c.id, NoChunk); err != nil {
		return err
	}
	c.login = cmp.Or(c.user, c.login)
	// By the writer's connection: a copy that was committed just now must be seen.
	s := session{ctx: ctx, on: c.to.writer}
	c.find(&s)
	return s.err
}

// errHidden: the program that stores the task can do so again.
var errHidden = errors.New("task is being stored")

// find looks for the task at the target. Cleared first: find runs again within the transaction of begin.
func (c *copier) find(s *session) {
	c.new, c.done.Known, c.done.Resumed = 0, false, false
	if c.keepID {
		return
	}
	var reason string
	t := c.task
	if s.row(`SELECT t.task_id, t.reason FROM task t JOIN "user" u USING(user_id)
		WHERE t.capture_id=? AND t.monitor=? AND t.gpu_uuid=? AND u.login=? AND t.name=?
		AND t.launched_ns IS NOT DISTINCT FROM ? AND (`+published+` OR t.reason IN (?,?)) ORDER BY t.task_id LIMIT 1`,
		t["capture_id"], t["monitor"], t["gpu_uuid"], c.login, t["name"], t["launched_ns"], importing, unfinishedCopy).
		found(&c.new, &reason) {
		c.done.Resumed = resumable(reason)
		c.done.Known = !c.done.Resumed
	}
}

// begin stores all but the samples as a Partial task, unless one is there.
func (c *copier) begin(ctx context.Context) error {
	return c.to.write(ctx, "begin the copy", func(s *session) {
		// One of several copiers of the same task begins it; the others go on with that one's task. Where
		// transactions do not wait for each other, both change the user's row by the UPDATE, which changes
		// nothing, and the later one is run again.
		s.exec(`INSERT INTO "user"(login) VALUES(?) ON CONFLICT DO NOTHING`, c.login)
		s.exec(`UPDATE "user" SET login=login WHERE login=?`, c.login)
		if c.find(s); c.new != 0 {
			// A resumed copy changes hands: the process that began it may be gone.
			if c.done.Resumed {
				s.exec(`UPDATE task SET state=?, cold=?, owner=? WHERE task_id=?`, Partial, partialCold, thisProcess(),
					c.new)
			}
			return
		}
		c.insertTask(s)
		// Tables in the order of copiedTables: parents before children. Samples and pyramid come later.
		for _, t := range c.tables {
			if !t.samples() && !t.derived() {
				c.rows(s, t, "task_id=?", c.id)
			}
		}
		// Without its group a salvaged task is still worth having.
		from := c.from.reading(ctx)
		c.group(s, from)
		s.fail(c.broken.forgive(from.err, "its group", c.id, NoChunk))
	})
}

// insertTask stores the task's row. A salvaged task keeps the time at which it was stored: the
// new file takes the broken one's place.
func (c *copier) insertTask(s *session) {
	row := maps.Clone(c.task)
	row["state"], row["reason"], row["cold"], row["owner"] = int64(Partial), c.reason, int64(partialCold), thisProcess()
	row["chunks"], row["scans"] = int64(0), int64(0)
	if c.broken == nil {
		row["stored_ns"] = nanos(time.Now())
	}
	// A task_id that is taken in the target, as after a copy of two sources, gives way to a new one.
	if !c.keepID || one[int](s, `SELECT count(*) FROM task WHERE task_id=?`, c.id) > 0 {
		delete(row, "task_id")
	}
	row["user_id"] = one[int64](s, `SELECT user_id FROM "user" WHERE login=?`, c.login)
	from := c.from.reading(s.ctx)
	row["calibration_id"] = c.calibration(s, from, row["calibration_id"])
	s.fail(from.err)
	c.new = TaskID(row.insert(s, "task", "task_id"))
}

// rows copies rows of a table under the task's new number, and their calibrations. Of a broken
// table it takes the rows that can be read from either end.
func (c *copier) rows(s *session, t copiedTable, where string, args ...any) {
	err := c.copyRows(s, t, where, args)
	if err == nil || c.broken == nil {
		s.fail(err)
		return
	}
	s.fail(c.broken.forgive(err, "some rows of table "+t.name, c.id, NoChunk))
	// The rows from the other end, in the reverse order of the primary key; rows met twice are left out
	// by ON CONFLICT.
	key := values[string](s, `SELECT name || ' DESC' FROM pragma_table_info(?, 'main') WHERE pk>0 ORDER BY pk`, t.name)
	if err = c.copyRows(s, t, where+" ORDER BY "+strings.Join(key, ","), args); !isCorrupt(err) { // it is noted already
		s.fail(err)
	}
}

// copyRows copies the rows of a condition, and returns the error of the source. Calibrations that are
// missing at the target are copied before the rows that refer to them.
func (c *copier) copyRows(s *session, t copiedTable, where string, args []any) error {
	insert := insertText(t.name, t.columns)
	if c.broken != nil { // some rows are read twice
		insert += " ON CONFLICT DO NOTHING"
	}
	task, cal := slices.Index(t.columns, "task_id"), slices.Index(t.columns, "calibration_id")
	from := c.from.reading(s.ctx)
	for v := range copied(from, t, where, args...) {
		// Foreign numbers are replaced in place: v is the row that is inserted.
		v[task] = c.new
		if cal >= 0 {
			v[cal] = c.calibration(s, from, v[cal])
		}
		if s.exec(insert, v...); s.err != nil {
			break
		}
	}
	s.note("table %s", t.name)
	from.note("table %s", t.name)
	return from.err
}

// copyScans is about how many scans one transaction copies: enough that the wait for the disk
// does not count.
const copyScans = 4 << 20

// samples copies the chunks behind those that are there, in transactions of their own.
func (c *copier) samples(ctx context.Context) error {
	// Behind the last chunk that is there: a resumed copy goes on.
	to := session{ctx: ctx, on: c.to.writer}
	last := one[int64](&to, `SELECT coalesce(max(chunk_no),-1) FROM chunk WHERE task_id=?`, c.new)
	if to.err != nil {
		return to.err
	}
	if c.broken != nil {
		return c.salvageSamples(ctx, last)
	}
	for {
		// Each batch is read in its own short query, and copied by one transaction at the target.
		until, chunks, scans, err := c.batch(ctx, last)
		if err != nil || chunks == 0 {
			return err
		}
		err = c.to.write(ctx, "copy samples", func(s *session) {
			c.chunkRows(s, "task_id=? AND chunk_no>? AND chunk_no<=?", c.id, last, until)
		})
		if err != nil {
			return err
		}
		if c.copied += chunks; c.told != nil {
			c.told(scans)
		}
		last = until
	}
}

// batch returns the last chunk of the next transaction, and the chunks and scans up to it.
func (c *copier) batch(ctx context.Context, after int64) (until int64, chunks, scans uint64, err error) {
	s := c.from.reading(ctx)
	// LIMIT bounds the walk of a batch; scans bound its bytes.
	for rows := range s.rows(`SELECT chunk_no, n FROM chunk WHERE task_id=? AND chunk_no>? ORDER BY chunk_no LIMIT 1024`,
		c.id, after) {
		var n uint64
		s.fail(rows.Scan(&until, &n))
		if chunks, scans = chunks+1, scans+n; scans >= copyScans {
			break
		}
	}
	return until, chunks, scans, s.err
}

// chunkRows copies the rows of chunks, from each table of samples.
func (c *copier) chunkRows(s *session, where string, args ...any) {
	for _, t := range c.tables {
		if t.samples() {
			c.rows(s, t, where, args...)
		}
	}
}

// conclude copies the pyramid, counts the samples that are there, and publishes the task. One
// of which a salvage found fewer chunks than it had ends incomplete, without its pyramid.
func (c *copier) conclude(ctx context.Context) error {
	// Afterwards the log is emptied: the copy is in the file itself.
	defer c.to.emptyLog(ctx)
	// One transaction: pages, counts and state appear together.
	return c.to.write(ctx, "end the copy", func(s *session) {
		here := one[int64](s, `SELECT count(*) FROM chunk WHERE task_id=?`, c.new)
		state, reason, stored := c.task["state"], c.task["reason"], nanos(time.Now())
		if c.broken != nil {
			state, reason = c.broken.verdict(c, here)
			stored = c.task["stored_ns"]
		}
		// A pyramid is of all chunks: with fewer it would show samples that are not there.
		for _, t := range c.tables {
			if t.derived() && here == c.task["chunks"] {
				s.clear(c.new, t.name)
				c.rows(s, t, "task_id=?", c.id)
			}
		}
		recount(s, c.new)
		publishTask(s, c.new, c.task, state, reason, stored)
	})
}

// recount sets the numbers of chunks and scans in a task's row to those that are stored.
func recount(s *session, id TaskID) {
	s.must(`UPDATE task SET chunks=(SELECT count(*) FROM chunk WHERE task_id=?1),
		scans=(SELECT coalesce(sum(n),0) FROM chunk WHERE task_id=?1) WHERE task_id=?1`, id)
}

// concludeCounted publishes the task with the given counts.
func (c *copier) concludeCounted(ctx context.Context, chunks, scans any) error {
	return c.to.write(ctx, "end the copy", func(s *session) {
		s.must(`UPDATE task SET chunks=?, scans=? WHERE task_id=?`, chunks, scans, c.new)
		publishTask(s, c.new, c.task, c.task["state"], c.task["reason"], nanos(time.Now()))
	})
}

// calibration returns the number at the target of a calibration of the source, copying it where
// it is not there yet; nil for none. Calibrations are known by their digest.
func (c *copier) calibration(s, from *session, here any) any {
	if here == nil {
		return nil
	}
	// The whole row is needed: its digest to find it by, its columns to insert it.
	row := copiedOne(from, "calibration", "calibration_id=?", here)
	if from.note("calibration %v", here); from.err != nil {
		return nil
	}
	var there int64
	if s.row(`SELECT calibration_id FROM calibration WHERE digest=?`, row["digest"]).found(&there) {
		return there
	}
	delete(row, "calibration_id")
	there = row.insert(s, "calibration", "calibration_id")
	// The parts of a calibration refer to it by number.
	for _, name := range []string{"channel", "rail", "calibration_record"} {
		c.parts(s, from, copiedTable{name, from.columnsOf(name)}, "calibration_id", here, there)
	}
	return there
}

// parts copies the rows of a table that refer to a row by its number in a column: from here at the source
// to there at the target.
func (c *copier) parts(s, from *session, t copiedTable, by string, here any, there int64) {
	for v := range copied(from, t, by+"=?", here) {
		v[slices.Index(t.columns, by)] = there
		s.exec(insertText(t.name, t.columns), v...)
	}
}

// group makes the copy a member of the group that the task is a member of. A group is known by
// its name, user, launch and GPUs.
func (c *copier) group(s, from *session) {
	var here, ordinal int64
	if !from.row(`SELECT group_id, ordinal FROM group_member WHERE task_id=?`, c.id).found(&here, &ordinal) {
		return
	}
	there := c.findGroup(s, from, here)
	// task_id IS NULL: a member that has a task keeps it.
	s.exec(`UPDATE group_member SET task_id=?, reason='' WHERE group_id=? AND ordinal=? AND task_id IS NULL`, c.new,
		there, ordinal)
}

// findGroup returns the group at the target, a copy whose members have no tasks yet where there is none.
func (c *copier) findGroup(s, from *session, here int64) int64 {
	gpus := func(s *session, group int64) []string {
		return values[string](s, `SELECT gpu_uuid FROM group_member WHERE group_id=? ORDER BY ordinal`, group)
	}
	g := copiedOne(from, "task_group", "group_id=?", here)
	want := gpus(from, here)
	if from.err != nil {
		return 0
	}
	if c.user != "" {
		g["user"] = c.user
	}
	for _, id := range values[int64](s, `SELECT group_id FROM task_group WHERE name=? AND "user"=?
		AND launched_ns IS NOT DISTINCT FROM ? ORDER BY group_id`, g["name"], g["user"], g["launched_ns"]) {
		if slices.Equal(gpus(s, id), want) {
			return id
		}
	}
	if !c.keepID || one[int](s, `SELECT count(*) FROM task_group WHERE group_id=?`, here) > 0 {
		delete(g, "group_id")
	}
	there := g.insert(s, "task_group", "group_id")
	t := copiedTable{"group_member", []string{"group_id", "ordinal", "gpu", "gpu_uuid", "monitor", "reason"}}
	c.parts(s, from, t, "group_id", here, there)
	// The copy of a member's task takes the reason away again.
	s.exec(`UPDATE group_member SET reason='its task was not copied' WHERE group_id=? AND reason=''`, there)
	return there
}
