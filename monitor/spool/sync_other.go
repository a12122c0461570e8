//go:build !linux

package spool

import "os"

// datasync makes a file's bytes and length durable.
func datasync(f *os.File) error { return f.Sync() }
