package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrLocked: another process has the spool.
var ErrLocked = errors.New("spool is in use by another monitor")

// removing marks directories that were released and are being deleted.
const removing = ".released"

// Store is a directory of captures. Its methods are safe for concurrent use on
// different captures.
type Store struct {
	dir  string
	opt  Options
	lock *os.File

	mu   sync.Mutex
	idle []buffers // of logs that were closed, for the next ones
}

// ErrForeign: the directory holds what no monitor put there.
var ErrForeign = errors.New("not a spool, and not empty")

// lostAndFound is the directory that ext4 makes in the root of a file system.
const lostAndFound = "lost+found"

// Open takes a spool directory, creating it, for this process alone. Errors
// wrap ErrLocked when another process has it, and ErrForeign for a directory with
// other content that never was a spool.
func Open(dir string, opt Options) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	// A link to a folder elsewhere is the administrator's; what lies in it is ours.
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = safe(real, fs.ModeDir)
	}
	if err == nil {
		err = ours(real)
	}
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|noFollow, 0o644)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("spool %s: %w: stop it, or name another directory", dir, ErrLocked), f.Close())
	}
	return &Store{dir: dir, opt: opt.withDefaults(), lock: f}, nil
}

// ours refuses a directory that holds something, but no capture, and was never taken as
// a spool.
func ours(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), removing)
		if name == lockName || name == waitsName || captureName.MatchString(name) {
			return nil
		}
	}
	for _, e := range entries {
		if e.Name() != lostAndFound {
			return fmt.Errorf("%s: %w (it holds %s): name an empty directory, or a new one", dir, ErrForeign, e.Name())
		}
	}
	return nil
}

// Close lets go of the directory; logs that are open remain so.
func (s *Store) Close() error { return s.lock.Close() }

// Create begins a capture. When it returns, the capture's header is durable.
func (s *Store) Create(h Header) (*Log, error) {
	if h.CaptureID == "" || h.CaptureID != filepath.Base(h.CaptureID) || strings.HasPrefix(h.CaptureID, ".") {
		return nil, fmt.Errorf("spool: capture id %q cannot be a directory's name", h.CaptureID)
	}
	dir := filepath.Join(s.dir, h.CaptureID)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	l, err := s.create(dir, h)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool %s: %w", h.CaptureID, err), removeFiles(dir, released))
	}
	return l, nil
}

func (s *Store) create(dir string, h Header) (*Log, error) {
	h.Format = headerFormat
	if err := create(filepath.Join(dir, reserveName), make([]byte, reserveSize)); err != nil {
		return nil, err
	}
	l := newLog(dir, h, s.opt, 0)
	l.lend(s)
	if err := l.start(); err != nil {
		return nil, err
	}
	if err := writeHeader(dir, h); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, syncDir(s.dir)
}

// Remove drops a capture. It is gone in one step, whatever happens while its
// files are deleted. Removing what is not there is no error.
func (s *Store) Remove(id string) error {
	dir := filepath.Join(s.dir, id)
	if err := os.Rename(dir, dir+removing); err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return fmt.Errorf("spool %s: %w", id, err)
	}
	if err := syncDir(s.dir); err != nil {
		return fmt.Errorf("spool %s: %w", id, err)
	}
	return removeFiles(dir+removing, released)
}

// Found is a capture that was in the spool when the monitor started.
type Found struct {
	Log *Log
	// Sealed says that the log ends with its capture's last state; it takes no
	// more records.
	Sealed bool
	// Holes is the number of places between good records that were damaged; an event
	// of what is lost stands there now.
	Holes int
	// Torn is the number of bytes after the last good record that were cut off,
	// and Why what was wrong with them.
	Torn int64
	Why  string
}

// Captures opens all captures in the spool, oldest first. What cannot be read, or is
// no capture, is reported in err, left as it is, and does not hide the others. Captures
// that never got as far as a header hold no sample; they are removed, and logged.
func (s *Store) Captures() (found []Found, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	var bad []error
	for _, e := range entries {
		dir := filepath.Join(s.dir, e.Name())
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			bad = append(bad, fmt.Errorf("spool: %s: %w: it is a link: left as it is", dir, ErrUnsafe))
		case !e.IsDir() && captureName.MatchString(e.Name()):
			bad = append(bad, fmt.Errorf("spool: %s: %w: it is no directory: left as it is", dir, ErrUnsafe))
		case !e.IsDir() || e.Name() == lostAndFound:
		case strings.HasSuffix(e.Name(), removing):
			if err := s.remove(dir, strings.TrimSuffix(e.Name(), removing), released); err != nil {
				bad = append(bad, fmt.Errorf("spool: %w", err))
			}
		default:
			f, err := s.open(dir)
			if errors.Is(err, errNeverBegan) {
				err = s.remove(dir, e.Name(), begun)
			}
			if err != nil {
				bad = append(bad, fmt.Errorf("spool: %w", err))
			}
			if f.Log != nil {
				found = append(found, f)
			}
		}
	}
	slices.SortFunc(found, func(a, b Found) int { return a.Log.header.Created.Compare(b.Log.header.Created) })
	return found, errors.Join(bad...)
}
