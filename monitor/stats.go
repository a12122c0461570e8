package monitor

import "wattmark/monitor/capture"

// Stats counts what the bench's captures came to.
func (m *Monitor) Stats() capture.Stats { return m.owner.Stats() }
