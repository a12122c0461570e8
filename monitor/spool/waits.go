package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// waitsName is a file beside the captures: how long each that has ended has waited to
// be fetched. It is no part of what was measured: losing it costs time, not samples.
const (
	waitsName = ".waits"
	waitsMost = 1 << 20
)

// Waits returns how long captures had waited to be fetched when PutWaits was last
// called, by name; none where it never was.
func (s *Store) Waits() (map[string]time.Duration, error) {
	path := filepath.Join(s.dir, waitsName)
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = safeInfo(path, info, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, waitsMost))
	if err != nil {
		return nil, fmt.Errorf("spool: %s: %w", path, err)
	}
	return parseWaits(b)
}

// parseWaits reads {"capture": seconds}. Errors say what is wrong with it.
func parseWaits(b []byte) (map[string]time.Duration, error) {
	const longest = 100 * 365 * 24 * 3600
	var seconds map[string]float64
	if err := json.Unmarshal(b, &seconds); err != nil {
		return nil, fmt.Errorf("spool: %s: %w", waitsName, err)
	}
	out := make(map[string]time.Duration, len(seconds))
	for id, n := range seconds {
		if !(n >= 0 && n <= longest) {
			return nil, fmt.Errorf("spool: %s: capture %q has waited %v s: that cannot be", waitsName, id, n)
		}
		out[id] = time.Duration(n * float64(time.Second))
	}
	return out, nil
}

// PutWaits remembers how long captures have waited, for the next monitor.
func (s *Store) PutWaits(waits map[string]time.Duration) error {
	path := filepath.Join(s.dir, waitsName)
	if len(waits) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("spool: %w", err)
		}
		return nil
	}
	seconds := make(map[string]float64, len(waits))
	for id, d := range waits {
		seconds[id] = d.Seconds()
	}
	b, err := json.Marshal(seconds)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	if err := safe(path, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("spool: %w", err)
	}
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("spool: %w", err)
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o644)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("spool: %w", err), os.Remove(next))
	}
	return nil
}
