//go:build !unix

package store

// freeBeside does not know: the disk itself says when it is full.
func freeBeside(string) (free int64, known bool, err error) { return 0, false, nil }
