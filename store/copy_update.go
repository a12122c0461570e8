package store

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"

	"wattmark/measure"
)

// ownColumns of a task are those that each database has in its own way: its numbers,
// when it came there, how its samples are packed, and what its triggers carry.
var ownColumns = []string{"task_id", "user_id", "calibration_id", "stored_ns", "chunks", "scans", "cold", "tags"}

// kinds are what tables hold, in words; those that are not named hold what a
// measurement brings.
var kinds = map[string]string{
	"task_tag": "tags", "task_note": "notes", "provenance": "provenance", "result": "results", "result_rail": "results", "result_budget": "results",
	"rail_result": "results", "budget": "results", "kernel_energy": "results", "method_result": "results",
}

func kindOf(table string) string {
	if k, named := kinds[table]; named {
		return k
	}
	return "measurement"
}

// compare says what of a task that is known differs over there: "tags", "notes", "pin",
// "state", "results", "provenance", "measurement" and "samples".
func (c *copier) compare(ctx context.Context) error {
	there, err := copiedOne(ctx, c.to.reader, "task", "task_id=?", c.new)
	if err != nil {
		return err
	}
	note := func(kind string) {
		if !slices.Contains(c.done.Differs, kind) {
			c.done.Differs = append(c.done.Differs, kind)
		}
	}
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
		if t.sampled() && t.name != "chunk" || t.name == "damage" {
			continue
		}
		here, err := digestOf(ctx, c.from.reader, t, c.id)
		if err != nil {
			return err
		}
		copied, err := digestOf(ctx, c.to.reader, t, c.new)
		if err != nil {
			return err
		}
		if here == copied {
			continue
		}
		if t.name == "chunk" {
			note("samples")
		} else {
			note(kindOf(t.name))
		}
	}
	slices.Sort(c.done.Differs)
	return nil
}

// tableDigest is a table's rows of a task, whatever their order.
type tableDigest struct{ rows, sum uint64 }

// digestOf reads a table's rows of a task. Calibrations count by what they say, not
// by their number.
func digestOf(ctx context.Context, q querier, t copiedTable, id int64) (d tableDigest, err error) {
	task, cal := slices.Index(t.columns, "task_id"), slices.Index(t.columns, "calibration_id")
	known := map[any]any{} // digests by number
	var numbers []any
	err = eachCopied(ctx, q, t, "task_id=?", func(v []any) error {
		if cal >= 0 && v[cal] != nil && !slices.Contains(numbers, v[cal]) {
			numbers = append(numbers, v[cal])
		}
		return nil
	}, id)
	if err != nil {
		return d, err
	}
	for _, n := range numbers {
		row, err := copiedOne(ctx, q, "calibration", "calibration_id=?", n)
		if err != nil {
			return d, err
		}
		known[n] = row["digest"]
	}
	err = eachCopied(ctx, q, t, "task_id=?", func(v []any) error {
		h := fnv.New64a()
		for i, x := range v {
			switch {
			case i == task:
				continue
			case i == cal && x != nil:
				x = known[x]
			}
			_, _ = h.Write([]byte(written(x)))
			_, _ = h.Write([]byte{0})
		}
		d.rows++
		d.sum += h.Sum64()
		return nil
	}, id)
	return d, err
}

// written is a value as every database has it: a whole number is one whether it is
// kept as such or not, and texts are as they are shown.
func written(v any) string {
	switch x := v.(type) {
	case nil:
		return "\x01"
	case []byte:
		return string(x)
	case string:
		return measure.Printable(x) // a server does not take every byte that a file does
	case bool:
		return map[bool]string{false: "0", true: "1"}[x]
	case float64:
		if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
			return strconv.FormatInt(int64(x), 10)
		}
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

// update makes a task that is known what it is here, but for its samples, which never
// change.
func (c *copier) update(ctx context.Context) error {
	return c.to.write(ctx, "update the copy", func(tx *sql.Tx) error {
		for _, t := range slices.Backward(c.tables) {
			if t.renewed() {
				if _, err := tx.ExecContext(ctx, `DELETE FROM `+quotedName(t.name)+` WHERE task_id=?`, c.new); err != nil { // #nosec G202 -- the name is quoted
					return fmt.Errorf("table %s: %w", t.name, err)
				}
			}
		}
		for _, t := range c.tables {
			if t.renewed() {
				if err := c.rows(ctx, tx, t, "task_id=?", c.id); err != nil {
					return fmt.Errorf("table %s: %w", t.name, err)
				}
			}
		}
		var set []string
		var args []any
		for name, v := range c.task {
			if name == "calibration_id" {
				var err error
				if v, err = c.calibration(ctx, tx, v); err != nil {
					return err
				}
			} else if slices.Contains(ownColumns, name) {
				continue
			}
			set, args = append(set, quotedName(name)+`=?`), append(args, v)
		}
		return mustExist(tx.ExecContext(ctx, `UPDATE task SET `+strings.Join(set, ", ")+` WHERE task_id=?`, append(args, c.new)...))
	})
}

// renewed are the tables that an update replaces: all but the samples and what was
// set aside of them. The pyramid follows the result in use.
func (t copiedTable) renewed() bool {
	return t.name != "damage" && (!t.sampled() || strings.HasPrefix(t.name, "pyramid"))
}
