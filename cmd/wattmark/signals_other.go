//go:build !unix

package main

// unread is false where the system has no SIGPIPE.
func unread() bool { return false }
