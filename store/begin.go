package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// BeginTask records a new task in state Running, or Partial. The name and the user must not be empty, and
// printable: others wrap measure.ErrText. Beyond the limits it is ErrFull.
func (d *DB) BeginTask(ctx context.Context, t NewTask) (TaskID, error) {
	err := errors.Join(measure.CheckText("name", t.Name), measure.CheckText("user", t.User),
		measure.CheckText("job", t.Job), CheckTags(t.Tags))
	if err == nil && t.Note != "" {
		err = CheckNote(t.Note)
	}
	if err != nil {
		return 0, fmt.Errorf("begin task: %w", err)
	}
	op := "begin task " + t.Name
	if t.Name == "" || t.User == "" {
		return 0, fmt.Errorf("%s: a task needs a name and a user (name %q, user %q)", op, t.Name, t.User)
	}
	// The table of a task's life has one event that begins it; a Partial copy is outside of it until
	// Finish.
	state := transitions[0][Begun]
	if t.Partial {
		state = Partial
	}
	// Room refuses a task before a row of it is there; chunks of a running one are not refused.
	if err := d.Room(ctx); err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	var id TaskID
	// Task, membership and labels are one transaction: a task is never seen without its tags.
	err = d.write(ctx, op, func(s *session) {
		id = insertTask(s, &t, state)
		// task_id IS NULL: a member has one task. A second one for the same member is ErrNotFound.
		if g := t.Group; g.Group != 0 && s.exec(`UPDATE group_member SET task_id=?, reason='' WHERE group_id=?
			AND ordinal=? AND task_id IS NULL`, id, g.Group, g.Member) == 0 {
			s.fail(fmt.Errorf("GPU %d of group %d: %w", g.Member, g.Group, ErrNotFound))
		}
		if putTags(s, id, t.Tags); t.Note != "" {
			putNote(s, id, time.Now(), t.Note)
		}
		if t.Provenance != nil {
			putProvenance(s, id, t.Provenance)
		}
	})
	if err == nil && t.Partial {
		// This handle may read and fill the hidden task; others cannot see it.
		d.mine.Store(id, true)
	}
	return id, err
}

