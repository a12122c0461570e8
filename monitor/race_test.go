//go:build race

package monitor

// racing: the race detector makes all of it slower by an order of magnitude.
const racing = true
