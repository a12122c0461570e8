package store

import (
	"context"
	"database/sql"
	"errors"
)

// NewBare makes an empty database for rows to travel in. It has not the look-up tables
// of the view data, which are most of an empty database: who opens it with another
// program finds that view empty.
func NewBare(ctx context.Context, path string) error {
	d, err := Open(ctx, path)
	if err != nil {
		return err
	}
	err = d.write(ctx, "empty the look-up tables", func(tx *sql.Tx) error {
		for _, table := range []string{"_u16", "_seq"} {
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+table); err != nil { // #nosec G202 -- names of this list
				return err
			}
		}
		return nil
	})
	if err == nil {
		_, _, err = d.Vacuum(ctx)
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	return settle(ctx, path)
}
