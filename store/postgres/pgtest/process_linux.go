package pgtest

import "syscall"

// attributes runs a process as somebody, and ends it with the test.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
}
