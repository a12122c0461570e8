package rigol

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/scpi"
	"wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "rigol-ds1000z"

// Device is a DS1000Z. It implements instrument.Instrument, and delivers to an
// instrument.DeferredSink as that says.
type Device struct {
	address string
	opts    Options
	client  *scpi.Client
	now     func() time.Time
	poll    time.Duration

	open     bool
	identity instrument.Identity
	inputs   instrument.Inputs
	used     []int
	scales   []scale
	step     float64 // seconds a point
	depth    int     // points of a channel
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	if _, err := transport.ParseAddress(address); err != nil {
		return nil, fmt.Errorf("%s: %w (the scope's TCP port is 5555)", Kind, err)
	}
	d := &Device{address: address, opts: o, used: o.used(), now: time.Now, poll: 200 * time.Millisecond}
	d.client = scpi.New(scpi.Config{Address: address, Timeout: o.Timeout, Accept: accept})
	d.identity = instrument.Identity{Kind: Kind, Address: address}
	return d, nil
}

// accept refuses what is no DS1000Z: other families scale their points otherwise.
func accept(id scpi.Identity) error {
	if !strings.Contains(strings.ToUpper(id.Maker), makerPattern) || !ds1000z(id.Model) {
		return fmt.Errorf("%w: it is a %s %s, wanted a Rigol DS1000Z (DS1054Z, DS1074Z, DS1104Z, MSO1074Z, …)", instrument.ErrIdentity, id.Maker, id.Model)
	}
	return nil
}

// ds1000z tells the family by the model: DS1xx4Z and MSO1xx4Z, with suffixes.
func ds1000z(m string) bool {
	m = strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(m)), "MSO")
	m = strings.TrimPrefix(m, "DS")
	return len(m) >= 5 && m[0] == '1' && m[3] == '4' && m[4] == 'Z'
}

// Identity is the device's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are the channels in use. Their scale is known after Open.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Stats tells what the link went through.
func (d *Device) Stats() scpi.Stats { return d.client.Stats() }

// Open connects, identifies the scope, sets its channels, window and depth, and
// reads back what it took.
func (d *Device) Open(ctx context.Context) error {
	if d.open {
		return fmt.Errorf("%s: open %s: already open", Kind, d.address)
	}
	d.client.Forget() // the capture itself insists on the same scope
	err := d.client.Open(ctx)
	if err == nil {
		err = d.setUp(ctx)
	}
	if err != nil {
		_ = d.Close()
		return fmt.Errorf("%s: open %s: %w", Kind, d.address, err)
	}
	d.open = true
	return nil
}

// Close releases the link; the scope keeps its settings. It is safe to call twice.
func (d *Device) Close() error {
	d.open = false
	return d.client.Close()
}

func (d *Device) setUp(ctx context.Context) error {
	id := d.client.Identity()
	d.identity.Model, d.identity.Serial, d.identity.Firmware = id.Model, id.Serial, id.Firmware
	// Memory can be set only while the scope runs.
	setup := []string{":RUN", ":ACQ:TYPE NORM", ":TIM:MODE MAIN"}
	for n := 1; n <= channels; n++ {
		in, on := d.opts.Inputs[channelName(n)]
		if !on {
			setup = append(setup, fmt.Sprintf(":CHAN%d:DISP OFF", n))
			continue
		}
		setup = append(setup,
			fmt.Sprintf(":CHAN%d:DISP ON", n), fmt.Sprintf(":CHAN%d:COUP DC", n), fmt.Sprintf(":CHAN%d:INV OFF", n),
			fmt.Sprintf(":CHAN%d:PROB %g", n, in.ratio()), fmt.Sprintf(":CHAN%d:SCAL %g", n, in.Scale), fmt.Sprintf(":CHAN%d:OFFS %g", n, in.Offset))
	}
	t := timeScale(d.opts.Window)
	setup = append(setup, fmt.Sprintf(":TIM:MAIN:SCAL %g", t), fmt.Sprintf(":TIM:MAIN:OFFS %g", t*divisions/2),
		fmt.Sprintf(":ACQ:MDEP %d", d.opts.depth()))
	setup = append(setup, d.trigger()...)
	for _, s := range setup {
		if err := d.client.Command(ctx, s); err != nil {
			return err
		}
		// The scope drops commands that overtake it: wait for each.
		if _, err := d.client.QueryNumber(ctx, "*OPC?"); err != nil {
			return err
		}
	}
	if err := d.client.Check(ctx, "set up"); err != nil {
		return fmt.Errorf("%w: a scale or an offset that this scope does not have?", err)
	}
	return d.readBack(ctx, t)
}

