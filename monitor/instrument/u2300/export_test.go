package u2300

import (
	"time"

	"wattmark/monitor/scpi"
)

// quick makes opening cheap: it waits for a silent line no longer than it must.
func (d *Device) quick() {
	d.client = scpi.New(scpi.Config{Address: d.address, Timeout: d.opts.Timeout, Quiet: time.Millisecond, Stale: -1})
}
