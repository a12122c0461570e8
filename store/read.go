package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"wattmark/measure"
	"wattmark/measure/clock"
)

const taskColumns = `t.task_id, t.name, u.login, t.launched_ns, t.monitor, t.capture_id, t.gpu, t.gpu_uuid, t.driver,
	t.marker_code, t.marker_chip_s, t.marker_guard, t.marker_tag_bits, t.marker_tag,
	coalesce(t.instrument_kind,''), coalesce(t.instrument_model,''), coalesce(t.instrument_serial,''),
	coalesce(t.instrument_firmware,''), coalesce(t.instrument_address,''), t.started_ns,
	t.state, t.reason, t.chunks, t.scans, t.nvml_j, coalesce(k.bench,''), coalesce(k.name,''), coalesce(k.calibration_id,0),
	t.clock_used IS NOT NULL, t.clock_origin_s, t.clock_a_s, t.clock_b, t.clock_var_a, t.clock_var_b, t.clock_cov_ab, t.clock_rms_s,
	coalesce(t.clock_used,0), coalesce(t.clock_rejected,0),
	t.has_result, t.from_s, t.to_s, coalesce(t.samples,0), coalesce(t.first_scan,0), coalesce(t.gaps,0), coalesce(t.lost,0),
	t.energy_j, t.energy_u_j, t.mean_w, t.peak_w,
	coalesce(t.bench_gpu,''), coalesce(gm.group_id,0), coalesce(gm.ordinal,0), coalesce(t.job,''),
	t.pinned, t.cold, coalesce(t.nvml_method,''), t.failure, t.exit_code, coalesce(t.owner,'')`

const taskTables = ` FROM task t JOIN user u USING(user_id) LEFT JOIN calibration k USING(calibration_id) LEFT JOIN group_member gm ON gm.task_id=t.task_id `

// row is a task as its row has it, with the calibration it refers to.
type row struct {
	Task
	calibration int64
}

func scanTask(rows *sql.Rows, t *row) error {
	var launched, started sql.NullInt64
	var nvml sql.NullFloat64
	var failure sql.NullString
	var exit sql.Null[int]
	var hasClock, hasResult bool
	var cold int64
	var f clock.Fit
	var r measure.Result
	m, i := &t.Marker, &t.Instrument
	err := rows.Scan(&t.ID, textTo(&t.Name), textTo(&t.User), &launched, &t.Monitor, &t.CaptureID, textTo(&t.GPU), textTo(&t.GPUUUID), textTo(&t.Driver),
		&m.Code, &m.Chip, &m.Guard, &m.TagBits, &m.Tag,
		textTo(&i.Kind), textTo(&i.Model), textTo(&i.Serial), textTo(&i.Firmware), textTo(&i.Address), &started,
		&t.State, textTo(&t.Reason), &t.Chunks, &t.Scans, &nvml, textTo(&t.Bench), textTo(&t.CalibrationID), &t.calibration,
		&hasClock, realTo(&f.Origin), realTo(&f.A), realTo(&f.B), realTo(&f.VarA), realTo(&f.VarB), realTo(&f.CovAB), realTo(&f.RMS),
		&f.Used, &f.Rejected,
		&hasResult, realTo(&r.From), realTo(&r.To), &r.Samples, &r.FirstScan, &r.Gaps, &r.Lost,
		realTo(&r.Total.Energy), realTo(&r.Total.U), realTo(&r.Mean), realTo(&r.Peak),
		textTo(&t.BenchGPU), &t.Group.Group, &t.Group.Member, textTo(&t.Job),
		&t.Pinned, &cold, textTo(&t.NVMLMethod), &failure, &exit, textTo(&t.Owner))
	if err != nil {
		return err
	}
	t.Cold = cold == 1
	t.Launched, t.Started = fromNanos(launched), fromNanos(started)
	if nvml.Valid {
		j := measure.Joule(nvml.Float64)
		t.NVML = &j
	}
	if failure.Valid {
		t.Failure = &Failure{Reason: failure.String}
		if exit.Valid {
			t.Failure.ExitCode = &exit.V
		}
	}
	if hasClock {
		t.Clock = &f
	}
	if hasResult {
		t.Result = &r
	}
	return nil
}

func (d *DB) tasks(ctx context.Context, op, tail string, args ...any) ([]Row, error) {
	rows, err := collect(ctx, d.reader, scanTask, "SELECT "+taskColumns+taskTables+tail, args...)
	if err != nil {
		return nil, wrap(op, err)
	}
	out := make([]Row, len(rows))
	for i := range rows {
		out[i] = rows[i].Row()
	}
	return out, nil
}

// Unfinished returns the tasks in state Running, oldest first; their tags are left out.
func (d *DB) Unfinished(ctx context.Context) ([]Row, error) {
	return d.tasks(ctx, "list unfinished tasks", "WHERE t.state=1 ORDER BY t.task_id")
}

// Users returns all users that have tasks, by name.
func (d *DB) Users(ctx context.Context) ([]UserTasks, error) {
	out, err := collect(ctx, d.reader, func(rows *sql.Rows, u *UserTasks) error { return rows.Scan(textTo(&u.User), &u.Tasks) },
		`SELECT login, (SELECT count(*) FROM task WHERE task.user_id=user.user_id)-coalesce(p.n,0) FROM user
		LEFT JOIN (SELECT user_id, count(*) n FROM task WHERE `+partialTasks+` GROUP BY user_id) p ON p.user_id=user.user_id ORDER BY login`)
	out = slices.DeleteFunc(out, func(u UserTasks) bool { return u.Tasks == 0 })
	return out, wrap("list users", err)
}

// Task returns one task with all but its samples and readings, as it stood at
// one moment.
func (d *DB) Task(ctx context.Context, id TaskID) (Task, error) {
	op := fmt.Sprintf("read task %d", id)
	tx, err := d.reader.BeginTx(ctx, nil)
	if err != nil {
		return Task{}, wrap(op, err)
	}
	defer tx.Rollback() // it only read
	rows, err := collect(ctx, tx, scanTask, "SELECT "+taskColumns+taskTables+"WHERE t.task_id=?"+d.unlessMine(id), int64(id))
	if err != nil {
		return Task{}, wrap(op, err)
	}
	if len(rows) == 0 {
		return Task{}, fmt.Errorf("%s: %w", op, ErrNotFound)
	}
	t := rows[0].Task
	err = errors.Join(
		readSetup(ctx, tx, rows[0].calibration, &t.Setup),
		readMarkers(ctx, tx, &t),
		readEvents(ctx, tx, &t),
		readRails(ctx, tx, &t),
		readResults(ctx, tx, &t),
		readLabels(ctx, tx, &t),
		readProvenance(ctx, tx, &t),
	)
	if err == nil {
		err = d.readClipped(ctx, tx, &t)
	}
	return t, wrap(op, err)
}
