package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"wattmark/measure"
)

// task copies one task: first all but its samples, then those by and by, at last
// what says that it is whole.
func (m *merger) task(ctx context.Context, id TaskID) error {
	t, err := readRecord(ctx, m.from.reader, "task", "task_id=?", int64(id))
	if err != nil {
		return err
	}
	switch state := t["state"]; {
	case state == int64(Partial) && m.opt.Salvage && t["cold"] == int64(partialCold) && t["owner"] != nil && t["owner"] != "":
		return nil // whoever stored it can do so again
	case state == int64(Partial) && m.opt.Salvage: // no program has hidden it
		t["state"], t["reason"] = int64(Incomplete), strings.TrimSuffix(fmt.Sprintf("its state was damaged: partial; %v", t["reason"]), "; ")
	case state == int64(Partial):
		return ErrNotFound
	case state == int64(Running) && !m.opt.Salvage:
		m.out.Running = append(m.out.Running, id)
		return nil
	}
	var login string
	err = m.from.reader.QueryRowContext(ctx, `SELECT login FROM main.user WHERE user_id=?`, t["user_id"]).Scan(&login)
	if err != nil {
		if err = m.forgive(err, "the name of its user", id, NoChunk); err != nil {
			return err
		}
		login = fmt.Sprintf("user %v", t["user_id"])
	}
	var to int64
	var partial bool
	if !m.opt.KeepIDs { // into a new file everything goes
		if to, partial, err = known(ctx, m.d.writer, t, login); err != nil {
			return err
		}
	}
	done := ImportedTask{From: id, To: TaskID(to), Known: to != 0 && !partial, Resumed: partial}
	if !done.Known {
		if to == 0 {
			to, err = m.begin(ctx, id, t, login)
		} else {
			err = m.d.write(ctx, fmt.Sprintf("go on with the import of task %d", id), func(tx *sql.Tx) error { return adopt(ctx, tx, to) })
		}
		if err != nil {
			return err
		}
		done.To = TaskID(to)
		if m.opt.NoSamples {
			err = m.concludeBare(ctx, to, t)
		} else if done.Chunks, err = m.samples(ctx, id, to); err == nil {
			err = m.conclude(ctx, id, to, t)
		}
		if err != nil {
			return err
		}
	}
	m.ids[int64(id)] = to
	m.out.Tasks = append(m.out.Tasks, done)
	return nil
}

// begin copies a task without its samples.
func (m *merger) begin(ctx context.Context, id TaskID, t record, login string) (to int64, err error) {
	err = m.d.write(ctx, fmt.Sprintf("import task %d", id), func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO user(login) VALUES(?)`, login); err != nil {
			return err
		}
		var user int64
		if err := tx.QueryRowContext(ctx, `SELECT user_id FROM user WHERE login=?`, login).Scan(&user); err != nil {
			return err
		}
		row := record{}
		for k, v := range t {
			row[k] = v
		}
		row["user_id"] = user
		hide(row, importing)
		if !m.opt.Salvage { // what is salvaged takes the place of the broken file
			row["stored_ns"] = nanos(time.Now())
		}
		var err error
		if row["calibration_id"], err = m.calibration(ctx, tx, t["calibration_id"]); err != nil {
			return err
		}
		var taken bool
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM task WHERE task_id=?`, int64(id)).Scan(&taken); err != nil {
			return err
		}
		if !m.opt.KeepIDs || taken {
			delete(row, "task_id")
		}
		if to, err = row.insert(ctx, tx, "task", "task_id"); err != nil {
			return err
		}
		for _, table := range m.tables {
			if slices.Contains(bulk, table.name) {
				continue
			}
			if err := m.rows(ctx, tx, table, id, to, "task_id=?", int64(id)); err != nil {
				return err
			}
		}
		return m.group(ctx, tx, id, to)
	})
	return to, err
}

