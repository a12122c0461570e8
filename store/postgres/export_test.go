package postgres

import "time"

// Patience changes how long a silent server is waited for, and returns what changes it back.
func Patience(quiet, probe time.Duration) (back func()) {
	wasQuiet, wasProbe := silence, probing
	silence, probing = quiet, probe
	return func() { silence, probing = wasQuiet, wasProbe }
}
