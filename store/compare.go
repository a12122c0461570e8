package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

// verify counts both sides' rows and reads every chunk back. Rows are counted in each table; samples, which
// are most of the bytes, are compared by their checksums, and each chunk is decoded from the copy, so that
// a bad write is met now and not years later.
func (c *copier) verify(ctx context.Context) error {
	from, to := c.from.reading(ctx), c.to.reading(ctx)
	for _, t := range c.tables {
		// Pages of the pyramid are not copied: the target folds its own.
		if t.derived() {
			continue
		}
		q := `SELECT count(*) FROM ` + quotedName(t.name) + ` WHERE task_id=?`
		here, there := one[int64](from, q, c.id), one[int64](to, q, c.new)
		if here != there && from.err == nil && to.err == nil {
			return fmt.Errorf("%w: table %s has %d rows of the task, the copy %d", ErrCorrupt, t.name, here, there)
		}
		c.done.Rows += uint64(here)
	}
	want := values[uint32](from, `SELECT crc FROM chunk WHERE task_id=? ORDER BY chunk_no`, c.id)
	if err := cmp.Or(from.err, to.err); err != nil {
		return err
	}
	return c.checksums(ctx, want)
}

// checksums reads every chunk back; want are the source's checksums.
func (c *copier) checksums(ctx context.Context, want []uint32) error {
	for x, err := range c.to.chunksInto(ctx, TaskID(c.new), 0, &chunk.Chunk{}) {
		if err != nil {
			return err
		}
		if i := c.done.Chunks; i >= uint64(len(want)) || want[i] != x.CRC {
			return fmt.Errorf("%w: chunk %d is not the source's", ErrCorrupt, x.No)
		}
		c.done.Chunks++
		c.done.Scans += uint64(x.Scans)
	}
	if c.done.Chunks != uint64(len(want)) {
		return fmt.Errorf("%w: %d of %d chunks can be read back", ErrCorrupt, c.done.Chunks, len(want))
	}
	return nil
}

// ownColumns of a task are those that each database has in its own way: its numbers,
// when it came there, how its samples are packed, and the columns that its triggers fill.
var ownColumns = []string{"task_id", "user_id", "calibration_id", "stored_ns", "chunks", "scans", "cold", "tags"}

// kinds are the kinds of differences by table; tables that are not named hold the measurement.
var kinds = map[string]string{
	"chunk": "samples", "task_tag": "tags", "task_note": "notes", "provenance": "provenance",
	"result": "results", "result_rail": "results", "result_budget": "results", "rail_result": "results",
	"budget": "results", "kernel_energy": "results", "method_result": "results",
}

// compare lists the kinds of differences of a known task at the target: "tags", "notes", "pin",
// "state", "results", "provenance", "measurement" and "samples".
func (c *copier) compare(ctx context.Context) error {
	from, to := c.from.reading(ctx), c.to.reading(ctx)
	there := copiedOne(to, "task", "task_id=?", c.new)
	note := func(kind string) { c.done.Differs = lists.AddNew(c.done.Differs, kind) }
	// The row of task; keys of the map are columns, which both sides have, since copiedTables compared
	// their schemas.
	for name, v := range c.task {
		if slices.Contains(ownColumns, name) || written(v) == written(there[name]) {
			continue
		}
		switch name {
		case "pinned":
			note("pin")
		case "state", "reason":
			note("state")
		default:
			note("results") // whatever else of a task changes, changes with its result
		}
	}
	for _, t := range c.tables {
		// chunk alone stands for the samples: its crc covers the columns, and damaged rows are local.
		if (t.samples() || t.derived()) && t.name != "chunk" || t.name == "damage" {
			continue
		}
		if digestOf(from, t, c.id) == digestOf(to, t, c.new) {
			continue
		}
		note(cmp.Or(kinds[t.name], "measurement"))
	}
	slices.Sort(c.done.Differs)
	return cmp.Or(from.err, to.err)
}

