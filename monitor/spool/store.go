// Package spool keeps captures on the monitor's disk until the host has them.
//
//	<dir>/.lock                      one monitor a spool: the number of its process
//	<dir>/.waits                     how long captures have waited to be fetched
//	<dir>/<capture id>/header.json   session.Header, written once
//	<dir>/<capture id>/log           records, append-only (docs/protocol.md)
//	<dir>/<capture id>/reserve       room kept for the last records on a full disk
//	<dir>/<capture id>/released      marks: empty files, also replicated
//	<dir>/<capture id>/damaged       bytes of the log that were no record, as found
//	<dir>/<capture id>/forgotten     the first chunk with samples, and where it begins in the log, a hole before
//	<dir>/<capture id>/heads         heads of the chunks in the hole, and the other records
//
// A Store holds the captures, a Log is one capture's, a Reader walks a log while it is
// written. Readers never hold up the writer: it publishes how many bytes are whole
// records, and readers go no further. A log that is opened again is surveyed: damaged
// records become events, a torn tail is cut off.
package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/internal/flock"
	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure/session"
)

// Errors of Open, wrapped with the remedy.
var (
	// ErrLocked: another process has the spool.
	ErrLocked = errors.New("spool is in use by another monitor")
	// ErrForeign: the directory has content that no monitor wrote.
	ErrForeign = errors.New("not a spool, and not empty")
)

// Names in a spool and in a capture's directory.
const (
	headerName   = "header.json"
	logName      = "log"
	reserveName  = "reserve"
	damagedName  = "damaged"
	lockName     = ".lock"
	newSuffix    = ".new"       // a file that is being written
	removing     = ".released"  // suffix of a directory that is being deleted
	lostAndFound = "lost+found" // ext4 makes it in the root of a file system
)

// reserveSize is the room for a capture's last records on a full disk.
const reserveSize = 64 << 10

// captureName is the form of a capture's id, and so of its directory's name.
var captureName = lazy.Regexp(`^\d{8}-\d{6}-[0-9a-f]{8}$`)

// Files that a capture's directory may hold when it is removed.
var (
	begun    = []string{reserveName, headerName + newSuffix, logName} // before there is a header
	complete = append([]string{headerName, damagedName, headsName, forgottenName, forgottenName + newSuffix, string(MarkReleased), string(MarkReplicated)}, begun...)
)

// Store is a directory of captures. Its methods are safe for concurrent use on different
// captures.
type Store struct {
	dir  string
	opt  Options
	lock *os.File
	idle chan buffers // holds those of a log that was closed, for the next one
}

// Open takes a spool directory, creating it, for this process alone. Errors wrap
// ErrLocked, ErrForeign or ErrUnsafe.
func Open(dir string, opt Options) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	// dir itself may be the administrator's link; inside of it links are refused.
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = safe(real, fs.ModeDir)
	}
	if err == nil {
		err = checkForeign(real)
	}
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|noFollow, 0o644)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	if err := flock.Try(f); err != nil {
		err = fmt.Errorf("spool %s: %w%s: stop it, or name another directory", dir, ErrLocked, Holder(dir))
		return nil, errors.Join(err, f.Close())
	}
	if err := f.Truncate(0); err == nil { // on a full disk it stays empty
		_, _ = f.WriteString(strconv.Itoa(os.Getpid()))
	}
	return &Store{dir: dir, opt: opt.withDefaults(), lock: f, idle: make(chan buffers, 1)}, nil
}

// Holder names the process that took a spool last, as in " (process 4711)"; empty where that is not known.
func Holder(dir string) string {
	text, err := readSmall(filepath.Join(dir, lockName), 32)
	if _, no := strconv.Atoi(string(text)); err != nil || no != nil {
		return ""
	}
	return fmt.Sprintf(" (process %s)", text)
}

// checkForeign refuses a directory with content that has no capture and was never taken
// as a spool.
func checkForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	foreign := ""
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), removing)
		switch {
		case name == lockName || name == waitsName || captureName().MatchString(name):
			return nil
		case foreign == "" && name != lostAndFound:
			foreign = e.Name()
		}
	}
	if foreign == "" {
		return nil
	}
	return fmt.Errorf("%s: %w (it holds %s): name an empty directory, or a new one", dir, ErrForeign, foreign)
}

// Close gives the directory back; logs that are open remain so.
func (s *Store) Close() error { return flock.Close(s.lock) }

// Free returns the bytes that may still be written on the spool's disk.
func (s *Store) Free() (int64, error) { return s.opt.Free(s.dir) }

// Dir returns the spool's directory.
func (s *Store) Dir() string { return filepath.Clean(s.dir) }

// Create begins a capture. The header is durable when it returns.
func (s *Store) Create(h session.Header) (*Log, error) {
	if h.CaptureID == "" || h.CaptureID != filepath.Base(h.CaptureID) || strings.HasPrefix(h.CaptureID, ".") {
		return nil, fmt.Errorf("spool: capture id %q cannot be a directory's name", h.CaptureID)
	}
	dir := filepath.Join(s.dir, h.CaptureID)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	l, err := s.create(dir, h)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool %s: %w", h.CaptureID, err), removeFiles(dir, complete))
	}
	return l, nil
}

