package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// calibration returns the number here of a calibration there, copying it where it
// is not here yet; nil for none. Calibrations are known by their digest.
func (m *merger) calibration(ctx context.Context, tx *sql.Tx, there any) (any, error) {
	if there == nil {
		return nil, nil
	}
	c, err := readRecord(ctx, m.from.reader, "calibration", "calibration_id=?", there)
	if err != nil {
		return nil, fmt.Errorf("calibration %v: %w", there, err)
	}
	var here int64
	err = tx.QueryRowContext(ctx, `SELECT calibration_id FROM calibration WHERE digest=?`, c["digest"]).Scan(&here)
	if !errors.Is(err, sql.ErrNoRows) {
		return here, err
	}
	delete(c, "calibration_id")
	if here, err = c.insert(ctx, tx, "calibration", "calibration_id"); err != nil {
		return nil, err
	}
	for _, table := range []string{"channel", "rail", "calibration_record"} {
		if err := m.copyUnder(ctx, tx, table, "calibration_id", there, here); err != nil {
			return nil, err
		}
	}
	return here, nil
}

// copyUnder copies the rows of a table under a key, which is another number here.
func (m *merger) copyUnder(ctx context.Context, tx *sql.Tx, table, key string, there any, here int64) error {
	cols, err := tableColumns(ctx, tx, table)
	if err != nil {
		return err
	}
	rows, err := tableRows(ctx, m.from.reader, table, cols, `"`+key+`"=?`, there)
	if err != nil {
		return err
	}
	at := slices.Index(cols, key)
	for _, r := range rows {
		r[at] = here
		if _, err := tx.ExecContext(ctx, insertText(table, cols), r...); err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
	}
	return nil
}

// group makes the copy a member of the group that the task is a member of there. A
// group is known by its name, user, launch and GPUs.
func (m *merger) group(ctx context.Context, tx *sql.Tx, id TaskID, to int64) error {
	var there, ordinal int64
	err := m.from.reader.QueryRowContext(ctx, `SELECT group_id, ordinal FROM main.group_member WHERE task_id=?`, int64(id)).Scan(&there, &ordinal)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return m.forgive(err, "its group", id, NoChunk)
	}
	g, err := readRecord(ctx, m.from.reader, "task_group", "group_id=?", there)
	if err != nil {
		return m.forgive(err, "its group", id, NoChunk)
	}
	const gpus = `(SELECT group_concat(gpu_uuid, ' ') FROM (SELECT gpu_uuid FROM group_member m WHERE m.group_id=%s ORDER BY ordinal))`
	var members string
	if err := m.from.reader.QueryRowContext(ctx, `SELECT `+fmt.Sprintf(gpus, "?"), there).Scan(&members); err != nil {
		return m.forgive(err, "its group", id, NoChunk)
	}
	var here int64
	err = tx.QueryRowContext(ctx, `SELECT group_id FROM task_group g WHERE name=? AND user=? AND launched_ns IS ? AND `+fmt.Sprintf(gpus, "g.group_id")+`=?`,
		g["name"], g["user"], g["launched_ns"], members).Scan(&here)
	if errors.Is(err, sql.ErrNoRows) {
		here, err = m.newGroup(ctx, tx, g, there)
	}
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE group_member SET task_id=?, reason='' WHERE group_id=? AND ordinal=? AND task_id IS NULL`, to, here, ordinal)
	return err
}

// newGroup copies a group whose members have no tasks here yet.
func (m *merger) newGroup(ctx context.Context, tx *sql.Tx, g record, there int64) (int64, error) {
	delete(g, "group_id")
	here, err := g.insert(ctx, tx, "task_group", "group_id")
	if err != nil {
		return 0, err
	}
	cols := []string{"ordinal", "gpu", "gpu_uuid", "monitor", "reason"}
	rows, err := tableRows(ctx, m.from.reader, "group_member", cols, "group_id=?", there)
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		if r[4] == "" {
			r[4] = "its task was not brought along"
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO group_member(group_id, ordinal, gpu, gpu_uuid, monitor, reason) VALUES(?,?,?,?,?,?)`, append([]any{here}, r...)...); err != nil {
			return 0, err
		}
	}
	return here, nil
}

