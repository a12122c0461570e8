package u2300

import (
	"context"
	"net"
	"time"

	"wattmark/monitor/scpi"
	"wattmark/monitor/transport"
)

// quick makes opening cheap: it waits for a silent line no longer than it must.
func (d *Device) quick() {
	cfg := d.config()
	cfg.Quiet, cfg.Stale = time.Millisecond, -1
	d.client = scpi.New(cfg)
}

// dial puts the driver on pipes, for virtual time.
func (d *Device) dial(open func() net.Conn) {
	cfg := d.config()
	cfg.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(open()), nil }
	d.client = scpi.New(cfg)
}
