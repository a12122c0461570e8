//go:build !unix

package files

// InUse is not known on this system: a log is taken to be in use.
func InUse(string) bool { return true }

// FreeBeside is not known on this system.
func FreeBeside(string) (free int64, known bool, err error) { return 0, false, nil }

// MayWrite is not known on this system: the write itself fails.
func MayWrite(string) bool { return true }
