package store

import (
	"context"
	"database/sql"

	"wattmark/measure"
)

// briefSQL reads what a list shows: a column costs more than a row.
const briefSQL = `SELECT t.task_id, t.name, u.login, t.launched_ns, t.gpu, t.gpu_uuid, coalesce(t.job,''),
	t.state, t.reason, t.scans, t.nvml_j, t.has_result, t.from_s, t.to_s, t.samples, t.gaps, t.lost, t.energy_j, t.energy_u_j, t.mean_w, t.peak_w,
	gm.group_id FROM task t JOIN user u USING(user_id) LEFT JOIN group_member gm ON gm.task_id=t.task_id `

// brief is where the columns of briefSQL go. It is scanned into again and again.
type brief struct {
	task                                   Task
	result                                 measure.Result
	hasResult                              bool
	launched, samples, gaps, lost, inGroup sql.NullInt64
	nvml                                   sql.NullFloat64
}

// columns are where the columns go.
func (b *brief) columns() []any {
	t, r := &b.task, &b.result
	return []any{
		&t.ID, textTo(&t.Name), textTo(&t.User), &b.launched, textTo(&t.GPU), textTo(&t.GPUUUID), textTo(&t.Job),
		&t.State, textTo(&t.Reason), &t.Scans, &b.nvml, &b.hasResult, realTo(&r.From), realTo(&r.To), &b.samples, &b.gaps, &b.lost,
		realTo(&r.Total.Energy), realTo(&r.Total.U), realTo(&r.Mean), realTo(&r.Peak), &b.inGroup,
	}
}

// to copies what was scanned.
func (b *brief) to(t *Task) {
	*t = b.task
	t.Launched, t.Group.Group = fromNanos(b.launched), GroupID(b.inGroup.Int64)
	if b.nvml.Valid {
		j := measure.Joule(b.nvml.Float64)
		t.NVML = &j
	}
	if b.hasResult {
		r := b.result
		r.Samples, r.Gaps, r.Lost = uint64(b.samples.Int64), uint64(b.gaps.Int64), uint64(b.lost.Int64)
		t.Result = &r
	}
}

// briefs reads about n tasks by briefSQL with a tail.
func briefs(ctx context.Context, q querier, n int, tail string, args ...any) ([]Task, error) {
	rows, err := q.QueryContext(ctx, briefSQL+tail, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := make([]Task, 0, n)
	var b brief
	columns := b.columns()
	for rows.Next() {
		if err := rows.Scan(columns...); err != nil {
			return nil, err
		}
		out = append(out, Task{})
		b.to(&out[len(out)-1])
	}
	return out, rows.Err()
}
