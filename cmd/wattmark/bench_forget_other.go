//go:build !linux

package main

// forget would have the system drop what it keeps of a file; here it cannot be asked
// to, so what is called cold is not.
func forget(string) error { return nil }
