package monitor

import "wattmark/monitor/capture"

// Captures lists the captures held, newest first, for who replicates them.
func (m *Monitor) Captures() []capture.Info { return m.owner.List() }

// Capture returns one. Errors wrap capture.ErrUnknown.
func (m *Monitor) Capture(id string) (*capture.Capture, error) { return m.owner.Get(id) }

// Replicated says that other machines have a capture: it is dropped once its host has
// released it.
func (m *Monitor) Replicated(id string) error { return m.owner.Replicated(id) }
