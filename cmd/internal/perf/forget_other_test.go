//go:build !linux

package perf

// forget does nothing: this system cannot be asked to drop the pages of a file, so reads
// labelled cold come from memory.
func forget(string) error { return nil }