// digestOf returns the number of a table's rows of a task, and the sum of their hashes modulo 2⁶⁴: the order
// of the rows, which differs between databases, does not matter. Calibrations count by their digests, not by
// their numbers, which differ too.
func digestOf(s *session, t copiedTable, id TaskID) (d struct{ rows, sum uint64 }) {
	// Indexes of the two columns that differ between databases; -1 where the table lacks one.
	task, cal := slices.Index(t.columns, "task_id"), slices.Index(t.columns, "calibration_id")
	// Digests by number. They are read first: on one connection no second query may run while rows are open.
	known := map[any]any{nil: nil}
	if cal >= 0 {
		for _, n := range values[int64](s, `SELECT DISTINCT calibration_id FROM `+quotedName(t.name)+` WHERE task_id=?
			AND calibration_id IS NOT NULL`, id) {
			known[n] = copiedOne(s, "calibration", "calibration_id=?", n)["digest"]
		}
	}
	for v := range copied(s, t, "task_id=?", id) {
		h := fnv.New64a()
		for i, x := range v {
			switch i {
			case task:
				continue
			case cal:
				x = known[x]
			}
			// The NUL keeps neighbouring values apart.
			h.Write(append([]byte(written(x)), 0))
		}
		d.rows++
		d.sum += h.Sum64()
	}
	return d
}