// rows copies rows of a table with the task's new number, and those of calibrations.
// Of a broken table it takes what can be read from both ends.
func (m *merger) rows(ctx context.Context, tx *sql.Tx, t owned, id TaskID, to int64, where string, args ...any) error {
	err := m.copyRows(ctx, tx, t, to, where, args)
	if err == nil {
		return nil
	}
	if err := m.forgive(err, "some rows of table "+t.name, id, NoChunk); err != nil {
		return err
	}
	err = m.copyRows(ctx, tx, t, to, where+" ORDER BY "+strings.Join(t.key, " DESC,")+" DESC", args)
	if isCorrupt(err) {
		return nil // it is noted already
	}
	return err
}

func (m *merger) copyRows(ctx context.Context, tx *sql.Tx, t owned, to int64, where string, args []any) error {
	cols := slices.DeleteFunc(slices.Clone(t.columns), func(c string) bool { return c == "damage_id" })
	put, err := tx.PrepareContext(ctx, insertText(t.name, cols))
	if err != nil {
		return err
	}
	defer put.Close()
	task, cal := slices.Index(cols, "task_id"), slices.Index(cols, "calibration_id")
	rows, err := m.from.reader.QueryContext(ctx, `SELECT `+quoted(cols)+` FROM main.`+quotedName(t.name)+` WHERE `+where, args...) // #nosec G202 -- names are quoted; where is of this file
	if err != nil {
		return err
	}
	defer rows.Close()
	vals, ptrs := make([]any, len(cols)), make([]any, len(cols))
	for i := range vals {
		ptrs[i] = &vals[i]
	}
	for rows.Next() {
		if err := rows.Scan(ptrs...); err != nil {
			return err
		}
		vals[task] = to
		if cal >= 0 {
			if vals[cal], err = m.calibration(ctx, tx, vals[cal]); err != nil {
				return err
			}
		}
		if _, err := put.ExecContext(ctx, vals...); err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
	}
	return rows.Err()
}

// insertText skips rows that are there: a salvage reads some twice.
func insertText(table string, cols []string) string {
	marks := make([]byte, 0, 2*len(cols))
	for range cols {
		marks = append(marks, ',', '?')
	}
	return `INSERT OR IGNORE INTO ` + quotedName(table) + `(` + quoted(cols) + `) VALUES(` + string(marks[1:]) + `)`
}

// batchBytes is about how much one transaction copies of the samples: enough that
// the wait for the disk does not count.
const batchBytes = 32 << 20

