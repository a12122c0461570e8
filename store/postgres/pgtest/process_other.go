//go:build !linux

package pgtest

import "syscall"

// attributes runs a process as somebody.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as}
}