// written is a value as every database has it: a whole number is one whether it is
// kept as such or not, and texts are as they are shown.
func written(v any) string {
	switch x := v.(type) {
	case nil:
		// No printable text is U+0001, so NULL and an empty text differ.
		return "\x01"
	case []byte:
		return string(x)
	case string:
		return measure.Printable(x) // a server does not take every byte that a file does
	case bool:
		// A server has booleans, a file 0 and 1.
		return map[bool]string{false: "0", true: "1"}[x]
	case float64:
		// Below 2⁵³ every whole float64 is exact as an integer.
		if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
			return strconv.FormatInt(int64(x), 10)
		}
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

// update makes a known task equal to the source's, but for its samples, which never change.
func (c *copier) update(ctx context.Context) error {
	// Children are deleted before their parents, and inserted behind them: tables are in the order of
	// copiedTables. Foreign keys hold at each step.
	return c.to.write(ctx, "update the copy", func(s *session) {
		for _, t := range slices.Backward(c.tables) {
			if t.renewed() {
				s.clear(c.new, t.name)
			}
		}
		for _, t := range c.tables {
			if t.renewed() {
				c.rows(s, t, "task_id=?", c.id)
			}
		}
		// The calibration gets its number in the target, and is copied there where it is new.
		var set []string
		var args []any
		for name, v := range c.task {
			if name == "calibration_id" {
				from := c.from.reading(ctx)
				v = c.calibration(s, from, v)
				s.fail(from.err)
			} else if slices.Contains(ownColumns, name) {
				continue
			}
			set, args = append(set, quotedName(name)+`=?`), append(args, v)
		}
		s.must(`UPDATE task SET `+strings.Join(set, ", ")+` WHERE task_id=?`, append(args, c.new)...)
	})
}

// renewed reports whether an update replaces the table: all but samples and rows that were set
// aside as damaged. The pyramid follows the result in use.
func (t copiedTable) renewed() bool {
	return t.name != "damage" && !t.samples()
}

// copiedRow is a row by columns.
type copiedRow map[string]any

// copiedTable is a table whose rows belong to tasks, with the columns to copy.
type copiedTable struct {
	name    string
	columns []string
}

// samples reports whether the table holds samples, derived whether it holds their pyramid.
func (t copiedTable) samples() bool { return strings.HasPrefix(t.name, "chunk") }

// derived reports whether the table holds pages of the pyramid, which can be made anew.
func (t copiedTable) derived() bool { return strings.HasPrefix(t.name, "pyramid") }

// copiedTables are the tables of tasks: those with a column task_id, but for members of groups
// and of analyses. With other, a table that it lacks is an error.
func copiedTables(ctx context.Context, d, other *DB) (out []copiedTable, err error) {
	s := d.reading(ctx)
	names := d.tableNames(s)
	o, theirs := s, names
	if other != nil {
		o = other.reading(ctx)
		theirs = other.tableNames(o)
	}
	done := []string{"task", "group_member", "analysis_task"}
	// Parents first, for their foreign keys; the rest is in the order of names. A table that a later
	// version adds is copied without a change here.
	for _, name := range append([]string{"result", "chunk", "marker", "tiny"}, names...) {
		if slices.Contains(done, name) {
			continue
		}
		done = append(done, name)
		cols := s.columnsOf(name)
		if !slices.Contains(cols, "task_id") {
			continue
		}
		if !slices.Contains(theirs, name) {
			s.fail(fmt.Errorf("the other database has no table %s: update the program that made it", name))
		}
		has := o.columnsOf(name)
		if i := slices.IndexFunc(cols, func(c string) bool { return !slices.Contains(has, c) }); i >= 0 {
			s.fail(fmt.Errorf("the other database has no column %s in table %s: update the program that made it",
				cols[i], name))
		}
		// A number that only counts within its database, such as note_id of task_note: the target gives
		// its own.
		cols = slices.DeleteFunc(cols, func(c string) bool { return c == name+"_id" })
		out = append(out, copiedTable{name, cols})
	}
	return out, cmp.Or(s.err, o.err)
}

// tableNames lists the tables.
func (d *DB) tableNames(s *session) []string {
	// Virtual tables (the full-text index) are filled by triggers, and are no tables to copy.
	q := `SELECT name FROM sqlite_master WHERE type='table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name`
	if d.server != nil {
		q = `SELECT table_name::text FROM information_schema.tables WHERE table_schema=current_schema()
			AND table_type='BASE TABLE' ORDER BY 1`
	}
	return values[string](s, q)
}

// columnsOf lists a table's columns in their order.
func (s *session) columnsOf(table string) []string {
	if s.err != nil {
		return nil
	}
	// No row is read: the statement is prepared for its columns alone, in every kind of database.
	rows, err := s.on.QueryContext(s.ctx, `SELECT * FROM `+quotedName(table)+` WHERE 1=0`)
	if err != nil {
		s.err = err
		return nil
	}
	defer rows.Close()
	cols, err := rows.Columns()
	s.err = err
	return cols
}

// upsert is an insert of one row that replaces the row of the same key. key and rest are the
// table's columns, separated by commas.
func upsert(table, key, rest string) string {
	n := strings.Count(key, ",") + strings.Count(rest, ",") + 1
	return "INSERT INTO " + table + "(" + key + "," + rest + ") VALUES(?" + strings.Repeat(",?", n) + ")" +
		replacing(key, rest)
}

// replacing is the end of such an insert.
func replacing(key, rest string) string {
	var set []string
	for c := range strings.SplitSeq(rest, ",") {
		set = append(set, c+"=excluded."+c)
	}
	return " ON CONFLICT(" + key + ") DO UPDATE SET " + strings.Join(set, ",")
}

// insertText is an insert of one row.
func insertText(table string, cols []string) string {
	places := `?` + strings.Repeat(",?", len(cols)-1)
	return `INSERT INTO ` + quotedName(table) + `(` + quoted(cols) + `) VALUES(` + places + `)`
}

// insert puts a row into a table and returns the number that it gets.
func (r copiedRow) insert(s *session, table, key string) int64 {
	cols := slices.Sorted(maps.Keys(r))
	vals := lists.Map(cols, func(c string) any { return r[c] })
	return one[int64](s, insertText(table, cols)+` RETURNING `+key, vals...)
}

// rowValues yields the values of the rows of a query, each row's until the next. They are of the driver's own
// types: int64, float64, string, []byte, bool, nil.
func (s *session) rowValues(query string, args ...any) iter.Seq[[]any] {
	return func(yield func([]any) bool) {
		var vals, ptrs []any
		for rows := range s.rows(query, args...) {
			if vals == nil {
				cols, err := rows.Columns()
				s.fail(err)
				vals, ptrs = make([]any, len(cols)), make([]any, len(cols))
				for i := range vals {
					ptrs[i] = &vals[i]
				}
			}
			if s.fail(rows.Scan(ptrs...)); s.err != nil || !yield(vals) {
				return
			}
		}
	}
}

// copied yields the rows of a table, as rowValues does.
func copied(s *session, t copiedTable, where string, args ...any) iter.Seq[[]any] {
	return s.rowValues(`SELECT `+quoted(t.columns)+` FROM `+quotedName(t.name)+` WHERE `+where, args...)
}

// copiedOne reads one row; ErrNotFound where there is none.
func copiedOne(s *session, table, where string, arg any) (out copiedRow) {
	cols := s.columnsOf(table)
	for v := range copied(s, copiedTable{table, cols}, where, arg) {
		out = copiedRow{}
		for i, c := range cols {
			out[c] = v[i]
		}
	}
	if out == nil {
		s.fail(ErrNotFound)
	}
	return out
}

// A seal is a version, and for each part of a task the first bytes of a SHA-256. It reveals a
// number that was changed after the task had ended, where no redundancy of the stored data does.
// It covers columns by their names, so that it is equal in every kind of database.
const (
	sealVersion = 1
	sealBytes   = 8
)

// sealed are the parts in their order. A change of one is another version.
// The values are digested as text (see written), so that a file and a server give the same seal.
// task_id is no part of it: a copy keeps its seal under another number.
var sealed = []struct{ table, query string }{
	{"task", `SELECT t.launched_ns, t.marker_code, t.marker_chip_s, t.marker_guard, t.marker_tag_bits, t.marker_tag,
		t.instrument_kind, t.instrument_model, t.instrument_serial, t.instrument_firmware, t.started_ns,
		t.clock_origin_s, t.clock_a_s, t.clock_b, t.clock_var_a, t.clock_var_b, t.clock_cov_ab, t.clock_rms_s,
		t.clock_used, t.clock_rejected, t.has_result, t.from_s, t.to_s, t.samples, t.first_scan, t.gaps, t.lost,
		t.end_scan, t.energy_j, t.energy_u_j, t.mean_w, t.peak_w, t.nvml_j, t.nvml_method, t.result, k.digest
		FROM task t LEFT JOIN calibration k ON k.calibration_id=t.calibration_id WHERE t.task_id=?`},
	{"marker", `SELECT ordinal, kind, t_s, u_s, begin_s, end_s, correlation, pslr_db, step_w, tau_s, tag, tag_ok,
		fallback FROM marker WHERE task_id=? ORDER BY ordinal`},
	{"marker_edge", `SELECT ordinal, edge, chip, t_s, u_s FROM marker_edge WHERE task_id=? ORDER BY ordinal, edge`},
	{"rail_result", `SELECT ordinal, name, role, energy_j, energy_u_j, mean_w, peak_w FROM rail_result WHERE task_id=?
		ORDER BY ordinal`},
	{"budget", `SELECT rail, ordinal, source, u_j, systematic FROM budget WHERE task_id=? ORDER BY rail, ordinal`},
	{"result", `SELECT r.number, k.digest, r.from_s, r.to_s, r.samples, r.first_scan, r.gaps, r.lost, r.energy_j,
		r.energy_u_j, r.mean_w, r.peak_w FROM result r LEFT JOIN calibration k ON k.calibration_id=r.calibration_id
		WHERE r.task_id=? ORDER BY r.number`},
	{"result_rail", `SELECT number, ordinal, name, role, energy_j, energy_u_j, mean_w, peak_w FROM result_rail
		WHERE task_id=? ORDER BY number, ordinal`},
	{"result_budget", `SELECT number, rail, ordinal, source, u_j, systematic FROM result_budget WHERE task_id=?
		ORDER BY number, rail, ordinal`},
}

// sealOf makes the seal of a task as it is. Eight bytes a part miss an accidental change with a probability
// of 2⁻⁶⁴. The seal is no protection against intent, which would make it anew.
func sealOf(s *session, id TaskID) []byte {
	out := []byte{sealVersion}
	for _, part := range sealed {
		h := sha256.New()
		// The NUL parts neighbouring values: "1","23" and "12","3" differ. Rows need no mark of their
		// own, as each has the same number of values.
		for v := range s.rowValues(part.query, id) {
			for _, x := range v {
				h.Write(append([]byte(written(x)), 0))
			}
		}
		out = append(out, h.Sum(nil)[:sealBytes]...)
	}
	return out
}

// putSeal seals a task as it is now, in the transaction that makes it so.
func putSeal(s *session, id TaskID) {
	s.must(`UPDATE task SET seal=? WHERE task_id=?`, sealOf(s, id), id)
}

// unlike names the parts of a task that differ from its seal; none where the seal is missing or
// of another version.
func unlike(seal, now []byte) (tables []string) {
	// A version that covers other columns is not comparable: such a task counts as unsealed.
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
