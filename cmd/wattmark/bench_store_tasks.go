package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"wattmark/store"
)

// The made-up lab: 1000 users, of whom the first has three of ten tasks and the others
// the rest; 1000 names of four kinds, gemm of 40 % of the tasks; two of three have tags.
const (
	madeUsers = 1000
	madeLab   = "user 1"
	madeOther = "user 77"
)

// madeAtOnce is how many tasks one statement makes.
const madeAtOnce = 50000

// madeTasksSQL makes tasks %[1]d to %[2]d, in words that SQLite and PostgreSQL both
// understand. a, b and c are as good as drawn by lot, and follow from the number.
const madeTasksSQL = `WITH RECURSIVE s(i) AS (SELECT cast(%[1]d AS bigint) UNION ALL SELECT i+1 FROM s WHERE i<%[2]d),
h AS (SELECT i, (i*2654435761 %% 4294967296)/65536 AS a, (i*2246822519 %% 4294967291)/65536 AS b, (i*3266489917 %% 4294967279)/65536 AS c FROM s)
INSERT INTO task(user_id, name, launched_ns, launched, state, reason, monitor, capture_id, gpu, gpu_uuid, driver, job,
	marker_code, marker_chip_s, marker_guard, marker_tag_bits, marker_tag,
	chunks, scans, has_result, from_s, to_s, samples, first_scan, gaps, lost, end_scan, energy_j, energy_u_j, mean_w, peak_w, nvml_j)
SELECT CASE WHEN a %% 10 < 3 THEN 1 ELSE 1 + b %% %[3]d END,
	CASE WHEN c %% 10 < 4 THEN 'gemm-' WHEN c %% 10 < 7 THEN 'conv-' WHEN c %% 10 < 9 THEN 'fft-' ELSE 'axpy-' END || (b/16 %% 250),
	1750000000000000000 + i*1000000000, '2025-06-15T15:06:40.000000Z', CASE WHEN a %% 100 = 7 THEN 3 ELSE 2 END, '', 'monitor:7551', 'capture-' || i,
	'NVIDIA H200', 'GPU-5bd0f4ae-0000-0000-0000-00000000000' || (a %% 8), '570.86.15', CASE WHEN c %% 4 = 0 THEN 'job-' || (b %% 5000) END,
	1, 0.002, 4, 8, 1,
	8, 2000000, 1, 0.5, 0.5 + (1 + a)/6553.6, 200000, 50000, 0, 0, 250000, (1 + b)/10.0, (1 + b)/2000.0, 250.0 + c/200.0, 600.5, (1 + b)/11.0
FROM h`

// madeTagsSQL gives two of three tasks two tags each.
const madeTagsSQL = `INSERT INTO task_tag(task_id, key, value)
	SELECT task_id, 'node', 'node-' || (task_id %% 97) FROM task WHERE task_id BETWEEN %[1]d AND %[2]d AND task_id %% 3 > 0
	UNION ALL SELECT task_id, 'project', CASE WHEN task_id %% 5 = 0 THEN 'training' ELSE 'survey' END FROM task WHERE task_id BETWEEN %[1]d AND %[2]d AND task_id %% 3 > 0`

// makeUpTasks fills an empty database with n tasks, over a connection of its own:
// nobody measures so many that the store would take them in bulk.
func makeUpTasks(ctx context.Context, address string, n int) (time.Duration, error) {
	driver, source := "sqlite", "file:"+address+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
	if store.OnServer(address) {
		driver, source = "pgx", address
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	begin := time.Now()
	users := fmt.Sprintf(`WITH RECURSIVE s(i) AS (SELECT cast(1 AS bigint) UNION ALL SELECT i+1 FROM s WHERE i<%d)
		INSERT INTO "user"(login) SELECT 'user ' || i FROM s`, madeUsers)
	if _, err := db.ExecContext(ctx, users); err != nil {
		return 0, fmt.Errorf("make users: %w", err)
	}
	for at := 1; at <= n; at += madeAtOnce {
		last := min(at+madeAtOnce-1, n)
		for _, q := range []string{fmt.Sprintf(madeTasksSQL, at, last, madeUsers), fmt.Sprintf(madeTagsSQL, at, last)} {
			if _, err := db.ExecContext(ctx, q); err != nil {
				return 0, fmt.Errorf("make tasks from %d on: %w", at, err)
			}
		}
	}
	// A server sweeps and looks at its tables by itself, after a minute; a file is never looked at.
	if store.OnServer(address) {
		_, err = db.ExecContext(ctx, "VACUUM ANALYZE")
	}
	return time.Since(begin), err
}
