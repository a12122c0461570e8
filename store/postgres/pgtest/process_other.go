//go:build !linux

package pgtest

import "syscall"

// attributes runs a process as another user.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as}
}
