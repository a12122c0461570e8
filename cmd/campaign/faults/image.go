package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// damage is what a crash does to the disk.
type damage uint8

const (
	intact       damage = iota // a killed process: the kernel has all that was written
	torn                       // a power cut: of what was not synced some is lost, some is garbage
	rotten                     // a bit of a log was flipped
	rottenHeader               // a bit of a header was flipped
)

// image copies the spool as a crash would leave it. What the old monitor does
// to its own copy from then on changes nothing.
func (d *disk) image(from, to string, dmg damage, rng *rand.Rand) (rotted bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(from)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return false, err
	}
	for _, e := range entries {
		if d.w.planted.Own(e.Name()) {
			continue
		}
		if e.Name() == ".waits" && dmg == intact {
			if err := duplicate(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return false, err
			}
		}
		if !e.IsDir() {
			continue
		}
		r, err := d.imageOf(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()), dmg, rng)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is being released
			return rotted, err
		}
		rotted = rotted || r
	}
	return rotted, nil
}

// duplicate copies a file that may be gone meanwhile.
func duplicate(from, to string) error {
	b, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644) // #nosec G703 -- into a folder of the campaign's own
}

func (d *disk) imageOf(from, to string, dmg damage, rng *rand.Rand) (rotted bool, err error) {
	files, err := os.ReadDir(from)
	if err != nil {
		return false, err
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return false, err
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err != nil {
			return rotted, err
		}
		if f.Name() == "header.json" && dmg == rottenHeader {
			flip(b, rng)
			rotted = true
		}
		if f.Name() == "log" {
			switch l := d.logs[filepath.Join(from, "log")]; {
			case dmg == torn && l != nil:
				b = tear(b, min(l.durable, int64(len(b))), rng)
			case dmg == rotten && len(b) > 0:
				flip(b, rng)
				rotted = true
			}
		}
		if err := os.WriteFile(filepath.Join(to, f.Name()), b, 0o644); err != nil { // #nosec G703 -- names of the folder that is copied
			return rotted, fmt.Errorf("campaign: %w", err)
		}
	}
	return rotted, nil
}

func flip(b []byte, rng *rand.Rand) { b[rng.IntN(len(b))] ^= 1 << rng.IntN(8) }

// flipFile flips a bit of a file; it tells whether there was one.
func flipFile(path string, rng *rand.Rand) bool {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return false
	}
	flip(b, rng)
	return os.WriteFile(path, b, 0o600) == nil
}

// tear leaves the bytes that were synced, and of the others as many as a disk
// happens to have written, of which the last may be anything.
func tear(b []byte, durable int64, rng *rand.Rand) []byte {
	left := int64(len(b)) - durable
	if left <= 0 {
		return b
	}
	keep := []int64{0, rng.Int64N(left + 1), left}[rng.IntN(3)]
	b = b[:durable+keep]
	if keep > 0 && rng.IntN(2) == 0 {
		for i := durable + rng.Int64N(keep); i < int64(len(b)); i++ {
			b[i] = byte(rng.Uint32())
		}
	}
	return b
}
