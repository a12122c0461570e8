package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"iter"
	"math"
	"slices"

	"wattmark/measure"
)

// calibrationRow is a calibration as it is stored.
type calibrationRow struct {
	id       int64
	digest   []byte
	name     string
	bench    string
	channels int
	oneARole bool
	setup    measure.Setup
	linear   []measure.Linear // of the rails, as stored for the view data
}

const calibrationRemedy = "put the numbers back from a backup, or from another database with this calibration; until then nothing is made anew by them"

// calibrations compares the calibrations, or those of one task alone, with their
// digests, and what is stored of them twice.
func (c *checker) calibrations(ctx context.Context, task TaskID) error {
	tx, err := c.d.reader.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // it only read
	rows, err := collect(ctx, tx, func(rows *sql.Rows, k *calibrationRow) error {
		return rows.Scan(&k.id, &k.digest, textTo(&k.name), textTo(&k.bench), &k.channels, &k.oneARole)
	}, `SELECT calibration_id, digest, name, bench, channels, one_a_role FROM calibration k WHERE ?1=0
		OR calibration_id IN (SELECT calibration_id FROM task WHERE task_id=?1 UNION SELECT calibration_id FROM result WHERE task_id=?1) ORDER BY 1`, int64(task))
	if err != nil {
		return err
	}
	for i := range rows {
		k := &rows[i]
		if err := readSetup(ctx, tx, k.id, &k.setup); err != nil {
			return err
		}
		if k.linear, err = collect(ctx, tx, func(rows *sql.Rows, l *measure.Linear) error {
			return rows.Scan(&l.I0, &l.IX, &l.IY, &l.V0, &l.VY)
		}, `SELECT i0, ix, iy, v0, vy FROM rail WHERE calibration_id=? ORDER BY ordinal`, k.id); err != nil {
			return err
		}
		users, err := collect(ctx, tx, func(rows *sql.Rows, id *TaskID) error { return rows.Scan(id) },
			`SELECT task_id FROM task WHERE calibration_id=?1 UNION SELECT task_id FROM result WHERE calibration_id=?1 ORDER BY 1`, k.id)
		if err != nil {
			return err
		}
		if err := c.calibration(k, users); err != nil {
			return err
		}
	}
	return nil
}

// calibration checks one calibration.
func (c *checker) calibration(k *calibrationRow, users []TaskID) error {
	f := Finding{Kind: BadCalibration, Chunk: NoChunk, Mendable: true, calibration: k.id}
	if len(users) > 0 {
		f.Task = users[0]
	}
	who := fmt.Sprintf("calibration %d (%s) of %s", k.id, k.name, someTasks(users))
	same, err := k.asDigested()
	if err != nil {
		return err
	}
	derived, invalid := k.derived()
	switch {
	case same && len(derived) == 0:
		return nil
	case same:
		f.What, f.Remedy = fmt.Sprintf("%s: %s", who, words(derived)), "db repair computes it anew from channels and wiring"
	case invalid == nil && k.asNamed():
		f.What = who + ": the numbers are those that its name stands for, but column digest is not the SHA-256 of them with bench and records: one of these three was changed"
		f.Remedy = "compare bench and records with a backup; db repair takes them as they are"
	default:
		f.Mendable, f.Remedy = false, calibrationRemedy
		f.What = who + ": a number in table calibration, channel (gain, offset, skew_s …) or rail was changed: their SHA-256 is not that of column digest"
		if len(derived) > 0 {
			f.What += "; " + words(derived)
		}
		if invalid != nil {
			f.What += "; " + invalid.Error()
		}
		c.strange[k.id] = true
	}
	c.add(f)
	return nil
}

// asDigested reports whether the numbers are those that the digest is of.
func (k *calibrationRow) asDigested() (bool, error) {
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

// derived names the columns that do not follow from the others. A setup that cannot be is
// an error, and says nothing of them.
func (k *calibrationRow) derived() (wrong []string, invalid error) {
	if err := k.setup.Validate(); err != nil {
		return nil, err
	}
	if n := len(k.setup.Channels); n != k.channels {
		wrong = append(wrong, fmt.Sprintf("calibration.channels is %d, there are %d", k.channels, n))
	}
	if one := oneARole(k.setup.Rails); one != k.oneARole {
		wrong = append(wrong, fmt.Sprintf("calibration.one_a_role is %t, the rails' roles give %t", k.oneARole, one))
	}
	for i, r := range k.setup.Rails {
		is, want := k.linear[i], r.Linear(k.setup.Channels)
		for _, v := range []struct {
			column   string
			is, want float64
		}{{"i0", is.I0, want.I0}, {"ix", is.IX, want.IX}, {"iy", is.IY, want.IY}, {"v0", is.V0, want.V0}, {"vy", is.VY, want.VY}} {
			if !nearly(v.is, v.want, 1e-12*math.Abs(v.want)) {
				wrong = append(wrong, fmt.Sprintf("rail.%s of rail %s is %v, its channels give %v", v.column, r.Name, v.is, v.want))
			}
		}
	}
	return wrong, nil
}

// someTasks names tasks, of many the first few.
func someTasks(ids []TaskID) string {
	const most = 8
	switch n := len(ids); {
	case n == 0:
		return "no task"
	case n > most:
		return fmt.Sprintf("%s and %d others", taskList(ids[:most]), n-most)
	}
	return taskList(ids)
}

// calibrationAnew computes what follows from a calibration's numbers: its digest, and the
// columns that the view data reads.
func calibrationAnew(ctx context.Context, tx *sql.Tx, id int64) error {
	h := Header{}
	if err := tx.QueryRowContext(ctx, `SELECT name, bench FROM calibration WHERE calibration_id=?`, id).Scan(textTo(&h.CalibrationID), textTo(&h.Bench)); err != nil {
		return err
	}
	if err := readSetup(ctx, tx, id, &h.Setup); err != nil {
		return err
	}
	k := calibrationRow{name: h.CalibrationID, bench: h.Bench, setup: h.Setup}
	if err := tx.QueryRowContext(ctx, `SELECT digest FROM calibration WHERE calibration_id=?`, id).Scan(&k.digest); err != nil {
		return err
	}
	sum := k.digest
	if same, err := k.asDigested(); err != nil {
		return err
	} else if !same {
		if sum, err = digest(h); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, `UPDATE calibration SET digest=?, channels=?, one_a_role=? WHERE calibration_id=?`,
		sum, len(h.Setup.Channels), oneARole(h.Setup.Rails), id); err != nil {
		return err
	}
	for i, r := range h.Setup.Rails {
		l := r.Linear(h.Setup.Channels)
		if _, err := tx.ExecContext(ctx, `UPDATE rail SET i0=?, ix=?, iy=?, v0=?, vy=? WHERE calibration_id=? AND ordinal=?`,
			l.I0, l.IX, l.IY, l.V0, l.VY, id, i); err != nil {
			return err
		}
	}
	return nil
}

// isAsDigested fails with ErrCorrupt where a calibration's numbers are not those that its
// digest is of: nothing is to be made by them.
func isAsDigested(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, id int64, s *measure.Setup,
) error {
	k := calibrationRow{setup: *s}
	if err := q.QueryRowContext(ctx, `SELECT digest, name, bench FROM calibration WHERE calibration_id=?`, id).Scan(&k.digest, textTo(&k.name), textTo(&k.bench)); err != nil {
		return err
	}
	same, err := k.asDigested()
	if err == nil && !same && !k.asNamed() {
		return fmt.Errorf("%w: calibration %d (%s) is not what it was: see wattmark db check", ErrCorrupt, id, k.name)
	}
	return err
}
