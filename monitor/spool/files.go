package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/wattmark/wattmark/measure/session"
	"golang.org/x/sys/unix"
)

// headerFormat is the version of the spool's layout.
const headerFormat = 1

// headerFile is a capture's header.json.
type headerFile struct {
	Format int `json:"format"`
	// Sum is the CRC-32C of the file with zeros in its place; files of early versions
	// have none.
	Sum string `json:"sum,omitempty"`
	session.Header
}

// State is a step of a capture's life in its log. Trigger is a number of the capture's
// state machine, which this package does not know.
type State struct {
	State   session.State `json:"state"`
	Trigger uint8         `json:"trigger"`
	At      time.Time     `json:"at"`
	// Reason of an incomplete capture.
	Reason string `json:"reason,omitempty"`
	// Started is the monitor's wall clock at device time zero, once known.
	Started time.Time `json:"started,omitzero"`
	// Final: no record follows.
	Final bool `json:"final,omitempty"`
}

// writeHeader writes the header durably; it is there whole or not at all.
func writeHeader(dir string, h session.Header) error {
	b, err := json.MarshalIndent(headerFile{headerFormat, noSum, h}, "", "  ")
	if err != nil {
		return fmt.Errorf("spool header: %w", err)
	}
	if err := replaceFile(filepath.Join(dir, headerName), withSum(b, noSum, sumOf(b)), true); err != nil {
		return err
	}
	return syncDir(dir)
}

// readHeader reads and verifies a header: format, checksum, directory and setup.
func readHeader(dir string) (session.Header, error) {
	path := filepath.Join(dir, headerName)
	b, err := readSmall(path, 16<<20) // one with 64 channels has 30 kB
	if err != nil {
		return session.Header{}, err
	}
	var h headerFile
	if err := json.Unmarshal(b, &h); err != nil {
		return h.Header, fmt.Errorf("%s: %w", path, err)
	}
	switch sum := sumOf(withSum(b, h.Sum, noSum)); {
	case h.Format != headerFormat:
		return h.Header, fmt.Errorf("%s: format %d, this version reads %d", dir, h.Format, headerFormat)
	case h.Sum != "" && h.Sum != sum:
		return h.Header, fmt.Errorf("%s: damaged: its checksum is %s, want %s", path, sum, h.Sum)
	case h.CaptureID != filepath.Base(dir):
		return h.Header, fmt.Errorf("%s: is the header of capture %q", dir, h.CaptureID)
	}
	if err := h.Setup.Validate(); err != nil {
		return h.Header, fmt.Errorf("%s: %w", dir, err)
	}
	return h.Header, nil
}

// noSum stands in a header's text for its checksum while that is computed.
const noSum = "00000000"

func sumOf(text []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)) }

// withSum replaces the checksum in a header's text. Inside a value its quotes would be
// escaped, so only the field itself matches.
func withSum(text []byte, was, is string) []byte {
	const field = `"sum": "%s"`
	return bytes.Replace(text, fmt.Appendf(nil, field, was), fmt.Appendf(nil, field, is), 1)
}

// waitsName is a file beside the captures: {"capture": seconds}, the time for which each
// that has ended has waited to be fetched. Losing it costs waiting time, no samples.
const waitsName = ".waits"

// Waits returns the times that captures had waited to be fetched at the last PutWaits,
// by id; none where it never was called.
func (s *Store) Waits() (map[string]time.Duration, error) {
	b, err := readSmall(filepath.Join(s.dir, waitsName), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	return parseWaits(b)
}

// parseWaits checks the stored times: none negative, none beyond a century.
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

// PutWaits stores the times that captures have waited, for the next monitor; it removes
// the file where there are none.
func (s *Store) PutWaits(waits map[string]time.Duration) error {
	path := filepath.Join(s.dir, waitsName)
	seconds := make(map[string]float64, len(waits))
	for id, d := range waits {
		seconds[id] = d.Seconds()
	}
	b, err := json.Marshal(seconds)
	if err == nil {
		err = safe(path, 0)
	}
	switch {
	case len(waits) == 0:
		err = removeIfThere(path)
	case err == nil || errors.Is(err, fs.ErrNotExist):
		err = replaceFile(path, b, false)
	}
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}

// Mark is a fact about a capture beside its log: an empty file.
type Mark string

// The marks.
const (
	MarkReleased   Mark = "released"   // the host has the samples
	MarkReplicated Mark = "replicated" // other machines have the samples
)

// Mark puts a mark on a capture, durably. Marking it again is no error.
func (s *Store) Mark(id string, m Mark) error {
	dir := filepath.Join(s.dir, id)
	err := create(filepath.Join(dir, string(m)), nil, false)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err = errors.Join(err, syncDir(dir)); err != nil {
		return fmt.Errorf("spool %s: mark it %s: %w", id, m, err)
	}
	return nil
}

// Marked reports whether a capture bears a mark.
func (s *Store) Marked(id string, m Mark) bool {
	_, err := os.Lstat(filepath.Join(s.dir, id, string(m)))
	return err == nil
}

// ErrUnsafe: a file or directory in the spool was not put there by this monitor.
var ErrUnsafe = errors.New("not this monitor's own")

// openRead opens a file of the spool, but no link, and nothing that others may have put
// there. Errors wrap ErrUnsafe.
func openRead(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = safeInfo(path, info, 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readSmall reads a whole file of at most limit bytes.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := openRead(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("larger than %d bytes", limit)}
	}
	return b, err
}

// change opens a file for writing, with more flags of os.OpenFile, and calls do with it. durable syncs its bytes.
func change(path string, flags int, durable bool, do func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|noFollow|flags, 0o644)
	if err != nil {
		return err
	}
	err = do(f)
	if err == nil && durable {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// create makes a file that was not there.
func create(path string, b []byte, durable bool) error {
	return change(path, os.O_CREATE|os.O_EXCL, durable, func(f *os.File) error {
		_, err := f.Write(b)
		return err
	})
}

// replaceFile writes a file under another name and renames it, so that it is there whole
// or as before. durable syncs its bytes; the name is the caller's to sync.
func replaceFile(path string, b []byte, durable bool) error {
	tmp := path + newSuffix
	if err := removeIfThere(tmp); err != nil {
		return err
	}
	err := create(tmp, b, durable)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(tmp))
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncDir makes names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// freeBytes returns the bytes that a user may still write on a directory's disk.
func freeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// noFollow makes an open fail on a link that was planted in place of a file of the
// spool, and return at once on a pipe.
const noFollow = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK

// safe refuses an entry of the spool that is not of type want, is another user's, or may
// be changed by others. Errors wrap ErrUnsafe.
func safe(path string, want fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return safeInfo(path, info, want)
}

func safeInfo(path string, info fs.FileInfo, want fs.FileMode) error {
	mode := info.Mode()
	if mode.Type() != want {
		return fmt.Errorf("%s: %w: it is %v: left as it is", path, ErrUnsafe, mode.Type())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: %w: it belongs to user %d, this monitor runs as %d: left as it is; chown -R %[4]d %[1]s, "+
			"or run the monitor as user %[3]d", path, ErrUnsafe, st.Uid, os.Geteuid())
	}
	// In a sticky directory as /tmp others may add files, but not touch ours.
	if mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("%s: %w: everybody may write there (mode %#o): chmod o-w", path, ErrUnsafe, mode.Perm())
	}
	return nil
}
