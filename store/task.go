package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
)

// BeginTask records a new task in state Running, or Partial. The name and the user must
// not be empty, and printable: others wrap measure.ErrText. Beyond the limits it is
// ErrFull.
func (d *DB) BeginTask(ctx context.Context, t NewTask) (TaskID, error) {
	if err := errors.Join(measure.CheckText("name", t.Name), measure.CheckText("user", t.User), measure.CheckText("job", t.Job), CheckTags(t.Tags)); err != nil {
		return 0, fmt.Errorf("begin task: %w", err)
	}
	if t.Note != "" {
		if err := CheckNote(t.Note); err != nil {
			return 0, fmt.Errorf("begin task: %w", err)
		}
	}
	op := "begin task " + t.Name
	if t.Name == "" || t.User == "" {
		return 0, fmt.Errorf("%s: a task needs a name and a user (name %q, user %q)", op, t.Name, t.User)
	}
	state, err := transitions.Next(0, Begun)
	if t.Partial {
		state = Partial
	}
	if err == nil {
		err = d.Room(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	var id int64
	err = d.write(ctx, op, func(tx *sql.Tx) (err error) {
		if id, err = insertTask(ctx, tx, &t, state); err != nil {
			return err
		}
		return errors.Join(joinGroup(ctx, tx, id, t.Group), labelNew(ctx, tx, id, &t))
	})
	if err == nil && t.Partial {
		d.mine.Store(TaskID(id), true)
	}
	return TaskID(id), err
}

func insertTask(ctx context.Context, tx *sql.Tx, t *NewTask, state State) (id int64, err error) {
	if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO user(login) VALUES(?)`, t.User); err != nil {
		return 0, err
	}
	m, cold, owner := t.Marker, 0, t.Owner
	if state == Partial {
		cold, owner = partialCold, thisProcess()
	}
	err = tx.QueryRowContext(ctx, `INSERT INTO task(user_id, name, launched_ns, launched, stored_ns, state, monitor, capture_id,
			gpu, gpu_uuid, driver, marker_code, marker_chip_s, marker_guard, marker_tag_bits, marker_tag, job, owner, cold)
		VALUES((SELECT user_id FROM user WHERE login=?), ?,?,?,?,?,?,?, ?,?,?, ?,?,?,?,?, nullif(?,''), nullif(?,''), ?) RETURNING task_id`,
		t.User, t.Name, nanos(t.Launched), isoTime(t.Launched), nanos(time.Now()), state, t.Monitor, t.CaptureID,
		t.GPU, t.GPUUUID, t.Driver, m.Code, float64(m.Chip), m.Guard, m.TagBits, m.Tag, t.Job, owner, cold).Scan(&id)
	return id, err
}

// TryTask reports why the database takes no task now, whatever task that is: it inserts a
// row for one and rolls back. It returns nil where it would take one.
func (d *DB) TryTask(ctx context.Context) error {
	undone := errors.New("rolled back")
	err := d.write(ctx, "try to insert a task", func(tx *sql.Tx) error {
		t := NewTask{Name: "try", User: "try", Launched: time.Now()}
		if _, err := insertTask(ctx, tx, &t, Running); err != nil {
			return err
		}
		return undone
	})
	if errors.Is(err, undone) {
		return nil
	}
	return err
}

// labelNew stores what a new task is labelled with.
func labelNew(ctx context.Context, tx *sql.Tx, id int64, t *NewTask) error {
	if err := putTags(ctx, tx, id, t.Tags); err != nil {
		return err
	}
	if t.Note != "" {
		if _, err := putNote(ctx, tx, id, time.Now(), t.Note); err != nil {
			return err
		}
	}
	if t.Provenance != nil {
		return putProvenance(ctx, tx, id, t.Provenance)
	}
	return nil
}

// PutHeader records what the stream's header brought; it must come before the
// first chunk. Putting the same header again is no error; another setup under
// chunks that are stored already is ErrConflict.
func (d *DB) PutHeader(ctx context.Context, id TaskID, h Header) error {
	op := fmt.Sprintf("store header of task %d", id)
	if err := h.Setup.Validate(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return d.write(ctx, op, func(tx *sql.Tx) error {
		cal, err := putCalibration(ctx, tx, id, h)
		if err != nil {
			return err
		}
		var old sql.NullInt64
		var chunks int64
		err = tx.QueryRowContext(ctx, `SELECT calibration_id, chunks FROM task WHERE task_id=?`, int64(id)).Scan(&old, &chunks)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		} else if err != nil {
			return err
		}
		if chunks > 0 && old.Int64 != cal {
			return fmt.Errorf("%w: %d chunks are stored under another setup", ErrConflict, chunks)
		}
		i := h.Instrument
		return mustExist(tx.ExecContext(ctx, `UPDATE task SET calibration_id=?, instrument_kind=?, instrument_model=?,
			instrument_serial=?, instrument_firmware=?, instrument_address=?, started_ns=?, bench_gpu=nullif(?,'') WHERE task_id=?`,
			cal, i.Kind, i.Model, i.Serial, i.Firmware, i.Address, nanos(h.Started), h.BenchGPU, int64(id)))
	})
}

// digested is what a calibration's digest is of. A field that is added to a setup must
// be left out of it where it is empty: else no calibration that is stored is known again.
func digested(h Header) ([]byte, error) {
	text, err := json.Marshal(struct {
		Bench, CalibrationID string
		Setup                measure.Setup
	}{h.Bench, h.CalibrationID, h.Setup})
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	return text, nil
}

// digest identifies what turns counts into watts, whatever name a monitor gave it.
func digest(h Header) ([]byte, error) {
	text, err := digested(h)
	sum := sha256.Sum256(text)
	return sum[:], err
}

// putCalibration returns the record of the header's setup, making it where
// there is none.
func putCalibration(ctx context.Context, tx *sql.Tx, id TaskID, h Header) (int64, error) {
	sum, err := digest(h)
	if err != nil {
		return 0, err
	}
	var cal int64
	err = tx.QueryRowContext(ctx, `SELECT calibration_id FROM calibration WHERE digest=?`, sum).Scan(&cal)
	if !errors.Is(err, sql.ErrNoRows) {
		return cal, err
	}
	missing, err := json.Marshal(append([]string{}, h.Setup.Missing...))
	if err != nil {
		return 0, err
	}
	s, tb, r := h.Setup, h.Setup.Timebase, h.Setup.Response
	err = tx.QueryRowContext(ctx, `INSERT INTO calibration(digest, name, bench, since_ns, tick_hz, u_tick_rel, ticks_per_scan,
			stamped, channels, tau_s, window_s, update_s, missing, one_a_role)
		VALUES(?,?,?, coalesce((SELECT launched_ns FROM task WHERE task_id=?),0), ?,?,?,?,?,?,?,?,?,?) RETURNING calibration_id`,
		sum, h.CalibrationID, h.Bench, int64(id), float64(tb.TickHz), tb.UTickHz, tb.TicksPerScan,
		tb.Stamped, len(s.Channels), number(r.Tau), number(r.Window), number(r.Update), string(missing), oneARole(s.Rails)).Scan(&cal)
	if err != nil {
		return 0, err
	}
	for i, c := range s.Channels {
		if _, err := tx.ExecContext(ctx, `INSERT INTO channel VALUES(?,?,?,?,?,?,?,?,?,?,?,?)`, cal, i, c.Name, string(c.Unit),
			c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise, c.MinCount, c.MaxCount, float64(c.Skew)); err != nil {
			return 0, err
		}
	}
	for i, r := range s.Rails {
		l := r.Linear(s.Channels)
		if _, err := tx.ExecContext(ctx, `INSERT INTO rail VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`, cal, i, r.Name, r.Role, r.Wiring,
			r.X, r.Y, float64(r.Shunt), r.UShunt, float64(r.Assumed), float64(r.UAssumed),
			l.I0, l.IX, l.IY, l.V0, l.VY); err != nil {
			return 0, err
		}
	}
	for i, r := range s.Records {
		if _, err := tx.ExecContext(ctx, `INSERT INTO calibration_record VALUES(?,?,?,?)`, cal, i, r.ID, r.Text); err != nil {
			return 0, err
		}
	}
	return cal, nil
}

// oneARole reports whether no two rails share a role.
func oneARole(rails []measure.Rail) bool {
	seen := map[measure.Role]bool{}
	for _, r := range rails {
		if seen[r.Role] {
			return false
		}
		seen[r.Role] = true
	}
	return true
}
