//go:build !race

package monitor

const racing = false
