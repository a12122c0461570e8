//go:build !linux

// Package pty opens pseudo-terminals; on this system it cannot yet.
package pty

import (
	"errors"
	"fmt"
	"os"
)

// Open fails: use a TCP line instead.
func Open() (master *os.File, slavePath string, err error) {
	return nil, "", fmt.Errorf("pty: pseudo-terminals are built for Linux only: listen on TCP instead: %w",
		errors.ErrUnsupported)
}

// Port is the device's end of a serial line. It cannot be made here.
type Port struct{ *os.File }

// OpenPort fails as Open does.
func OpenPort() (*Port, error) {
	_, _, err := Open()
	return nil, err
}

// Path is the path for a driver to open.
func (p *Port) Path() string { return "" }

// Unread is the number of bytes that wait for the driver.
func (p *Port) Unread() (int, error) { return 0, errors.ErrUnsupported }
