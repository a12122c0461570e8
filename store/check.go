package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"wattmark/measure"
)

// Kind says what sort of damage a Finding is.
type Kind string

// The kinds of damage.
const (
	BadPage     Kind = "page"     // SQLite cannot read a page of the file, or finds it inconsistent
	BadSchema   Kind = "schema"   // a table, view, index or trigger is missing or changed
	BadChunk    Kind = "chunk"    // a chunk does not pass its own checks
	MissingPart Kind = "missing"  // chunk numbers have a hole
	Overlap     Kind = "overlap"  // a chunk begins before the one before it ends
	Hole        Kind = "hole"     // scans are missing and no event says so
	BadCount    Kind = "count"    // the task's row counts other chunks or scans than there are
	BadResult   Kind = "result"   // a result is not what the chunks give, or not what the task's row says
	BadPyramid  Kind = "pyramid"  // the pyramid does not agree with the chunks
	Dangling    Kind = "dangling" // rows that refer to a row that is not there
	BadSearch   Kind = "search"   // the full-text index lacks tasks, or has others
	BadTags     Kind = "tags"     // a list shows other tags than the task has
	BadLog      Kind = "log"      // the write-ahead log that a program left was damaged
	Unfinished  Kind = "partial"  // a task that a program which is gone stored or deleted in part
	BadState    Kind = "state"    // a task is hidden that no program has hidden
	// BadCalibration is a calibration of other numbers than its digest is of, or of which
	// one number does not follow from the others.
	BadCalibration Kind = "calibration"
	BadSeal        Kind = "seal" // a number of the task was changed after it had ended
	FalseGap       Kind = "gap"  // an event tells of lost scans that are there
)

// NoChunk stands for none in a Finding.
const NoChunk = -1

// Finding is one damage.
type Finding struct {
	Kind  Kind
	Task  TaskID // 0 for the file as a whole
	Chunk int64  // NoChunk where it is of no chunk
	What  string // with the place
	// Remedy is what to do. Repair mends what is Mendable.
	Remedy   string
	Mendable bool

	name        string          // of BadSchema
	calibration int64           // of BadCalibration
	refers      foreignKey      // of Dangling
	to          int64           // what refers names by its first column
	events      []measure.Event // of FalseGap
	source      resultSource    // of BadResult
}

// CheckOptions say how much is looked at.
type CheckOptions struct {
	Task TaskID // one task alone, without the file's own checks; 0 for everything
	// Quick reads the chunks' heads and the pyramid's pages, not the chunks.
	Quick bool
	// Progress is told of each task that is done; nil for silence.
	Progress func(done, of int)
}

// CheckReport is what Check looked at and found.
type CheckReport struct {
	Tasks, Chunks, Scans, Pages uint64
	Findings                    []Finding
}

// checker is one Check.
type checker struct {
	d   *DB
	opt CheckOptions
	out CheckReport
	// strange are the calibrations that are not what they were.
	strange map[int64]bool
}

func (c *checker) add(f Finding) {
	f.What = measure.Printable(f.What) // on one line, whatever the file holds
	c.out.Findings = append(c.out.Findings, f)
}

// Check looks for damage: SQLite's own checks, the schema, rows that refer to nothing,
// calibrations against their digests, each task's chunks against their checksums, numbers
// and counts, its losses against its events, its results and pyramid against the chunks,
// and its row, markers and results against its seal. It changes nothing. Damage
// is no error: errors are of a check that could not be done. They wrap ErrNotFound
// for a task that is not there.
func (d *DB) Check(ctx context.Context, opt CheckOptions) (*CheckReport, error) {
	const op = "check the database"
	d.beside()
	c := &checker{d: d, opt: opt, strange: map[int64]bool{}}
	ids := []TaskID{opt.Task}
	if opt.Task == 0 {
		var err error
		if err = c.file(ctx); err != nil {
			return nil, wrap(op, err)
		}
		ids, err = d.TaskIDs(ctx)
		if err == nil {
			err = c.calibrations(ctx, 0)
		}
		if isCorrupt(err) {
			c.add(unreadable("tables task and calibration", err))
			c.out.settle()
			return &c.out, nil
		} else if err != nil {
			return nil, wrap(op, err)
		}
	}
	for i, id := range ids {
		switch err := c.task(ctx, id); {
		case isCorrupt(err):
			f := unreadable(fmt.Sprintf("task %d", id), err)
			f.Task = id
			c.add(f)
		case errors.Is(err, ErrNotFound) && opt.Task == 0:
			continue // it was deleted meanwhile
		case err != nil:
			return nil, wrap(fmt.Sprintf("%s: task %d", op, id), err)
		}
		c.out.Tasks++
		if opt.Progress != nil {
			opt.Progress(i+1, len(ids))
		}
	}
	c.out.settle()
	return &c.out, nil
}

// settle lets nobody write into a file whose pages cannot be trusted.
func (r *CheckReport) settle() {
	if !slices.ContainsFunc(r.Findings, torn) {
		return
	}
	for i := range r.Findings {
		r.Findings[i].Mendable, r.Findings[i].Remedy = false, salvageRemedy
	}
}

// torn reports whether a finding is of a page that cannot be mended.
func torn(f Finding) bool { return f.Kind == BadPage && !f.Mendable }

// isCorrupt reports whether what could not be read is damaged.
func isCorrupt(err error) bool { return errors.Is(wrap("", err), ErrCorrupt) }

const salvageRemedy = "save what can be read: wattmark db repair --salvage NEW.db; or go back to a backup"

func unreadable(what string, err error) Finding {
	return Finding{Kind: BadPage, Chunk: NoChunk, What: fmt.Sprintf("%s cannot be read: %v", what, err), Remedy: salvageRemedy}
}
