//go:build !unix

package cli

// outputClosed returns false: the system has no SIGPIPE.
func outputClosed() bool { return false }