// samples copies the chunks that are not here yet.
func (m *merger) samples(ctx context.Context, id TaskID, to int64) (n uint64, err error) {
	var last sql.NullInt64
	if err := m.d.writer.QueryRowContext(ctx, `SELECT max(chunk_no) FROM chunk WHERE task_id=?`, to).Scan(&last); err != nil {
		return 0, err
	}
	from := int64(-1)
	if last.Valid {
		from = last.Int64
	}
	heads, err := m.chunkNumbers(ctx, id, from)
	if err != nil {
		return 0, err
	}
	for len(heads) > 0 {
		size, taken := int64(0), 0
		for taken < len(heads) && size < batchBytes {
			size += heads[taken][1]
			taken++
		}
		err := m.d.write(ctx, fmt.Sprintf("import samples of task %d", id), func(tx *sql.Tx) error {
			for _, h := range heads[:taken] {
				if err := m.chunk(ctx, tx, id, to, h[0]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return n, err
		}
		n, heads = n+uint64(taken), heads[taken:]
	}
	return n, nil
}

// chunkNumbers lists the chunks after a number, with their bytes; of a broken file
// what the table says from both ends.
func (m *merger) chunkNumbers(ctx context.Context, id TaskID, after int64) (out [][2]int64, err error) {
	const text = `SELECT chunk_no, n FROM main.chunk WHERE task_id=? AND chunk_no>? ORDER BY chunk_no `
	for _, order := range []string{"ASC", "DESC"} {
		rows, err := m.from.reader.QueryContext(ctx, text+order, int64(id), after)
		if err == nil {
			for rows.Next() {
				var h [2]int64
				if rows.Scan(&h[0], &h[1]) == nil {
					h[1] *= 6 // about the bytes of a scan
					out = append(out, h)
				}
			}
			err = errors.Join(rows.Err(), rows.Close())
		}
		if err == nil && order == "ASC" {
			return out, nil
		}
		if err := m.forgive(err, "some of its chunks", id, NoChunk); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	return slices.CompactFunc(out, func(a, b [2]int64) bool { return a[0] == b[0] }), nil
}

// chunk copies one chunk. Of a salvage, one that cannot be read in whole becomes a
// recorded gap.
func (m *merger) chunk(ctx context.Context, tx *sql.Tx, id TaskID, to, no int64) error {
	if m.opt.Salvage {
		if _, err := tableRows(ctx, m.from.reader, "chunk_column", []string{"dir", "data"}, "task_id=? AND chunk_no=?", int64(id), no); err != nil {
			if err := m.forgive(err, "its samples", id, no); err != nil {
				return err
			}
			m.gone++
			return m.gap(ctx, tx, id, to, no)
		}
	}
	for _, t := range m.tables {
		if t.name == "chunk" || t.name == "chunk_column" || t.name == "chunk_cold" {
			if err := m.rows(ctx, tx, t, id, to, "task_id=? AND chunk_no=?", int64(id), no); err != nil {
				return err
			}
		}
	}
	return nil
}

// gap records the loss of a chunk whose head alone can be read.
func (m *merger) gap(ctx context.Context, tx *sql.Tx, id TaskID, to, no int64) error {
	head, err := tableRows(ctx, m.from.reader, "chunk", []string{"first_scan", "n"}, "task_id=? AND chunk_no=?", int64(id), no)
	if err != nil || len(head) == 0 {
		return m.forgive(err, "the head of a chunk", id, no)
	}
	_, err = tx.ExecContext(ctx, `INSERT OR IGNORE INTO event(task_id,first_scan,kind,scans,exact,channel,detail) VALUES(?,?,?,?,1,-1,?)`,
		to, head[0][0], measure.EventGap, head[0][1], fmt.Sprintf("chunk %d could not be salvaged from a broken database", no))
	return err
}

// concludeBare gives a task without samples the state and the counts that it has
// there.
func (m *merger) concludeBare(ctx context.Context, to int64, t record) error {
	return m.d.write(ctx, fmt.Sprintf("end the import of task %d", to), func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE task SET chunks=?, scans=? WHERE task_id=?`, t["chunks"], t["scans"], to); err != nil {
			return err
		}
		return publishTask(ctx, tx, to, record{"owner": t["owner"]}, t["state"], t["reason"], nanos(time.Now()))
	})
}

// conclude copies the pyramid, and gives the task the state that it has there. Counts
// are of what is here; where that is less, the task is incomplete.
func (m *merger) conclude(ctx context.Context, id TaskID, to int64, t record) error {
	state, reason := t["state"], t["reason"]
	err := m.d.write(ctx, fmt.Sprintf("end the import of task %d", id), func(tx *sql.Tx) error {
		var here int64
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM chunk WHERE task_id=?`, to).Scan(&here); err != nil {
			return err
		}
		there, _ := t["chunks"].(int64)
		if m.opt.Salvage && state != int64(Running) && (m.gone > 0 || here < there) {
			m.out.Cut = append(m.out.Cut, TaskID(to))
			if state != int64(Failed) {
				state = int64(Incomplete)
			}
			reason = strings.TrimSuffix(fmt.Sprintf("%d of %d chunks could not be salvaged from a broken database; %s", max(there-here, int64(m.gone)), there, reason), "; ")
		}
		for _, table := range m.tables {
			if (table.name == "pyramid" || table.name == "pyramid_whole") && here == there {
				if err := m.rows(ctx, tx, table, id, to, "task_id=?", int64(id)); err != nil {
					return err
				}
			}
		}
		if _, err := tx.ExecContext(ctx, `UPDATE task SET chunks=(SELECT count(*) FROM chunk WHERE task_id=?1),
			scans=(SELECT coalesce(sum(n),0) FROM chunk WHERE task_id=?1) WHERE task_id=?1`, to); err != nil {
			return err
		}
		stored := nanos(time.Now())
		if m.opt.Salvage { // what is salvaged takes the place of the broken file
			stored = t["stored_ns"]
		}
		return publishTask(ctx, tx, to, t, state, reason, stored)
	})
	m.gone = 0
	return err
}
