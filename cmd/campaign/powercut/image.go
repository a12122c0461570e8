package powercut

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
)

// Kill copies the database to another path as a process that is killed leaves it: with
// all that it had written, synced or not, in the midst of whatever it was doing.
func (d *Disk) Kill(to string) error {
	return d.image(to, func(_ *file, now []byte) []byte { return now })
}

// Cut copies the database to another path as a power cut leaves it.
func (d *Disk) Cut(to string, rng *rand.Rand) error {
	if err := d.ghosts(to, rng); err != nil {
		return err
	}
	return d.image(to, func(f *file, now []byte) []byte {
		switch {
		case f == nil || len(f.pending) == 0 && !f.made:
			return now
		case f.made && rng.IntN(3) == 0:
			return nil // nor its name
		}
		return f.cut(now, rng)
	})
}

// ghosts brings some of the files back that were deleted.
func (d *Disk) ghosts(to string, rng *rand.Rand) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range suffixes {
		was, gone := d.gone[d.path+s]
		if !gone || rng.IntN(2) == 0 {
			continue
		}
		if err := os.WriteFile(to+s, was, 0o600); err != nil {
			return fmt.Errorf("power cut: %w", err)
		}
	}
	return nil
}

// image copies what leave makes of each file. Nothing is written meanwhile.
func (d *Disk) image(to string, leave func(f *file, now []byte) []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range suffixes {
		now, err := d.read(d.path + s)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("power cut: %w", err)
		}
		left := leave(d.files[d.path+s], now)
		if left == nil && s != "" {
			continue
		}
		if err := os.WriteFile(to+s, left, 0o600); err != nil {
			return fmt.Errorf("power cut: %w", err)
		}
	}
	return nil
}

// read reads a file of a database that may be open. It is not closed before the
// database is: closing it here would take SQLite's locks on it away.
func (d *Disk) read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	d.held = append(d.held, f)
	return io.ReadAll(f)
}
