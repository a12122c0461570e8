package faults

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"wattmark/hostagent/measurement"
	"wattmark/measure/calib"
	"wattmark/monitor/calibration"
	"wattmark/store"
)

// records are the bench's: without one its watts are off by a tenth.
func (w *world) records() calibration.Folder {
	return calibration.Folder(filepath.Join(w.dir, "calibration"))
}

// sealed are the files of the records, by name: the same for all worlds.
var sealed = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "wattmark-campaign-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := map[string][]byte{}
	p := meter{}.Inputs().Channels[0]
	good := calib.ScaleOf(p)
	good.Gain = gainW
	was := calib.ScaleOf(p)
	for _, serial := range []string{"1", "another"} {
		r := calib.Record{
			Done: calib.Gain, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), By: "campaign", Instrument: calib.Instrument{Kind: "campaign", Serial: serial},
			Channels: []calib.Channel{{Name: p.Name, Unit: p.Unit, Scale: &good, Nominal: &was, Points: []calib.Point{{Value: 100, U: 0.1, Reading: 90, UReading: 0.01}}}},
		}
		path, err := calibration.Folder(dir).Add(&r)
		if err != nil {
			return nil, err
		}
		if out[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return out, nil
})

// mendRecords writes the records as they should be.
func (w *world) mendRecords() {
	files, err := sealed()
	err = errors.Join(err, os.MkdirAll(string(w.records()), 0o755))
	for name, b := range files {
		path := filepath.Join(string(w.records()), name)
		err = errors.Join(err, os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
	}
	if err != nil {
		w.fail("campaign: %v", err)
	}
}

// flipRecord flips a bit of each record: what a capture that begins now makes of it is held
// against the truth at the end.
func (w *world) flipRecord() {
	files, err := sealed()
	w.rngMu.Lock()
	defer w.rngMu.Unlock()
	for name := range files {
		if !flipFile(filepath.Join(string(w.records()), name), w.rng) {
			w.fail("campaign: no calibration record to damage: %v", err)
		}
	}
}

// setup holds what turns the task's counts into watts against what does.
func (x *examination) setup() {
	if len(x.t.Setup.Channels) == 0 && x.t.Chunks == 0 {
		return // no header came
	}
	in := meter{}.Inputs()
	in.Channels[0].Gain = gainW
	want, _ := rails(in)
	got := x.t.Setup
	if s := fmt.Sprint(got.Timebase, got.Channels, got.Rails); s != fmt.Sprint(want.Timebase, want.Channels, want.Rails) {
		x.w.fail("task %d: its watts are made by %s", x.t.ID, s)
	}
}

// damaged flips a bit of a stored calibration, once the host has ended: it must be found,
// and no energy may be computed from it.
func (w *world) damaged() error {
	path := w.disk().path
	before, _, err := w.inspect(path)
	if err != nil {
		return err
	}
	if len(before) > 0 && !w.seen.excuses[logExcuse] {
		w.fail("the check of the database finds %q", before)
	}
	raw, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	what, err := w.flipStored(raw)
	if err = errors.Join(err, raw.Close()); err != nil || what == "" {
		return err
	}
	after, refused, err := w.inspect(path)
	if err == nil && !refused && (len(after) <= len(before) || w.broken == BlindCheck) {
		w.fail("%s, and the check finds nothing", what)
	}
	db, oerr := store.Open(w.ctx, path)
	if oerr != nil {
		return err // nothing is computed from it
	}
	tasks, lerr := db.Tasks(w.ctx, store.Query{})
	for i := range tasks {
		w.recompute(db, tasks[i].ID, what)
	}
	return errors.Join(err, lerr, db.Close())
}

// inspect lists what the check of a database finds, or tells that it cannot be checked.
func (w *world) inspect(path string) (found []string, refused bool, err error) {
	db, err := store.OpenReadOnly(w.ctx, path)
	if err != nil {
		return nil, true, nil
	}
	r, err := db.Check(w.ctx, store.CheckOptions{})
	if err != nil {
		return nil, true, db.Close()
	}
	for _, f := range r.Findings {
		found = append(found, f.What)
	}
	return found, false, db.Close()
}

// recompute asks for a task's energy anew, which must be refused or the same.
func (w *world) recompute(db *store.DB, id store.TaskID, what string) {
	was, err := db.Task(w.ctx, id)
	if err != nil || was.Result == nil {
		return
	}
	if err := measurement.Retrim(w.ctx, db, id, measurement.Window{From: was.Result.From, To: was.Result.To}); err != nil {
		return
	}
	now, err := db.Task(w.ctx, id)
	if err != nil || now.Result == nil || math.Abs(float64(now.Result.Total.Energy-was.Result.Total.Energy)) > 0.01*float64(was.Result.Total.U) {
		w.fail("%s, and task %d is given another energy without a word: %v", what, id, err)
	}
}

// flipStored flips a bit of a value that makes numbers, and says which; nothing where there
// is none.
func (w *world) flipStored(raw *sql.DB) (what string, err error) {
	table := []string{"calibration", "channel", "rail"}[w.rng.IntN(3)]
	var columns []string
	rows, err := raw.QueryContext(w.ctx, `SELECT name FROM pragma_table_info(?) WHERE name NOT IN ('calibration_id','ordinal','since_ns')`, table)
	if err != nil {
		return "", err
	}
	for rows.Next() {
		var c string
		err = errors.Join(err, rows.Scan(&c))
		columns = append(columns, c)
	}
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return "", err
	}
	column := columns[w.rng.IntN(len(columns))]
	var was any
	// The first, whole, and of a task.
	where := ` WHERE calibration_id=(SELECT min(calibration_id) FROM task WHERE result IS NOT NULL)`
	err = raw.QueryRowContext(w.ctx, `SELECT "`+column+`" FROM `+table+where+` LIMIT 1`).Scan(&was) // #nosec G202 -- names of the schema
	is := flipped(was, w.rng)
	if errors.Is(err, sql.ErrNoRows) || is == nil {
		return "", nil
	}
	if err == nil {
		_, err = raw.ExecContext(w.ctx, `UPDATE `+table+` SET "`+column+`"=?`+where, is) // #nosec G202 -- as above
	}
	return fmt.Sprintf("%s.%s was %v and is %v", table, column, was, is), err
}

// flipped is a value with one bit changed; nil of none.
func flipped(v any, rng *rand.Rand) any {
	switch v := v.(type) {
	case float64:
		if v == 0 {
			return math.Float64frombits(1 << rng.IntN(52)) // no other is none
		}
		return math.Float64frombits(math.Float64bits(v) ^ 1<<[]int{24 + rng.IntN(28), 63}[rng.IntN(2)]) // more than rounding
	case int64:
		return v ^ 1<<rng.IntN(3)
	case string:
		if v == "" {
			return "a"
		}
		b := []byte(v)
		b[rng.IntN(len(b))] ^= 1
		return string(b)
	case []byte:
		b := slices.Clone(v)
		flip(b, rng)
		return b
	}
	return nil
}
