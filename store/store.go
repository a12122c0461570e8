// Package store is the task database: SQLite by default. Raw counts are kept
// as chunks; watts and joules are derived from them and the calibration that
// was in force. The view data serves the paper's twelve columns.
package store

import (
	"context"
	"errors"
	"iter"

	"wattmark/measure"
	"wattmark/measure/chunk"
)

// DB is an open task database. It is safe for concurrent use: one connection
// writes, others read beside it.
type DB struct{}

var errSoon = errors.New("store: not built yet")

// Open opens the database, creating it where there is none.
func Open(ctx context.Context, path string) (*DB, error) { return nil, errSoon }

// OpenReadOnly opens an existing database that is never changed.
func OpenReadOnly(ctx context.Context, path string) (*DB, error) { return nil, errSoon }

// Close closes the database.
func (d *DB) Close() error { return errSoon }

// BeginTask records a new task in state Running.
func (d *DB) BeginTask(ctx context.Context, t NewTask) (TaskID, error) { return 0, errSoon }

// PutHeader records what the stream's header brought; it must come before the
// first chunk. Putting the same header again is no error.
func (d *DB) PutHeader(ctx context.Context, id TaskID, h Header) error { return errSoon }

// AppendChunks stores chunks and events in one transaction that is on disk when
// the call returns. A chunk that is there already is skipped; the same number
// with another checksum is ErrConflict and nothing is stored.
func (d *DB) AppendChunks(ctx context.Context, id TaskID, chunks []*chunk.Chunk, events []measure.Event) error {
	return errSoon
}

// NextChunk returns the number of the chunk to ask for next; any is false when
// no chunk is stored yet.
func (d *DB) NextChunk(ctx context.Context, id TaskID) (no uint64, any bool, err error) {
	return 0, false, errSoon
}

// PutReadings adds readings by software methods; the same method and instant again replaces.
func (d *DB) PutReadings(ctx context.Context, id TaskID, r []Reading) error { return errSoon }

// PutKernels adds kernels; the same kernel again is no error.
func (d *DB) PutKernels(ctx context.Context, id TaskID, k []Kernel) error { return errSoon }

// PutPlayed adds marker edges as played; the same marker and chip again replaces.
func (d *DB) PutPlayed(ctx context.Context, id TaskID, p []Played) error { return errSoon }

// Readings returns the software readings, by method and time.
func (d *DB) Readings(ctx context.Context, id TaskID) ([]Reading, error) { return nil, errSoon }

// Kernels returns the kernels, by start.
func (d *DB) Kernels(ctx context.Context, id TaskID) ([]Kernel, error) { return nil, errSoon }

// Played returns the marker edges as played, by marker and chip.
func (d *DB) Played(ctx context.Context, id TaskID) ([]Played, error) { return nil, errSoon }

// Finish ends a task; finishing again replaces the outcome.
func (d *DB) Finish(ctx context.Context, id TaskID, o Outcome) error { return errSoon }

// Task returns one task with all but its samples and readings.
func (d *DB) Task(ctx context.Context, id TaskID) (Task, error) { return Task{}, errSoon }

// Tasks returns a page of tasks, newest first, without their markers, events,
// setups and rails.
func (d *DB) Tasks(ctx context.Context, q Query) ([]Task, error) { return nil, errSoon }

// Users returns all users that have tasks, by name.
func (d *DB) Users(ctx context.Context) ([]UserTasks, error) { return nil, errSoon }

// DeleteTask deletes one task with all that belongs to it.
func (d *DB) DeleteTask(ctx context.Context, id TaskID) error { return errSoon }

// DeleteByName deletes all tasks of exactly this name.
func (d *DB) DeleteByName(ctx context.Context, name string) (uint64, error) { return 0, errSoon }

// DeleteByUser deletes all tasks of this user.
func (d *DB) DeleteByUser(ctx context.Context, user string) (uint64, error) { return 0, errSoon }

// Unfinished returns the tasks in state Running, oldest first.
func (d *DB) Unfinished(ctx context.Context) ([]Task, error) { return nil, errSoon }

// Chunks yields the stored chunks from a number on, in order, each checked
// against its checksum. A chunk is valid until the next one is asked for.
func (d *DB) Chunks(ctx context.Context, id TaskID, from uint64) iter.Seq2[*chunk.Chunk, error] {
	return func(yield func(*chunk.Chunk, error) bool) { yield(nil, errSoon) }
}
