package store

import (
	"context"
	"database/sql"

	"wattmark/measure"
)

// MethodError is what one software method said of one task, beside the meter.
type MethodError struct {
	Task                 TaskID
	GPU, GPUUUID, Driver string
	Method               string
	// Said is the method's mean power over the work, Truth the meter's over the window.
	Said, Truth measure.Watt
	// Partial: the meter misses a rail of the card.
	Partial bool
}

// MethodErrors returns what software methods said of the newest tasks that were
// measured with a meter other than the GPU's own sensor, newest task first, and of
// how many tasks; of at most limit tasks. more tells of older ones.
func (d *DB) MethodErrors(ctx context.Context, limit int) (list []MethodError, tasks int, more bool, err error) {
	list, err = collect(ctx, d.reader, func(rows *sql.Rows, x *MethodError) error {
		return rows.Scan(&x.Task, textTo(&x.GPU), textTo(&x.GPUUUID), textTo(&x.Driver), textTo(&x.Method), realTo(&x.Said), realTo(&x.Truth), &x.Partial)
	}, `SELECT t.task_id, t.gpu, t.gpu_uuid, t.driver, m.method, m.mean_w, t.mean_w, coalesce(k.missing,'[]') NOT IN ('[]','null','')
		FROM (SELECT task_id, gpu, gpu_uuid, driver, mean_w, calibration_id FROM task
			WHERE state<>6 AND has_result=1 AND mean_w>0 AND instrument_kind<>'nvml' AND EXISTS (SELECT 1 FROM method_result x WHERE x.task_id=task.task_id AND x.mean_w IS NOT NULL)
			ORDER BY task_id DESC LIMIT ?) t
		JOIN method_result m ON m.task_id=t.task_id LEFT JOIN calibration k ON k.calibration_id=t.calibration_id
		WHERE m.mean_w IS NOT NULL ORDER BY t.task_id DESC, m.ordinal, m.method`, limit+1)
	if err != nil {
		return nil, 0, false, wrap("list what methods said", err)
	}
	var last TaskID
	for i, x := range list {
		if x.Task == last {
			continue
		}
		if last = x.Task; tasks == limit {
			return list[:i], tasks, true, nil
		}
		tasks++
	}
	return list, tasks, false, nil
}
