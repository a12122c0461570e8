//go:build !unix

package transport

import (
	"errors"
	"io/fs"
	"os"
)

// portLock is empty where the system itself opens a port for one program only,
// as Windows does.
type portLock struct{}

// lockPort locks nothing: the system does.
func lockPort(string) (*portLock, error) { return &portLock{}, nil }

// lockAddress locks nothing: programs on this system may share an address.
func lockAddress(string) (*portLock, error) { return &portLock{}, nil }

// release has nothing to let go.
func (*portLock) release() {}

// gone reports whether an error means a device that is absent.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// ptyLine is empty here: there are no pseudo-terminals.
type ptyLine struct{ link, device string }

// lineAt is empty for every path.
func lineAt(string) ptyLine { return ptyLine{} }

// AccessHint returns the remedy for a device that this user may not open.
func AccessHint(path string) string { return "ask the administrator for access to " + path }

// Accessible reports whether a device is there; the rest shows when it is opened.
func Accessible(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Holder is not known here: the system itself keeps a second program out.
func Holder(string) (who string, ok bool) { return "", false }

// timedOut reports the system's own time-out of a message read.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