// insertTask inserts the row of a task, and its user where there is none. A Partial task is marked as
// hidden and as this process's. The user is inserted first, in the same transaction; ON CONFLICT makes it
// safe on a server, where two hosts may begin the first tasks of one user at once.
func insertTask(s *session, t *NewTask, state State) TaskID {
	s.exec(`INSERT INTO "user"(login) VALUES(?) ON CONFLICT DO NOTHING`, t.User)
	m, cold, owner := t.Marker, 0, t.Owner
	var launched any // as the column taskTime shows it
	if !t.Launched.IsZero() {
		launched = t.Launched.UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	if state == Partial {
		// thisProcess names the process that a sweep must find dead before it deletes the leftover.
		cold, owner = partialCold, thisProcess()
	}
	return one[TaskID](s, `INSERT INTO task(user_id, name, launched_ns, launched, stored_ns, state, monitor,
		capture_id, gpu, gpu_uuid, driver, marker_code, marker_chip_s, marker_guard, marker_tag_bits, marker_tag, job,
		owner, cold) VALUES((SELECT user_id FROM "user" WHERE login=?), ?,?,?,?,?,?,?, ?,?,?, ?,?,?,?,?, nullif(?,''),
		nullif(?,''), ?) RETURNING task_id`,
		t.User, t.Name, nanos(t.Launched), launched, nanos(time.Now()), state, t.Monitor, t.CaptureID,
		t.GPU, t.GPUUUID, t.Driver, m.Code, m.Chip, m.Guard, m.TagBits, m.Tag, t.Job, owner, cold)
}

// TryTask reports why the database takes no task now, whatever task that is: it inserts a
// row for one and rolls back. It returns nil where it would take one.
func (d *DB) TryTask(ctx context.Context) error {
	undone := errors.New("rolled back")
	// A row that is rolled back tries all that a real one meets: the lock, a full disk, a read-only
	// mount, a failed constraint.
	err := d.write(ctx, "try to insert a task", func(s *session) {
		insertTask(s, &NewTask{Name: "try", User: "try", Launched: time.Now()}, Running)
		s.fail(undone)
	})
	if errors.Is(err, undone) {
		return nil
	}
	return err
}

// PutHeader records the header of the stream; it must come before the first chunk. The same
// header again is no error; another setup under stored chunks is ErrConflict.
func (d *DB) PutHeader(ctx context.Context, id TaskID, h Header) error {
	return d.write(ctx, fmt.Sprintf("store header of task %d", id), func(s *session) {
		s.fail(h.Setup.Validate())
		// The calibration is shared by its digest; one that is inserted here and not used, as the
		// header is refused below, goes with the rollback.
		cal := putCalibration(s, id, h)
		var old sql.NullInt64
		var chunks int64
		if !s.row(`SELECT calibration_id, chunks FROM task WHERE task_id=?`, id).found(&old, &chunks) {
			s.fail(ErrNotFound)
		}
		// Stored counts mean watts only by the setup they came with.
		if chunks > 0 && old.Int64 != cal {
			s.fail(fmt.Errorf("%w: %d chunks are stored under another setup", ErrConflict, chunks))
		}
		i := h.Instrument
		s.must(`UPDATE task SET calibration_id=?, instrument_kind=?, instrument_model=?, instrument_serial=?,
			instrument_firmware=?, instrument_address=?, started_ns=?, bench_gpu=nullif(?,'') WHERE task_id=?`,
			cal, i.Kind, i.Model, i.Serial, i.Firmware, i.Address, nanos(h.Started), h.BenchGPU, id)
	})
}

// digested returns the text whose SHA-256 is the digest of a calibration. A field that is added
// to measure.Setup must be left out of its JSON where it is empty: otherwise no stored
// calibration is recognized again.
func digested(h Header) ([]byte, error) {
	text, err := json.Marshal(struct {
		Bench, CalibrationID string
		// The order and names of these fields are part of the digest.
		Setup measure.Setup
	}{h.Bench, h.CalibrationID, h.Setup})
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	return text, nil
}

// digest identifies a calibration by its numbers, bench and name.
func digest(h Header) ([]byte, error) {
	text, err := digested(h)
	sum := sha256.Sum256(text)
	return sum[:], err
}

// putCalibration returns the number of the header's calibration, inserting it where there is none of the
// same digest. The rails' linear forms are stored beside the channels: the view data reads watts by them.
func putCalibration(s *session, id TaskID, h Header) (cal int64) {
	sum, err := digest(h)
	s.fail(err)
	// The digest has a UNIQUE index. On a server two transactions may insert the same one: the later
	// fails and is run again, and finds it.
	if s.row(`SELECT calibration_id FROM calibration WHERE digest=?`, sum).found(&cal) {
		return cal
	}
	// append makes [] of nil: the column is NOT NULL.
	missing := s.json(append([]string{}, h.Setup.Missing...))
	// since_ns is the launch of the first task with this calibration, for lists by date.
	tb, r := h.Setup.Timebase, h.Setup.Response
	cal = one[int64](s, `INSERT INTO calibration(digest, name, bench, since_ns, tick_hz, u_tick_rel, ticks_per_scan,
		stamped, channels, tau_s, window_s, update_s, missing, one_a_role)
		VALUES(?,?,?, coalesce((SELECT launched_ns FROM task WHERE task_id=?),0), ?,?,?,?,?,?,?,?,?,?)
		RETURNING calibration_id`, sum, h.CalibrationID, h.Bench, id, tb.TickHz, tb.UTickHz, tb.TicksPerScan,
		tb.Stamped, len(h.Setup.Channels), r.Tau, r.Window, r.Update, missing, oneARole(h.Setup.Rails))
	// The ordinals count from 0 and are the chunks' columns.
	for i, c := range h.Setup.Channels {
		s.insert("channel", cal, i, c.Name, c.Unit, c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise, c.MinCount, c.MaxCount,
			c.Skew)
	}
	for i, r := range h.Setup.Rails {
		l := r.Linear(h.Setup.Channels)
		s.insert("rail", cal, i, r.Name, r.Role, r.Wiring, r.X, r.Y, r.Shunt, r.UShunt, r.Assumed, r.UAssumed,
			l.I0, l.IX, l.IY, l.V0, l.VY)
	}
	for i, r := range h.Setup.Records {
		s.insert("calibration_record", cal, i, r.ID, r.Text)
	}
	return cal
}

// oneARole reports whether no two rails share a role.
// The plain view then takes its fast branch, without a sum over rails of one role.
func oneARole(rails []measure.Rail) bool {
	roles := lists.Map(rails, func(r measure.Rail) measure.Role { return r.Role })
	slices.Sort(roles)
	return len(slices.Compact(roles)) == len(rails)
}

// GroupID identifies a measurement of several GPUs.
type GroupID int64

// GroupRef names a member of a group; the zero value is none.
type GroupRef struct {
	Group  GroupID
	Member int // counts from 0
}

// NewGroup is the state of a measurement of several GPUs at its begin.
type NewGroup struct {
	Name, User string
	Launched   time.Time
	Members    []GroupMember
}

// GroupMember is one GPU of a group.
type GroupMember struct {
	GPU, GPUUUID string
	// Monitor is the address of the one that measures the GPU; empty where none does.
	Monitor string
	// Task is the member's task; 0 where there is none; Reason then holds the cause,
	// as far as the host came to know it.
	Task   TaskID
	Reason string
}

// Group ties the tasks of a measurement of several GPUs.
type Group struct {
	ID GroupID
	NewGroup
}

// BeginGroup records a measurement of several GPUs; their tasks name it when
// they begin. Name and user must not be empty, and printable.
func (d *DB) BeginGroup(ctx context.Context, g NewGroup) (GroupID, error) {
	err := errors.Join(measure.CheckText("name", g.Name), measure.CheckText("user", g.User))
	if err == nil && (g.Name == "" || g.User == "" || len(g.Members) == 0) {
		err = fmt.Errorf("it needs a name, a user and GPUs (name %q, user %q, %d GPUs)", g.Name, g.User, len(g.Members))
	}
	if err != nil {
		return 0, fmt.Errorf("begin group: %w", err)
	}
	var id GroupID
	err = d.write(ctx, "begin group "+g.Name, func(s *session) {
		id = one[GroupID](s, `INSERT INTO task_group(name, "user", launched_ns) VALUES(?,?,?) RETURNING group_id`,
			g.Name, g.User, nanos(g.Launched))
		// Members are inserted at the begin, without tasks: a GPU whose monitor never answers keeps its
		// row and its reason.
		for i, m := range g.Members {
			s.insert("group_member", id, i, m.GPU, m.GPUUUID, m.Monitor, nil, m.Reason)
		}
	})
	return id, err
}

// FailMember records why a member has no task. A member with a task stays unchanged.
func (d *DB) FailMember(ctx context.Context, r GroupRef, reason string) error {
	return d.write(ctx, fmt.Sprintf("note what GPU %d of group %d lacks", r.Member, r.Group), func(s *session) {
		s.exec(`UPDATE group_member SET reason=? WHERE group_id=? AND ordinal=? AND task_id IS NULL`,
			measure.Printable(reason), r.Group, r.Member)
	})
}

// DropGroup deletes a group without tasks; a group with tasks stays unchanged.
func (d *DB) DropGroup(ctx context.Context, id GroupID) error {
	return d.write(ctx, fmt.Sprintf("drop group %d", id), func(s *session) { dropEmpty(s, []GroupID{id}) })
}

// Group returns one group with its members in their order. Errors wrap ErrNotFound.
func (d *DB) Group(ctx context.Context, id GroupID) (g Group, err error) {
	err = d.view(ctx, fmt.Sprintf("read group %d", id), func(s *session) {
		if !s.row(`SELECT group_id, name, "user", launched_ns FROM task_group WHERE group_id=?`, id).
			found(&g.ID, (*text)(&g.Name), (*text)(&g.User), (*moment)(&g.Launched)) {
			s.fail(ErrNotFound)
		}
		g.Members = all(s, func(rows *sql.Rows, m *GroupMember) error {
			return rows.Scan((*text)(&m.GPU), (*text)(&m.GPUUUID), (*text)(&m.Monitor), &m.Task, (*text)(&m.Reason))
			// The task of a member counts as 0 while it is hidden, as where it was deleted.
		}, `SELECT gpu, gpu_uuid, monitor, coalesce((SELECT t.task_id FROM task t WHERE t.task_id=m.task_id
			AND `+published+`),0), reason FROM group_member m WHERE group_id=? ORDER BY ordinal`, id)
	})
	return g, err
}

// dropEmpty deletes those of the groups that have no task left.
func dropEmpty(s *session, groups []GroupID) {
	for _, id := range groups {
		s.exec(`DELETE FROM task_group WHERE group_id=?1
			AND NOT EXISTS (SELECT 1 FROM group_member WHERE group_id=?1 AND task_id IS NOT NULL)`, id)
	}
}

// Provenance is the origin of a task. Its GPU, driver, bench and calibration are fields of Task,
// the clocks are Readings.
type Provenance struct {
	Host, OS string
	// Version and MonitorVersion are wattmark's here and at the meter; empty where unknown.
	Version, MonitorVersion string
	// Directory is where the command was given, GitCommit the commit that was checked out
	// there; both may be empty. GitDirty: with changes that are in no commit.
	Directory, GitCommit string
	GitDirty             bool
	// Command is the command line by words; nil where it was not to be kept.
	Command []string
	// TraceID is the OpenTelemetry trace of its run, in hexadecimal; empty for none, as of all
	// tasks that this version measures.
	TraceID string
}

// PutProvenance records the origin of a task, in place of an earlier record. Texts are made
// printable. Errors wrap ErrNotFound.
func (d *DB) PutProvenance(ctx context.Context, id TaskID, p Provenance) error {
	return d.write(ctx, fmt.Sprintf("store the provenance of task %d", id), func(s *session) {
		s.lock(id)
		putProvenance(s, id, &p)
	})
}

// lock updates a task's row without a change: ErrNotFound where there is none, and the row's lock on a
// server.
func (s *session) lock(id TaskID) { s.must(`UPDATE task SET state=state WHERE task_id=?`, id) }

// putProvenance stores an origin. Whether the checkout was dirty is NULL without a commit; the
// command is NULL where it was not to be kept.
func putProvenance(s *session, id TaskID, p *Provenance) {
	f := measure.Printable
	var command, dirty, trace any
	if p.TraceID != "" {
		trace = f(p.TraceID)
	}
	if p.Command != nil {
		command = s.json(printable(slices.Clone(p.Command)))
	}
	if p.GitCommit != "" {
		dirty = p.GitDirty
	}
	s.exec(upsert("provenance", "task_id",
		"host,os,version,monitor_version,directory,git_commit,git_dirty,command,trace_id"), id, f(p.Host), f(p.OS),
		f(p.Version), f(p.MonitorVersion), f(p.Directory), f(p.GitCommit), dirty, command, trace)
}

// printable makes texts printable in place.
func printable(texts []string) []string {
	for i, t := range texts {
		texts[i] = measure.Printable(t)
	}
	return texts
}

// readProvenance leaves nil where nothing is recorded.
func readProvenance(s *session, t *Task) {
	var p Provenance
	var command sql.NullString
	if !s.row(`SELECT host, os, version, monitor_version, directory, git_commit, coalesce(git_dirty,0), command,
		coalesce(trace_id,'') FROM provenance WHERE task_id=?`, t.ID).found((*text)(&p.Host), (*text)(&p.OS),
		(*text)(&p.Version), (*text)(&p.MonitorVersion), (*text)(&p.Directory), (*text)(&p.GitCommit), &p.GitDirty,
		&command, (*text)(&p.TraceID)) {
		return
	}
	if command.Valid {
		s.failed(json.Unmarshal([]byte(command.String), &p.Command), "%w: command line", ErrCorrupt)
		printable(p.Command)
	}
	t.Provenance = &p
}

// asDigested reports whether the numbers are those that the digest is of.
func (k *calibrationRow) asDigested() (bool, error) {
	// The digest is over the JSON text, which holds more than the columns do: each setup that is stored
	// as these rows are is tried. At most 2¹⁰ signs of zeros × 2 × 2 forms, for calibrations with ten
	// offsets of zero.
	for s := range k.forms() {
		text, err := digested(Header{Bench: k.bench, CalibrationID: k.name, Setup: s})
		if err != nil {
			return false, err
		}
		earlier := bytes.Replace(text, []byte(`,"Centred":false`), nil, 1) // before there was such a field
		for _, t := range [][]byte{text, earlier} {
			if sum := sha256.Sum256(t); bytes.Equal(sum[:], k.digest) {
				return true, nil
			}
		}
	}
	return false, nil
}

// asNamed reports whether the numbers are those that the calibration's name stands for.
func (k *calibrationRow) asNamed() bool {
	for s := range k.forms() {
		if s.CalibrationID() == k.name {
			return true
		}
	}
	return false
}

// forms are the setups that are stored in the same way: a list without entries has two
// forms, no column has Centred, and SQLite keeps no sign of a zero, as offsets may have one.
func (k *calibrationRow) forms() iter.Seq[measure.Setup] {
	var zeros []int
	for i, c := range k.setup.Channels {
		if c.Offset == 0 && len(zeros) < 10 {
			zeros = append(zeros, i)
		}
	}
	return func(yield func(measure.Setup) bool) {
		// Bit i of signs is the sign of the i-th zero offset; 0 comes first, so an unchanged
		// calibration of the common form matches at the first try.
		for signs := range 1 << len(zeros) {
			s := k.setup
			s.Channels = slices.Clone(s.Channels)
			for bit, i := range zeros {
				if signs>>bit&1 == 1 {
					s.Channels[i].Offset = math.Copysign(0, -1)
				}
			}
			for _, missing := range [][]string{s.Missing, append([]string{}, s.Missing...)} {
				for _, centred := range []bool{false, true} {
					if s.Missing, s.Response.Centred = missing, centred; !yield(s) {
						return
					}
				}
			}
		}
	}
}
