// Package sqlitefile writes tasks into an SQLite file of their own, as the plain
// table of Cheng et al. (Table 1).
//
//	data      a row a scan: task, user, power, three currents and voltages by role, time
//	unit      unit and source of each column
//	wattmark  the metadata of each task as JSON
//
// The paper's table has room for one rail a role; more of them are summed, see Add.
package sqlitefile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/internal/data"
)

// layout is the table of the paper, and beside it the units and metadata of its numbers. It has no row
// numbers of its own: rows lie in the order of their key.
const layout = `CREATE TABLE data(taskID INTEGER, taskName TEXT, user TEXT, power REAL,
	current1 REAL, current2 REAL, current3 REAL, voltage1 REAL, voltage2 REAL, voltage3 REAL,
	taskTime TEXT, seqNum INTEGER, PRIMARY KEY(taskID, seqNum)) WITHOUT ROWID;
CREATE TABLE unit("column" TEXT PRIMARY KEY, unit TEXT, about TEXT);
CREATE TABLE wattmark(taskID INTEGER PRIMARY KEY, meta TEXT);
INSERT INTO unit VALUES('power','W','all rails'),
 ('current1','A','rails of role psu'),('voltage1','V','rails of role psu'),
 ('current2','A','rails of role pcie_3v3'),('voltage2','V','rails of role pcie_3v3'),
 ('current3','A','rails of role pcie_12v'),('voltage3','V','rails of role pcie_12v'),
 ('taskTime','','launch of the task, ISO 8601, UTC'),
 ('seqNum','1',
  'scan, counted from the first in this file; it jumps over scans that were lost; '||
  'meta: calibration.ticks_per_scan and tick_hz')`

const (
	columns = 12
	tuple   = 64 // rows of one INSERT, which takes less than half the time of as many of one row
)

// File is an SQLite file that is being written. One goroutine uses it.
type File struct{ db *sql.DB }

// Create makes the file, which must not exist or be empty. It is not safe against a crash before Close:
// write beside the place where it shall lie. Without a journal and without syncs a file fills several times
// faster; a crash leaves rubbish under a name that is not the final one.
func Create(ctx context.Context, path string) (*File, error) {
	pragmas := url.Values{
		"_pragma": {"journal_mode(OFF)", "synchronous(OFF)", "page_size(16384)", "locking_mode(EXCLUSIVE)"},
	}
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: pragmas.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	// EXCLUSIVE locking and one connection: no lock is taken twice.
	db.SetMaxOpenConns(1)
	if _, err = db.ExecContext(ctx, layout); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: %s: %w", path, err), db.Close())
	}
	return &File{db}, nil
}

// Close ends the file.
func (f *File) Close() error { return f.db.Close() }

// Add adds a task: a derived table of all its rails. Several rails of a role are
// one: the current is the sum of theirs, the voltage ΣP/ΣI, so that current ×
// voltage is their power; both are NULL where the role has no rail with a current.
func (f *File) Add(ctx context.Context, t *exchange.Table) error {
	if t.Meta.Content != "derived" {
		return errors.New("sqlite: raw counts do not fit the paper's table: " +
			"leave --raw out, or choose parquet, arrow or csv")
	}
	places, err := roles(t)
	if err != nil {
		return err
	}
	meta, err := t.Meta.JSON()
	if err == nil {
		_, err = f.db.ExecContext(ctx, `INSERT INTO wattmark VALUES(?,?)`, t.Meta.Task.ID, string(meta))
	}
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	r := rows{task: &t.Meta.Task, time: t.Meta.Task.Launched.Format("2006-01-02T15:04:05.000000Z"), places: places}
	return f.fill(ctx, &r, t.Batches)
}

// fill writes a task's batches in one transaction. After an error the file is of no use, and deleted by the caller.
func (f *File) fill(ctx context.Context, r *rows, batches iter.Seq2[*exchange.Batch, error]) error {
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	defer tx.Rollback() // after Commit there is nothing to roll back
	on, many := data.Preparing(tx), insert(tuple)
	var args []any
	for b, err := range batches {
		if err != nil {
			return err
		}
		for i := 0; i < b.Rows; i += tuple {
			args = args[:0]
			for k := i; k < min(i+tuple, b.Rows); k++ {
				args = r.append(args, b, k)
			}
			text := many
			if n := len(args) / columns; n < tuple {
				text = insert(n)
			}
			if _, err := on.ExecContext(ctx, text, args...); err != nil {
				return fmt.Errorf("sqlite: scan %d: %w", b.Columns[0].I64[i], err)
			}
		}
	}
	return tx.Commit()
}

// insert returns the statement that inserts so many rows.
func insert(rows int) string {
	row := "(" + strings.Repeat("?,", columns-1) + "?)"
	return "INSERT INTO data VALUES" + strings.Repeat(row+",", rows-1) + row
}

// place is the columns of a rail's values; −1 for a current and voltage that it does not have.
type place struct {
	role    measure.Role
	i, v, p int
}

// roles finds the rails' columns in a derived table. The order of columns is that of exchange's derived
// tables: per rail current, voltage, power, or power alone.
func roles(t *exchange.Table) (out []place, err error) {
	at := 3 // scan, t_s, power_w
	for _, r := range t.Meta.Setup.Rails {
		p := place{i: -1, v: -1}
		// Other roles have no columns in the table.
		for _, role := range []measure.Role{measure.RolePSU, measure.RolePCIe3V3, measure.RolePCIe12V} {
			if role.String() == r.Role {
				p.role = role
			}
		}
		if r.Wiring != measure.WiringPower.String() {
			p.i, p.v = at, at+1
			at += 2
		}
		p.p = at
		at++
		out = append(out, p)
	}
	// A choice of rails leaves columns out, and the places would be wrong.
	if at > len(t.Columns) {
		return nil, errors.New("sqlite: the paper's table wants all rails: leave --rail out")
	}
	return out, nil
}

// rows turns batches into the table's values.
type rows struct {
	task   *exchange.TaskMeta
	time   string
	places []place
	first  int64
	some   bool
}

// append appends the values of row i, in the order of the table's columns.
func (r *rows) append(args []any, b *exchange.Batch, i int) []any {
	// seqNum counts from the task's first row in the file, not from the begin of its capture.
	if !r.some {
		r.first, r.some = b.Columns[0].I64[i], true
	}
	var current, voltage [3]any
	for role := range current {
		current[role], voltage[role] = r.role(b, i, measure.Role(role+1))
	}
	return append(args, r.task.ID, r.task.Name, r.task.User, b.Columns[2].F64[i], current[0], current[1], current[2],
		voltage[0], voltage[1], voltage[2], r.time, b.Columns[0].I64[i]-r.first)
}

// role returns the current and voltage of a role at one row; nil is NULL.
func (r *rows) role(b *exchange.Batch, row int, role measure.Role) (current, voltage any) {
	var n int
	var i, v, p float64
	for _, x := range r.places {
		if x.role != role {
			continue
		}
		// A rail of the role without a current: the sum would not be the role's.
		if x.i < 0 {
			return nil, nil
		}
		n++
		i, p, v = i+b.Columns[x.i].F64[row], p+b.Columns[x.p].F64[row], b.Columns[x.v].F64[row]
	}
	switch {
	case n == 0:
		return nil, nil
	case n == 1:
		return i, v
	// Zero current: P/I is not defined, NULL.
	case i == 0:
		return i, nil
	}
	return i, p / i
}
