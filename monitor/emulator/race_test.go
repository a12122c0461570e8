//go:build race

package emulator_test

const raceEnabled = true