// create writes the reserve first, so that a disk without room for the last records refuses
// the capture, and the header last: a directory without one holds no sample.
func (s *Store) create(dir string, h session.Header) (*Log, error) {
	if err := create(filepath.Join(dir, reserveName), make([]byte, reserveSize), false); err != nil {
		return nil, err
	}
	l := newLog(dir, h, s.opt, 0)
	l.borrow(s)
	if err := l.start(); err != nil {
		return nil, err
	}
	if err := writeHeader(dir, h); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, syncDir(s.dir)
}

// Remove drops a capture, in one step whatever happens while its files are deleted.
// Removing a capture that is not there is no error.
func (s *Store) Remove(id string) error {
	dir := filepath.Join(s.dir, id)
	err := os.Rename(dir, dir+removing)
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil {
		err = syncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("spool %s: %w", id, err)
	}
	return removeFiles(dir+removing, complete)
}

// Found is a capture that was in the spool when the monitor started.
type Found struct {
	Log *Log
	// Sealed: the log ends with its capture's last state; it takes no more records.
	Sealed bool
	// Holes is the number of damaged places between good records; an event of the loss
	// stands in each now.
	Holes int
	// Torn is the number of bytes after the last good record that were cut off, and Why
	// the fault in them.
	Torn int64
	Why  string
}

// Captures opens all captures in the spool, oldest first. Each entry that cannot be read,
// or is no capture, is an error in err, stays as it is, and does not hide the others.
// Captures that never got a header hold no sample: they are removed and logged.
func (s *Store) Captures() (found []Found, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	var bad []error
	for _, e := range entries {
		f, err := s.entry(e)
		if err != nil {
			bad = append(bad, fmt.Errorf("spool: %w", err))
		}
		if f.Log != nil {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b Found) int { return a.Log.header.Created.Compare(b.Log.header.Created) })
	return found, errors.Join(bad...)
}

// entry opens or cleans up one entry of the spool.
func (s *Store) entry(e fs.DirEntry) (Found, error) {
	dir := filepath.Join(s.dir, e.Name())
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		return Found{}, fmt.Errorf("%s: %w: it is a link: left as it is", dir, ErrUnsafe)
	case !e.IsDir() && captureName().MatchString(e.Name()):
		return Found{}, fmt.Errorf("%s: %w: it is no directory: left as it is", dir, ErrUnsafe)
	case !e.IsDir() || e.Name() == lostAndFound:
		return Found{}, nil
	case strings.HasSuffix(e.Name(), removing):
		return Found{}, s.remove(dir, strings.TrimSuffix(e.Name(), removing), complete)
	}
	f, err := s.open(dir)
	if errors.Is(err, errNeverBegan) {
		err = s.remove(dir, e.Name(), begun)
	}
	return f, err
}

// errNeverBegan: the capture was interrupted before its header was written, so that it
// cannot hold a sample.
var errNeverBegan = errors.New("capture without a header")

// open opens one capture's log. Damaged records become events, a torn tail is cut off.
func (s *Store) open(dir string) (Found, error) {
	if err := safe(dir, fs.ModeDir); err != nil {
		return Found{}, err
	}
	path := filepath.Join(dir, logName)
	info, lerr := os.Lstat(path)
	h, err := readHeader(dir)
	if os.IsNotExist(err) {
		if lerr == nil && info.Size() > 0 {
			return Found{}, fmt.Errorf("%s: a log without a header: left as it is", dir)
		}
		return Found{}, errNeverBegan
	}
	if err == nil {
		err = lerr
	}
	if err == nil {
		err = safeInfo(path, info, 0)
	}
	if err != nil {
		return Found{}, err
	}
	l := newLog(dir, h, s.opt, info.Size())
	if err := l.remember(); err != nil {
		return Found{}, err
	}
	v, err := l.survey(false)
	if err != nil {
		return Found{}, err
	}
	found := Found{Log: l, Sealed: v.sealed, Holes: len(v.holes), Torn: info.Size() - v.good}
	if v.why != nil {
		found.Why = v.why.Error()
	}
	if len(v.holes) > 0 || v.why != nil {
		if err := l.mend(v); err != nil {
			return Found{}, err
		}
		known := l.prefix
		l = newLog(dir, h, s.opt, v.good)
		l.prefix = known
		found.Log = l
	}
	if v.sealed {
		return found, nil
	}
	return found, l.start()
}

// remove removes the left-over directory of a capture and logs it. A directory of another
// name, or with other files, stays as it is: the error wraps ErrUnsafe.
func (s *Store) remove(dir, id string, files []string) error {
	if !captureName().MatchString(id) {
		return fmt.Errorf("%s: %w: its name is no capture's: left as it is", dir, ErrUnsafe)
	}
	if err := removeFiles(dir, files); err != nil {
		return err
	}
	s.opt.Log.Info("removed a capture's left-over directory", "directory", dir)
	return nil
}

// removeFiles removes a directory that holds nothing but regular files of these names,
// and no log with records but no header. Otherwise nothing is removed.
func removeFiles(dir string, names []string) error {
	if err := safe(dir, fs.ModeDir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	whole := slices.Contains(names, headerName)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		full := e.Name() == logName && !whole && info.Size() > 0
		if !info.Mode().IsRegular() || !slices.Contains(names, e.Name()) || full {
			return fmt.Errorf("%s: %w: it holds %s: left as it is", dir, ErrUnsafe, e.Name())
		}
	}
	errs := lists.Map(entries, func(e fs.DirEntry) error { return os.Remove(filepath.Join(dir, e.Name())) })
	return errors.Join(append(errs, os.Remove(dir))...)
}
