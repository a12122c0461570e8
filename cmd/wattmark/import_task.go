package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/store"
	"wattmark/store/exchange/textin"
)

// importFlags are the flags of what becomes a task.
type importFlags struct {
	name, user, gpu string
	start, events   string
	uGain, uClock   float64
}

func (f *importFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "", "name of the task (default: the file's)")
	fl.StringVar(&f.user, "user", "", "user of the task (default: the login name)")
	fl.StringVar(&f.gpu, "gpu", "", "the GPU that was measured")
}

// textFlags registers what text files leave open.
func (f *importFlags) textFlags(c *cobra.Command) {
	f.register(c)
	fl := c.Flags()
	fl.StringVar(&f.start, "start", "", "when the file's time zero was, as in 2026-01-31T12:00:00Z (default: when the file was last written, less its length)")
	fl.StringVar(&f.events, "events", "", "a file of times in µs since 1970, one a line: the window lies between the first and the last")
	fl.Float64Var(&f.uGain, "u-gain", 0, "relative standard uncertainty of all scales, as in 0.01 for 1 %")
	fl.Float64Var(&f.uClock, "u-clock", 1e-4, "relative standard uncertainty of the file's time scale")
}

func (f *importFlags) check() error {
	switch {
	case !(f.uGain >= 0 && f.uGain < 1):
		return withCode(exitUsage, fmt.Errorf("--u-gain %v: want 0 to 1, as in 0.01 for 1 %%", f.uGain))
	case !(f.uClock >= 0 && f.uClock < 1):
		return withCode(exitUsage, fmt.Errorf("--u-clock %v: want 0 to 1, as in 1e-4 for 100 ppm", f.uClock))
	}
	return nil
}

// incoming is a file that becomes a task.
type incoming struct {
	format string
	path   string
	task   store.NewTask
	header store.Header
	notes  []string
	// before stores what belongs to the task beside its samples.
	before func(ctx context.Context, db *store.DB, id store.TaskID) error
	// stream delivers the samples.
	stream func(textin.Sink) error
	// finish ends the task, given the device time of its first and last sample.
	finish func(ctx context.Context, db *store.DB, id store.TaskID, samples measure.Window) error
}

// importReport is what import prints of a task.
type importedTask struct {
	*report
	Format     string             `json:"imported_format"`
	File       string             `json:"imported_file"`
	Resolution map[string]float64 `json:"resolution_by_channel"`
	Notes      []string           `json:"import_notes"`
}

// importTask stores a file as a task: whole, or not at all.
func (a *app) importTask(ctx context.Context, in *incoming) (err error) {
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.Sweep(ctx); err != nil {
		return err
	}
	// Each import is a measurement of its own, wherever it is copied to: also a file that is
	// imported twice, with another window.
	in.task.Partial, in.task.CaptureID = true, "import-"+rand.Text()
	id, err := db.BeginTask(ctx, in.task)
	if err != nil {
		return err
	}
	if err := storeIncoming(ctx, db, id, in); err != nil {
		if gone := db.DeleteTask(context.WithoutCancel(ctx), id); gone != nil {
			return errors.Join(fmt.Errorf("%s: %w", in.path, err), fmt.Errorf("what was stored of it is not deleted: %w: the next import does that", gone))
		}
		return fmt.Errorf("%s: %w\nNothing of it was stored", in.path, err)
	}
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	r := newReport(&t, a.db)
	if a.json {
		out := importedTask{report: r, Format: in.format, File: in.path, Resolution: map[string]float64{}, Notes: append([]string{}, in.notes...)}
		for _, c := range t.Setup.Channels {
			out.Resolution[c.Name] = c.Gain
		}
		return a.printJSON(out)
	}
	renderReport(a.out, r)
	for _, n := range in.notes {
		fmt.Fprintln(a.out, " ", n)
	}
	return a.plotTask(ctx, db, &t, r)
}

// provenance says where an imported task comes from: from the file at path, which
// is called name.
func provenance(format, path, name, window string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("imported from %s (%s, SHA-256 %s) by %s; window: %s",
		name, format, hex.EncodeToString(h.Sum(nil)[:8]), madeBy(), window), nil
}

// importFile makes a second and third reading of a file possible: what cannot be
// read again, such as the standard input, is copied first, and what is compressed (gzip,
// zstd) is unpacked.
func importFile(path string, in io.Reader) (file string, done func() error, err error) {
	none := func() error { return nil }
	regular := false
	if path != "-" {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return "", none, err
		case info.IsDir():
			return "", none, withCode(exitUsage, fmt.Errorf("%s is a folder: name a file", path))
		}
		regular = info.Mode().IsRegular()
		f, err := os.Open(path)
		if err != nil {
			return "", none, err
		}
		defer f.Close()
		in = f
	}
	plain, packed, err := decompressed(in)
	if err != nil {
		return "", none, fmt.Errorf("%s: %w", path, err)
	}
	defer plain.Close()
	if regular && !packed {
		return path, none, nil
	}
	tmp, err := os.CreateTemp("", "wattmark-import-*")
	if err != nil {
		return "", none, err
	}
	file, done = unnamed(tmp)
	n, err := io.Copy(tmp, io.LimitReader(plain, maxCopied+1))
	if err == nil && n > maxCopied {
		err = fmt.Errorf("more than %d GiB to copy into %s, which is needed to read it twice: unpack it to a file, or cut it", maxCopied>>30, os.TempDir())
	}
	if err != nil {
		return "", none, errors.Join(fmt.Errorf("%s: %w", path, err), done())
	}
	return file, done, nil
}

// maxCopied bounds the copy of what cannot be read twice.
const maxCopied = 8 << 30

// unnamed takes a temporary file's name away, so that nothing is left of it however the
// program ends, and returns a path by which this process can open it. Where the system has
// no such path, done removes the file.
func unnamed(tmp *os.File) (path string, done func() error) {
	path = fmt.Sprintf("/proc/self/fd/%d", tmp.Fd())
	a, errA := os.Stat(path)
	b, errB := tmp.Stat()
	if errA == nil && errB == nil && os.SameFile(a, b) && os.Remove(tmp.Name()) == nil {
		return path, tmp.Close
	}
	return tmp.Name(), func() error { return errors.Join(tmp.Close(), os.Remove(tmp.Name())) }
}

// original is the file that is named in a task's provenance: the one that was given,
// where it can be read again, else its copy.
func original(path, copied string) string {
	if info, err := os.Stat(path); path != "-" && err == nil && info.Mode().IsRegular() {
		return path
	}
	return copied
}

// startOf is the time of day of a file's time zero.
func (f *importFlags) startOf(path string, length time.Duration) (time.Time, string, error) {
	if f.start != "" {
		t, err := time.Parse(time.RFC3339Nano, f.start)
		if err != nil {
			return t, "", withCode(exitUsage, fmt.Errorf("--start %q: want a time as in 2026-01-31T12:00:00Z", f.start))
		}
		return t, "", nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, "", err
	}
	return info.ModTime().Add(-length), "the file does not say when it was recorded: it is taken to end when it was last written (--start tells it)", nil
}
