package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
)

// A seal is a version, and of each part of a task the first bytes of a SHA-256. It tells
// that a number was changed after the task had ended, where nothing else that is stored
// tells it. It is of columns by their names, so that it is the same in every database.
const (
	sealVersion = 1
	sealBytes   = 8
)

// sealed are the parts in their order. A change of one is another version.
var sealed = []struct{ table, query string }{
	{"task", `SELECT t.launched_ns, t.marker_code, t.marker_chip_s, t.marker_guard, t.marker_tag_bits, t.marker_tag,
		t.instrument_kind, t.instrument_model, t.instrument_serial, t.instrument_firmware, t.started_ns,
		t.clock_origin_s, t.clock_a_s, t.clock_b, t.clock_var_a, t.clock_var_b, t.clock_cov_ab, t.clock_rms_s, t.clock_used, t.clock_rejected,
		t.has_result, t.from_s, t.to_s, t.samples, t.first_scan, t.gaps, t.lost, t.end_scan, t.energy_j, t.energy_u_j, t.mean_w, t.peak_w,
		t.nvml_j, t.nvml_method, t.result, k.digest
		FROM task t LEFT JOIN calibration k ON k.calibration_id=t.calibration_id WHERE t.task_id=?`},
	{"marker", `SELECT ordinal, kind, t_s, u_s, begin_s, end_s, correlation, pslr_db, step_w, tau_s, tag, tag_ok, fallback
		FROM marker WHERE task_id=? ORDER BY ordinal`},
	{"marker_edge", `SELECT ordinal, edge, chip, t_s, u_s FROM marker_edge WHERE task_id=? ORDER BY ordinal, edge`},
	{"rail_result", `SELECT ordinal, name, role, energy_j, energy_u_j, mean_w, peak_w FROM rail_result WHERE task_id=? ORDER BY ordinal`},
	{"budget", `SELECT rail, ordinal, source, u_j, systematic FROM budget WHERE task_id=? ORDER BY rail, ordinal`},
	{"result", `SELECT r.number, k.digest, r.from_s, r.to_s, r.samples, r.first_scan, r.gaps, r.lost, r.energy_j, r.energy_u_j, r.mean_w, r.peak_w
		FROM result r LEFT JOIN calibration k ON k.calibration_id=r.calibration_id WHERE r.task_id=? ORDER BY r.number`},
	{"result_rail", `SELECT number, ordinal, name, role, energy_j, energy_u_j, mean_w, peak_w FROM result_rail WHERE task_id=? ORDER BY number, ordinal`},
	{"result_budget", `SELECT number, rail, ordinal, source, u_j, systematic FROM result_budget WHERE task_id=? ORDER BY number, rail, ordinal`},
}

// sealOf makes the seal of a task as it is.
func sealOf(ctx context.Context, q querier, id TaskID) ([]byte, error) {
	out := []byte{sealVersion}
	for _, part := range sealed {
		sum, err := sumOf(ctx, q, part.query, id)
		if err != nil {
			return nil, err
		}
		out = append(out, sum[:sealBytes]...)
	}
	return out, nil
}

// sumOf digests the rows of a query, a NUL behind each value.
func sumOf(ctx context.Context, q querier, query string, id TaskID) ([]byte, error) {
	rows, err := q.QueryContext(ctx, query, int64(id))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	cols, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	vals, ptrs := make([]any, len(cols)), make([]any, len(cols))
	for i := range vals {
		ptrs[i] = &vals[i]
	}
	for rows.Next() {
		if err := rows.Scan(ptrs...); err != nil {
			return nil, err
		}
		for _, v := range vals {
			h.Write(append([]byte(written(v)), 0))
		}
	}
	return h.Sum(nil), rows.Err()
}

// putSeal seals a task as it is now, in the transaction that makes it so.
func putSeal(ctx context.Context, tx *sql.Tx, id TaskID) error {
	seal, err := sealOf(ctx, tx, id)
	if err != nil {
		return err
	}
	return mustExist(tx.ExecContext(ctx, `UPDATE task SET seal=? WHERE task_id=?`, seal, int64(id)))
}

// unlike names the parts of a task that are not what its seal is of; none where it has
// no seal, or one of another version.
func unlike(seal, now []byte) (tables []string) {
	if len(seal) != len(now) || seal[0] != sealVersion {
		return nil
	}
	for i, part := range sealed {
		at := 1 + i*sealBytes
		if !bytes.Equal(seal[at:at+sealBytes], now[at:at+sealBytes]) {
			tables = append(tables, part.table)
		}
	}
	return tables
}
