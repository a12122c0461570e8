package calibration

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"wattmark/measure"
	"wattmark/measure/calib"
	"wattmark/monitor/regular"
)

// Folder holds the records of a bench. It is safe for concurrent use, by
// several programs too: files are written whole, and never changed.
type Folder string

// Beside is the folder of a bench file; empty for none.
func Beside(benchFile string) Folder {
	if benchFile == "" {
		return ""
	}
	return Folder(filepath.Join(filepath.Dir(benchFile), "calibration"))
}

// maxFiles bounds a folder.
const maxFiles = 10_000

// Load reads all records, oldest first. A folder that is not there is an empty
// one. One file that cannot be read fails it all: which calibration is in force
// would not be known.
func (f Folder) Load() (calib.History, error) {
	if f == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("calibration records: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return e.IsDir() || !strings.HasSuffix(e.Name(), ".yaml") || strings.HasPrefix(e.Name(), ".")
	})
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("calibration records: %d files in %s: at most %d; move the oldest away", len(entries), f, maxFiles)
	}
	var all []calib.Record
	for _, e := range entries {
		r, err := read(filepath.Join(string(f), e.Name()))
		if err != nil {
			return nil, fmt.Errorf("calibration records: %w", err)
		}
		all = append(all, r)
	}
	return calib.NewHistory(all), nil
}

func read(path string) (calib.Record, error) {
	data, err := regular.Read(path, maxSize)
	if err != nil {
		return calib.Record{}, err
	}
	return Parse(path, data)
}

// Calibrate puts the records in force on a nominal setup, as
// calib.History.Apply does. The folder is read anew each time, so that a record
// that was just written counts from the next capture on.
func (f Folder) Calibrate(nominal measure.Setup, id measure.Identity) (measure.Setup, []string, error) {
	h, err := f.Load()
	if err != nil {
		return nominal, nil, err
	}
	return h.Apply(nominal, id, time.Now())
}

// Add seals a record and adds it to the folder, which it makes where it is not
// there. The file is there as a whole or not at all, also after a power cut. It
// returns the file's path. A record that is there already is no error.
func (f Folder) Add(r *calib.Record) (path string, err error) {
	if f == "" {
		return "", errors.New("calibration record: no folder for it: name one with --calibration, or a bench file with --bench")
	}
	if err := r.Seal(); err != nil {
		return "", err
	}
	if err := r.Validate(); err != nil {
		return "", err
	}
	text, err := Marshal(*r)
	if err != nil {
		return "", err
	}
	path = filepath.Join(string(f), r.At.Format("20060102T150405Z")+"-"+string(r.Done)+"-"+r.ID+".yaml")
	// What was written must say the same when it is read.
	if back, err := Parse(path, text); err != nil || back.ID != r.ID {
		return "", fmt.Errorf("calibration record: it does not read back: %w", err)
	}
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return "", fmt.Errorf("calibration record: %w", err)
	}
	if err := writeNew(path, text); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("calibration record: %w", err)
	}
	return path, nil
}

// writeNew writes a file durably under a name that must be free.
func writeNew(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Chmod(0o444), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err := takeName(tmp.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// takeName gives a file its final name, never over another. A file system without
// hard links leaves a moment in which two writers could meet; as names hold what
// is in the file, they would write the same.
func takeName(tmp, path string) error {
	err := os.Link(tmp, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fs.ErrExist
	}
	return os.Rename(tmp, path)
}
