package store

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize"
)

// Limits say when a database in a file takes no new tasks. Those that run go on: what
// was begun is finished. Zeros are no limits; a database on a server has its own.
type Limits struct {
	// Bytes is what the file and its log may take.
	Bytes int64
	// Free is what must be left on its disk.
	Free int64
}

// SetLimits says when to take no new tasks from now on. It is called before others
// use the database.
func (d *DB) SetLimits(l Limits) { d.limits = l }

// Room refuses a task for which there is none, as BeginTask does: for who takes other
// things before, and is better refused then. Errors wrap ErrFull.
func (d *DB) Room(ctx context.Context) error {
	l := d.limits
	if d.server != nil || l == (Limits{}) {
		return nil
	}
	if l.Bytes > 0 {
		s, err := d.Stats(ctx)
		if err != nil {
			return err
		}
		if used := s.Bytes + s.LogBytes; used >= l.Bytes {
			return fmt.Errorf("%w: the database takes %s, its limit is %s: delete tasks (wattmark db retain), then wattmark db vacuum",
				ErrFull, humanize.Bytes(uint64(used)), humanize.Bytes(uint64(l.Bytes)))
		}
	}
	if l.Free > 0 {
		free, known, err := freeBeside(d.path)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrIO, err)
		}
		if known && free < l.Free {
			return fmt.Errorf("%w: %s are free beside the database, a task needs %s: make room on its disk",
				ErrFull, humanize.Bytes(uint64(free)), humanize.Bytes(uint64(l.Free)))
		}
	}
	return nil
}
