//go:build !unix

package spool

import "os"

// lock does nothing where there is no flock: two monitors must not be given
// one spool there.
func lock(*os.File) error { return nil }
