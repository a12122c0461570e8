//go:build !slow

package coverage

// Slow reports whether statistical tests make all their trials.
const Slow = false
