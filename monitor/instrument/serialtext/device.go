package serialtext

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "serialtext"

const (
	readSize   = 4096
	answerTime = 5 * time.Second // an Arduino starts anew when its port is opened
	staleBytes = 1 << 18
	enough     = 6 // lines that must be read before a board counts as known
)

// Device is a microcontroller behind a serial port. It implements
// instrument.Instrument.
type Device struct {
	address string
	opts    Options
	layout  layout
	dial    func(context.Context) (transport.Conn, error)
	now     func() time.Time

	conn     transport.Conn
	identity instrument.Identity
	inputs   instrument.Inputs
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	if _, err := transport.ParseAddress(address); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	d := &Device{address: address, opts: o, now: time.Now, inputs: Inputs(o)}
	d.layout, _ = o.layout()
	d.dial = transport.Dialer(address, transport.Options{Baud: o.Baud})
	d.identity = instrument.Identity{Kind: Kind, Address: address}
	return d, nil
}

// Identity has the kind and the address: such boards tell nothing of themselves.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are the channels that the pattern names.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Open connects, sends the start text and waits until lines come that fit the
// pattern, at the rate that the options state.
func (d *Device) Open(ctx context.Context) error {
	if d.conn != nil {
		return fmt.Errorf("%s: open %s: already open", Kind, d.address)
	}
	conn, err := d.dial(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", Kind, err)
	}
	d.conn = conn
	if err := d.start(ctx); err != nil {
		_ = d.Close()
		return fmt.Errorf("%s: open %s: %w", Kind, d.address, err)
	}
	return nil
}

func (d *Device) start(ctx context.Context) error {
	limit := answerTime + time.Duration(enough/d.opts.Rate*float64(time.Second))
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := transport.Stale(short, d.conn, staleBytes); err != nil {
		return err
	}
	if err := d.send(short, d.opts.Start); err != nil {
		return err
	}
	p := newParser(d.opts, d.layout)
	buf := make([]byte, readSize)
	var stamps []int64
	for total, bad := 0, uint64(0); ; {
		n, err := d.conn.Read(short, buf)
		if err != nil {
			if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				return unanswered(total, limit, p)
			}
			return fmt.Errorf("wait for lines: %w", err)
		}
		total += n
		for b := buf[:n]; ; {
			k, ok := p.next(b)
			lines, _ := p.errors()
			bad += lines
			if b = b[k:]; !ok {
				break
			}
			if bad > 4*enough {
				return fmt.Errorf("%w: most lines do not fit the pattern: %s", instrument.ErrIdentity, p.reason())
			}
			if stamps = append(stamps, p.current().stamp); len(stamps) == enough {
				return d.checkRate(stamps)
			}
		}
	}
}

// send sends the start or stop text, if there is one.
func (d *Device) send(ctx context.Context, text string) error {
	if text == "" {
		return nil
	}
	if _, err := d.conn.Write(ctx, []byte(text)); err != nil {
		return fmt.Errorf("send %q: %w", text, err)
	}
	return nil
}

func unanswered(bytes int, limit time.Duration, p parser) error {
	if bytes == 0 {
		return fmt.Errorf("%w: nothing came within %v (is this the right port? does the board want a start text?)", instrument.ErrSilent, limit)
	}
	why := p.reason()
	if why == "" {
		why = "no end of line"
	}
	return fmt.Errorf("%w: %d bytes came within %v, but too little that fits the pattern: %s", instrument.ErrIdentity, bytes, limit, why)
}

// checkRate compares the distance of the stamps with the rate: what is lost could
// not be told with a wrong one.
func (d *Device) checkRate(stamps []int64) error {
	if d.layout.tickHz == 0 {
		return nil
	}
	var steps []int64
	for i := range stamps[1:] {
		steps = append(steps, mod(stamps[i+1]-stamps[i], stampMod))
	}
	slices.Sort(steps)
	step := float64(steps[len(steps)/2]) / d.layout.tickHz
	if ratio := step * d.opts.Rate; math.Abs(ratio-1) > 0.2 {
		return fmt.Errorf("by its own stamps the board sends a line every %.4g s, not every %.4g s: set rate: %.4g", step, 1/d.opts.Rate, 1/max(step, 1e-6))
	}
	return nil
}

// Close releases the port.
func (d *Device) Close() error {
	if d.conn == nil {
		return nil
	}
	err := d.conn.Close()
	d.conn = nil
	return err
}

// mod is the remainder that is never negative.
func mod(a, m int64) int64 { return (a%m + m) % m }
