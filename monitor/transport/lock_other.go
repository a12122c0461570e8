//go:build !unix

package transport

import (
	"errors"
	"io/fs"
)

// portLock is empty where the system itself opens a port for one program only,
// as Windows does.
type portLock struct{}

func lockPort(string) (*portLock, error) { return &portLock{}, nil }

func lockAddress(string) (*portLock, error) { return &portLock{}, nil }

func (*portLock) release() {}

// gone tells the errors of a device that is not there, or no more.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// ptyLine tells nothing here: there are no pseudo-terminals.
type ptyLine struct{ link, device string }

func lineAt(string) ptyLine { return ptyLine{} }