// trigger sets what starts the memory: an edge from outside, or a forced trigger.
func (d *Device) trigger() []string {
	t := d.opts.Trigger
	if !t.external() {
		return d.unreachable()
	}
	return []string{
		":TRIG:MODE EDGE", fmt.Sprintf(":TRIG:EDG:SOUR CHAN%c", t.Channel[len(t.Channel)-1]), ":TRIG:EDG:SLOP POS",
		fmt.Sprintf(":TRIG:EDG:LEV %g", t.level()),
	}
}

// unreachable puts the trigger's level above what its channel can show: only a
// forced trigger shall start the memory.
func (d *Device) unreachable() []string {
	n := d.used[0]
	in := d.opts.Inputs[channelName(n)]
	const above = 4.9 // divisions; the screen ends at 4, the trigger's range at 5
	return []string{
		":TRIG:MODE EDGE", fmt.Sprintf(":TRIG:EDG:SOUR CHAN%d", n), ":TRIG:EDG:SLOP POS",
		fmt.Sprintf(":TRIG:EDG:LEV %g", above*in.Scale-in.Offset),
	}
}

// readBack learns what the scope really does, and refuses what differs in kind.
func (d *Device) readBack(ctx context.Context, t float64) error {
	depth, err := d.client.QueryNumber(ctx, ":ACQ:MDEP?")
	if err != nil {
		return err
	}
	if d.depth = d.opts.depth(); depth != float64(d.depth) {
		return fmt.Errorf("%w: memory depth %v after %d was set", scpi.ErrInstrument, depth, d.depth)
	}
	if got, err := d.client.QueryNumber(ctx, ":TIM:MAIN:SCAL?"); err != nil {
		return err
	} else if math.Abs(got/t-1) > 1e-3 {
		return fmt.Errorf("%w: %v s a division after %v was set", scpi.ErrInstrument, got, t)
	}
	d.scales, d.inputs.Channels = nil, nil
	for i, n := range d.used {
		p, err := d.preamble(ctx, n)
		if err != nil {
			return err
		}
		s := scale{increment: p.YIncrement, origin: p.YOrigin, reference: p.YReference}
		if s.volts, err = d.client.QueryNumber(ctx, fmt.Sprintf(":CHAN%d:SCAL?", n)); err != nil {
			return err
		}
		if i > 0 && p.XIncrement != d.step {
			return fmt.Errorf("%w: channels of %v and %v s a point", scpi.ErrInstrument, d.step, p.XIncrement)
		}
		d.step = p.XIncrement
		d.scales = append(d.scales, s)
		name := channelName(n)
		d.inputs.Channels = append(d.inputs.Channels, d.opts.Inputs[name].channel(name, s))
	}
	rate, err := d.client.QueryNumber(ctx, ":ACQ:SRAT?")
	if err != nil {
		return err
	}
	if !(rate > 0) || math.Abs(d.step*rate-1) > 1e-3 {
		return fmt.Errorf("%w: %v S/s, but %v s a point", scpi.ErrInstrument, rate, d.step)
	}
	const tickHz = 1e9
	d.inputs.Timebase = measure.Timebase{TickHz: tickHz, UTickHz: clockLimit / math.Sqrt(3), TicksPerScan: d.step * tickHz}
	return nil
}

// preamble selects a channel's deep memory and asks how its codes are scaled.
func (d *Device) preamble(ctx context.Context, channel int) (scpi.Preamble, error) {
	for _, s := range []string{fmt.Sprintf(":WAV:SOUR CHAN%d", channel), ":WAV:MODE RAW", ":WAV:FORM BYTE"} {
		if err := d.client.Command(ctx, s); err != nil {
			return scpi.Preamble{}, err
		}
	}
	p, err := scpi.Ask(ctx, d.client, ":WAV:PRE?", scpi.ParsePreamble)
	if err == nil && p.Format != 0 {
		err = fmt.Errorf("%w: format %d of the points after BYTE was set", scpi.ErrInstrument, p.Format)
	}
	return p, err
}
