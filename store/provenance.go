package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"wattmark/measure"
)

// Provenance is what a task was run from. Its GPU, driver, bench and
// calibration stand in Task, the clocks in Readings.
type Provenance struct {
	Host, OS string
	// Version and MonitorVersion are wattmark's here and at the meter; empty where unknown.
	Version, MonitorVersion string
	// Directory is where the command was given, GitCommit what was checked out
	// there; both may be empty. GitDirty: with changes that are in no commit.
	Directory, GitCommit string
	GitDirty             bool
	// Command is the command line by words; nil where it was not to be kept.
	Command []string
	// TraceID is the OpenTelemetry trace of its run, in hexadecimal; empty for none.
	TraceID string
}

// PutProvenance records what a task was run from, in place of what was there.
// Texts are made printable. Errors wrap ErrNotFound.
func (d *DB) PutProvenance(ctx context.Context, id TaskID, p Provenance) error {
	return d.write(ctx, fmt.Sprintf("store the provenance of task %d", id), func(tx *sql.Tx) error {
		if err := mustExist(tx.ExecContext(ctx, `UPDATE task SET state=state WHERE task_id=?`, int64(id))); err != nil {
			return err
		}
		return putProvenance(ctx, tx, int64(id), &p)
	})
}

func putProvenance(ctx context.Context, tx *sql.Tx, id int64, p *Provenance) error {
	var command, dirty, trace any
	if p.TraceID != "" {
		trace = measure.Printable(p.TraceID)
	}
	if p.Command != nil {
		words := make([]string, len(p.Command))
		for i, w := range p.Command {
			words[i] = measure.Printable(w)
		}
		text, err := json.Marshal(words)
		if err != nil {
			return err
		}
		command = string(text)
	}
	if p.GitCommit != "" {
		dirty = p.GitDirty
	}
	f := measure.Printable
	_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO provenance VALUES(?,?,?,?,?,?,?,?,?,?)`, id,
		f(p.Host), f(p.OS), f(p.Version), f(p.MonitorVersion), f(p.Directory), f(p.GitCommit), dirty, command, trace)
	return err
}

// readProvenance leaves nil where nothing is recorded.
func readProvenance(ctx context.Context, tx *sql.Tx, t *Task) error {
	var p Provenance
	var dirty sql.NullBool
	var command sql.NullString
	err := tx.QueryRowContext(ctx, `SELECT host, os, version, monitor_version, directory, git_commit, git_dirty, command, coalesce(trace_id,'') FROM provenance WHERE task_id=?`, int64(t.ID)).
		Scan(textTo(&p.Host), textTo(&p.OS), textTo(&p.Version), textTo(&p.MonitorVersion), textTo(&p.Directory), textTo(&p.GitCommit), &dirty, &command, textTo(&p.TraceID))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	p.GitDirty = dirty.Bool
	if command.Valid {
		if err := json.Unmarshal([]byte(command.String), &p.Command); err != nil {
			return fmt.Errorf("%w: command line: %w", ErrCorrupt, err)
		}
		for i, w := range p.Command {
			p.Command[i] = measure.Printable(w)
		}
	}
	t.Provenance = &p
	return nil
}
