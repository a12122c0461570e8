package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ImportOptions say which tasks are copied, and how.
type ImportOptions struct {
	// Tasks are those to copy; nil for all, with all analyses and campaigns.
	Tasks []TaskID
	// KeepIDs gives the copies the numbers that the tasks have, where they are free.
	KeepIDs bool
	// Salvage goes on behind what cannot be read, and copies also tasks that still run.
	Salvage bool
	// NoSamples leaves the samples and their pyramid out, for who carries those by
	// other means: TakeTask puts both together again.
	NoSamples bool
	// Progress is told of each task that is done; nil for silence.
	Progress func(done, of int)
}

// ImportedTask is one task of an import.
type ImportedTask struct {
	From, To TaskID
	// Known: it was here already. Resumed: an import that was interrupted was ended.
	Known, Resumed bool
	Chunks         uint64 // that this import copied
}

// Imported is what an import did.
type Imported struct {
	Tasks     []ImportedTask
	Running   []TaskID // that still run there, and were left out
	Analyses  int
	Campaigns int // of instructions
	// Lost is what could not be read, of a salvage; Cut are the tasks here that lost
	// samples by it, and whose results are to be computed anew.
	Lost []Finding
	Cut  []TaskID
}

// importing is the reason of a task whose samples are still being copied.
const importing = "its import from another database is not complete: import again"

// Import copies tasks of another database with all that belongs to them: users,
// calibrations, results, kernels, launches, groups, labels, and the analyses that
// rest on them. A task is known by its monitor, capture, launch, GPU, user and name:
// one that is here already is not copied again, so that an import can be repeated,
// and goes on where it was interrupted.
func (d *DB) Import(ctx context.Context, from *DB, opt ImportOptions) (*Imported, error) {
	m := &merger{d: d, from: from, opt: opt, ids: map[int64]int64{}}
	op := "import from " + from.path
	var err error
	if m.tables, err = ownedTables(ctx, d.writer); err != nil {
		return nil, wrap(op, err)
	}
	ids := opt.Tasks
	if ids == nil {
		if ids, err = m.taskIDs(ctx); err != nil {
			return nil, wrap(op, err)
		}
	}
	for i, id := range ids {
		if err := m.task(ctx, id); err != nil {
			if err = m.forgive(err, fmt.Sprintf("task %d", id), id, NoChunk); err != nil {
				return &m.out, wrap(fmt.Sprintf("%s: task %d", op, id), err)
			}
		}
		if opt.Progress != nil {
			opt.Progress(i+1, len(ids))
		}
	}
	if err := errors.Join(m.analyses(ctx), m.campaigns(ctx)); err != nil {
		return &m.out, wrap(op, err)
	}
	return &m.out, nil
}

// merger is one Import.
type merger struct {
	d, from *DB
	opt     ImportOptions
	tables  []owned
	ids     map[int64]int64 // tasks there and here
	gone    int             // chunks of the task under way that could not be read
	out     Imported
}

// forgive notes what could not be read where the import is a salvage, and returns
// all other errors.
func (m *merger) forgive(err error, what string, id TaskID, no int64) error {
	if err == nil || !m.opt.Salvage || !isCorrupt(err) {
		return err
	}
	m.out.Lost = append(m.out.Lost, Finding{
		Kind: BadPage, Task: id, Chunk: no, What: fmt.Sprintf("%s could not be read: %v", what, err),
		Remedy: "it is not in the new file; look for it in a backup",
	})
	return nil
}

// taskIDs lists the tasks there. Of a broken file it takes what the table says from
// both ends, and what its indexes say.
func (m *merger) taskIDs(ctx context.Context) ([]TaskID, error) {
	if !m.opt.Salvage {
		return m.from.TaskIDs(ctx)
	}
	seen := map[TaskID]bool{}
	for _, q := range []string{"task NOT INDEXED ORDER BY task_id", "task NOT INDEXED ORDER BY task_id DESC", "task INDEXED BY task_user ORDER BY user_id", "task INDEXED BY task_name ORDER BY name"} {
		rows, err := m.from.reader.QueryContext(ctx, "SELECT task_id FROM "+q) // #nosec G202 -- texts of this list
		if err == nil {
			for rows.Next() {
				var id TaskID
				if rows.Scan(&id) == nil {
					seen[id] = true
				}
			}
			err = errors.Join(rows.Err(), rows.Close())
		}
		if err == nil {
			break
		}
		if err := m.forgive(err, "a part of the table of tasks", 0, NoChunk); err != nil {
			return nil, err
		}
	}
	var out []TaskID
	for id := range seen {
		out = append(out, id)
	}
	slices.Sort(out)
	return out, nil
}

// record is a row by columns.
type record map[string]any

// tableRows reads rows of a table there.
func tableRows(ctx context.Context, q querier, table string, columns []string, where string, args ...any) ([][]any, error) {
	return collect(ctx, q, func(rows *sql.Rows, r *[]any) error {
		*r = make([]any, len(columns))
		ptrs := make([]any, len(columns))
		for i := range ptrs {
			ptrs[i] = &(*r)[i]
		}
		return rows.Scan(ptrs...)
	}, `SELECT `+quoted(columns)+` FROM main.`+quotedName(table)+` WHERE `+where, args...)
}

func readRecord(ctx context.Context, q querier, table, where string, args ...any) (record, error) {
	cols, err := tableColumns(ctx, q, table)
	if err != nil {
		return nil, err
	}
	rows, err := tableRows(ctx, q, table, cols, where, args...)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, ErrNotFound
	}
	r := record{}
	for i, c := range cols {
		r[c] = rows[0][i]
	}
	return r, nil
}

// insert puts a record into a table, and returns its number, which stands in the
// column key.
func (r record) insert(ctx context.Context, tx *sql.Tx, table, key string) (id int64, err error) {
	var cols []string
	var vals []any
	for c, v := range r {
		cols, vals = append(cols, c), append(vals, v)
	}
	err = tx.QueryRowContext(ctx, `INSERT INTO `+quotedName(table)+`(`+quoted(cols)+`) VALUES(?`+strings.Repeat(",?", len(cols)-1)+`) RETURNING `+key, vals...).Scan(&id)
	if err != nil {
		err = fmt.Errorf("table %s: %w", table, err)
	}
	return id, err
}

// known returns the task here that a task there is, 0 where there is none, and
// whether its import was interrupted.
func known(ctx context.Context, q *sql.DB, t record, login string) (id int64, partial bool, err error) {
	var reason string
	err = q.QueryRowContext(ctx, `SELECT t.task_id, t.reason FROM task t JOIN user u USING(user_id) WHERE t.capture_id=? AND t.launched_ns IS ?
		AND t.monitor=? AND t.gpu_uuid=? AND u.login=? AND t.name=? AND (`+published+` OR t.reason IN (?,?)) ORDER BY t.task_id LIMIT 1`,
		t["capture_id"], t["launched_ns"], t["monitor"], t["gpu_uuid"], login, t["name"], importing, unfinishedCopy).Scan(&id, &reason)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return id, resumable(reason), err
}
