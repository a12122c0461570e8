package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"wattmark/measure"
)

// Note is a remark on a task.
type Note struct {
	Number int // from 1, in the order in which they came; never used again while later ones are there
	At     time.Time
	Text   string
}

// maxKey is how long a tag's key may be, maxText a value or a note; maxTags and
// maxNotes how many of them a task may have, so that one task fits in one message.
const (
	maxKey   = 64
	maxText  = 4096
	maxTags  = 256
	maxNotes = 512
)

// CheckTags refuses tags that cannot be stored: a key is not empty, has no
// space and no "=", and does not begin with "-".
func CheckTags(tags map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		switch {
		case k == "" || len(k) > maxKey || strings.ContainsAny(k, "= \t") || strings.HasPrefix(k, "-"):
			return fmt.Errorf("tag %q: a key has 1 to %d bytes, no space and no =, and does not begin with -", measure.Printable(k), maxKey)
		case len(tags[k]) > maxText:
			return fmt.Errorf("tag %s: a value has at most %d bytes", measure.Printable(k), maxText)
		}
		if err := errors.Join(measure.CheckText("tag", k), measure.CheckText("value of tag "+k, tags[k])); err != nil {
			return err
		}
	}
	return nil
}

// Relabelling is what is to change of a task's labels.
type Relabelling struct {
	Set    map[string]string // tags
	Remove []string          // tags by key; one that is not there is no error
	Only   bool              // remove all tags but those of Set
	Pinned *bool             // nil leaves it
}

// SetTags sets tags of a task and removes others, in one transaction. Removing
// one that is not there is no error. Errors wrap ErrNotFound.
func (d *DB) SetTags(ctx context.Context, id TaskID, set map[string]string, remove []string) error {
	return d.Relabel(ctx, id, Relabelling{Set: set, Remove: remove})
}

// Relabel changes a task's tags and whether it is pinned, in one transaction.
// Errors wrap ErrNotFound.
func (d *DB) Relabel(ctx context.Context, id TaskID, r Relabelling) error {
	op := fmt.Sprintf("label task %d", id)
	if err := CheckTags(r.Set); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return d.write(ctx, op, func(tx *sql.Tx) error {
		if err := mustExist(tx.ExecContext(ctx, `UPDATE task AS t SET pinned=coalesce(?,pinned) WHERE task_id=?`+d.unlessMine(id), r.Pinned, int64(id))); err != nil {
			return err
		}
		remove := r.Remove
		if r.Only {
			tags, err := readTags(ctx, tx, id)
			if err != nil {
				return err
			}
			remove = slices.Collect(maps.Keys(tags))
		}
		for _, k := range remove {
			if _, stays := r.Set[k]; stays {
				continue
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM task_tag WHERE task_id=? AND key=?`, int64(id), k); err != nil {
				return err
			}
		}
		if err := putTags(ctx, tx, int64(id), r.Set); err != nil {
			return err
		}
		return few(ctx, tx, "task_tag", id, maxTags)
	})
}

// few refuses more rows of a table than a task may have.
func few(ctx context.Context, tx *sql.Tx, table string, id TaskID, most int) error {
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM `+table+` WHERE task_id=?`, int64(id)).Scan(&n); err != nil || n <= most {
		return err
	}
	return fmt.Errorf("%w: %d of %s, at most %d: remove some first", ErrConflict, n, map[string]string{"task_tag": "a task's tags", "task_note": "a task's notes"}[table], most)
}

func putTags(ctx context.Context, tx *sql.Tx, id int64, set map[string]string) error {
	for k, v := range set {
		if _, err := tx.ExecContext(ctx, `INSERT INTO task_tag VALUES(?1,?2,?3) ON CONFLICT DO UPDATE SET value=?3`, id, k, v); err != nil {
			return fmt.Errorf("tag %s: %w", k, err)
		}
	}
	return nil
}

// AddNote adds a remark to a task and returns its number. Errors wrap ErrNotFound.
func (d *DB) AddNote(ctx context.Context, id TaskID, at time.Time, text string) (number int, err error) {
	op := fmt.Sprintf("note on task %d", id)
	if err := CheckNote(text); err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	err = d.write(ctx, op, func(tx *sql.Tx) error {
		if err := mustExist(tx.ExecContext(ctx, `UPDATE task AS t SET state=state WHERE task_id=?`+d.unlessMine(id), int64(id))); err != nil {
			return err
		}
		if number, err = putNote(ctx, tx, int64(id), at, text); err != nil {
			return err
		}
		return few(ctx, tx, "task_note", id, maxNotes)
	})
	return number, err
}

// CheckNote refuses a remark that cannot be stored.
func CheckNote(text string) error {
	if strings.TrimSpace(text) == "" || len(text) > maxText {
		return fmt.Errorf("a note has 1 to %d bytes, and more than spaces", maxText)
	}
	return measure.CheckText("note", text)
}

func putNote(ctx context.Context, tx *sql.Tx, id int64, at time.Time, text string) (number int, err error) {
	err = tx.QueryRowContext(ctx, `INSERT INTO task_note SELECT ?1, coalesce(max(number),0)+1, ?2, ?3 FROM task_note WHERE task_id=?1
		RETURNING number`, id, at.UnixNano(), text).Scan(&number)
	return number, err
}

// RemoveNote removes a remark. Errors wrap ErrNotFound.
func (d *DB) RemoveNote(ctx context.Context, id TaskID, number int) error {
	return d.write(ctx, fmt.Sprintf("remove note %d of task %d", number, id), func(tx *sql.Tx) error {
		return mustExist(tx.ExecContext(ctx, `DELETE FROM task_note WHERE task_id=? AND number=?`, int64(id), number))
	})
}

// Pin keeps a task from Retain, or no longer. Errors wrap ErrNotFound.
func (d *DB) Pin(ctx context.Context, id TaskID, pinned bool) error {
	return d.Relabel(ctx, id, Relabelling{Pinned: &pinned})
}

// readLabels reads a task's notes and tags.
func readLabels(ctx context.Context, tx *sql.Tx, t *Task) (err error) {
	if t.Tags, err = readTags(ctx, tx, t.ID); err != nil {
		return err
	}
	t.Notes, err = collect(ctx, tx, func(rows *sql.Rows, n *Note) error {
		var at sql.NullInt64
		err := rows.Scan(&n.Number, &at, textTo(&n.Text))
		n.At = fromNanos(at)
		return err
	}, `SELECT number, at_ns, text FROM task_note WHERE task_id=? ORDER BY number`, int64(t.ID))
	return err
}

// readTags returns nil where a task has none.
func readTags(ctx context.Context, q querier, id TaskID) (map[string]string, error) {
	type tag struct{ k, v string }
	list, err := collect(ctx, q, func(rows *sql.Rows, x *tag) error { return rows.Scan(textTo(&x.k), textTo(&x.v)) },
		`SELECT key, value FROM task_tag WHERE task_id=?`, int64(id))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	out := make(map[string]string, len(list))
	for _, x := range list {
		out[x.k] = x.v
	}
	return out, nil
}

// matchText turns words into a question of SQLite's full-text index: all of
// them, each as the beginning of a word. Signs have no meaning of their own.
func matchText(words string) string {
	var out []string
	for _, w := range strings.Fields(words) {
		out = append(out, `"`+strings.ReplaceAll(w, `"`, `""`)+`"*`)
	}
	return strings.Join(out, " ")
}