// analyses copies what was worked out from the tasks that were copied; all of it
// where all tasks were. One of the same content and moment is known.
func (m *merger) analyses(ctx context.Context) error {
	cols := []string{"analysis_id", "kind", "name", "made_ns", "maker", "content"}
	rows, err := tableRows(ctx, m.from.reader, "analysis", cols, "1 ORDER BY analysis_id")
	if err != nil {
		return m.forgive(err, "the analyses", 0, NoChunk)
	}
	for _, r := range rows {
		tasks, err := tableRows(ctx, m.from.reader, "analysis_task", []string{"task_id"}, "analysis_id=?", r[0])
		if err != nil {
			return m.forgive(err, "an analysis", 0, NoChunk)
		}
		mine := m.opt.Tasks == nil
		for _, t := range tasks {
			_, copied := m.ids[t[0].(int64)]
			mine = mine || copied
		}
		if !mine {
			continue
		}
		if err := m.d.write(ctx, "import an analysis", func(tx *sql.Tx) error { return m.analysis(ctx, tx, r[1:], tasks) }); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) analysis(ctx context.Context, tx *sql.Tx, r []any, tasks [][]any) error {
	var id int64
	err := tx.QueryRowContext(ctx, `SELECT analysis_id FROM analysis WHERE kind=? AND name=? AND made_ns=? AND maker=? AND content=?`, r...).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		m.out.Analyses++
		err = tx.QueryRowContext(ctx, `INSERT INTO analysis(kind, name, version, made_ns, maker, content)
			SELECT ?1, ?2, coalesce(max(version),0)+1, ?3, ?4, ?5 FROM analysis WHERE kind=?1 AND name=?2 RETURNING analysis_id`, r...).Scan(&id)
	}
	for _, t := range tasks {
		to, copied := m.ids[t[0].(int64)]
		if err != nil || !copied {
			continue
		}
		_, err = tx.ExecContext(ctx, `INSERT OR IGNORE INTO analysis_task VALUES(?,?)`, id, to)
	}
	return err
}

// campaigns copies the measurements of instructions where all tasks are copied. One
// is known by its GPU and moment.
func (m *merger) campaigns(ctx context.Context) error {
	if m.opt.Tasks != nil {
		return nil
	}
	ids, err := tableRows(ctx, m.from.reader, "instruction_campaign", []string{"campaign_id"}, "1 ORDER BY campaign_id")
	if err != nil {
		return m.forgive(err, "the campaigns of instructions", 0, NoChunk)
	}
	for _, id := range ids {
		if err := m.d.write(ctx, "import a campaign of instructions", func(tx *sql.Tx) error { return m.campaign(ctx, tx, id[0]) }); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) campaign(ctx context.Context, tx *sql.Tx, there any) error {
	c, err := readRecord(ctx, m.from.reader, "instruction_campaign", "campaign_id=?", there)
	if err != nil {
		return m.forgive(err, "a campaign of instructions", 0, NoChunk)
	}
	var known bool
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM instruction_campaign WHERE gpu_uuid=? AND started_ns=?`, c["gpu_uuid"], c["started_ns"]).Scan(&known); err != nil || known {
		return err
	}
	delete(c, "campaign_id")
	here, err := c.insert(ctx, tx, "instruction_campaign", "campaign_id")
	if err != nil {
		return err
	}
	m.out.Campaigns++
	for _, table := range []string{"instruction_run", "instruction_power"} {
		if err := m.copyUnder(ctx, tx, table, "campaign_id", there, here); err != nil {
			return m.forgive(err, "a campaign of instructions", 0, NoChunk)
		}
	}
	return nil
}
