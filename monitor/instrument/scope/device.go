package scope

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/scpi"
	"wattmark/monitor/transport"
)

// Config says which scope, where, and how it is set.
type Config struct {
	Family  *Family
	Address string
	Options Options
	// Poll is how often the state is asked for while it samples; default 200 ms.
	Poll time.Duration
	// Quiet and Stale are the SCPI client's.
	Quiet, Stale time.Duration
}

// Device is a scope. It implements instrument.Instrument, and delivers to an
// instrument.DeferredSink as that says.
type Device struct {
	cfg     Config
	client  *scpi.Client
	dialect Dialect
	now     func() time.Time

	open     bool
	identity instrument.Identity
	inputs   instrument.Inputs
	plan     *Plan
	mem      Memory
	scales   []Scale
}

// New makes a driver; nothing is opened yet.
func New(cfg Config) (*Device, error) {
	f := cfg.Family
	cfg.Options.family = f
	if err := cfg.Options.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Kind, err)
	}
	if _, err := transport.ParseAddress(cfg.Address); err != nil {
		return nil, fmt.Errorf("%s: %w (the scope's TCP port is %d)", f.Kind, err, f.Port)
	}
	if cfg.Poll <= 0 {
		cfg.Poll = 200 * time.Millisecond
	}
	d := &Device{cfg: cfg, dialect: f.Dialect(), now: time.Now}
	d.client = scpi.New(scpi.Config{
		Address: cfg.Address, Timeout: cfg.Options.Timeout, Accept: f.Accept, Quiet: cfg.Quiet, Stale: cfg.Stale,
	})
	d.identity = instrument.Identity{Kind: f.Kind, Address: cfg.Address}
	return d, nil
}

// Identity is the device's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Codes is how codes stand in the scope's answers; known after Open.
func (d *Device) Codes() Codes { return d.mem.Codes }

// Inputs are the channels in use. Their scale is known after Open.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Stats tells what the link went through.
func (d *Device) Stats() scpi.Stats { return d.client.Stats() }

// Open connects, identifies the scope, sets its channels, window and depth, and
// reads back what it took.
func (d *Device) Open(ctx context.Context) error {
	if d.open {
		return fmt.Errorf("%s: open %s: already open", d.cfg.Family.Kind, d.cfg.Address)
	}
	d.client.Forget() // the capture itself insists on the same scope
	err := d.client.Open(ctx)
	if err == nil {
		err = d.setUp(ctx)
	}
	if err != nil {
		_ = d.Close()
		return fmt.Errorf("%s: open %s: %w", d.cfg.Family.Kind, d.cfg.Address, err)
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
	m, _ := Identify(id)
	var err error
	if d.plan, err = d.cfg.Options.plan(d.cfg.Family, m); err != nil {
		return err
	}
	if _, err = again(ctx, func() (any, error) { return nil, d.dialect.SetUp(ctx, d.client, d.plan) }); err != nil {
		return err
	}
	switch err := d.check(ctx); {
	case errors.Is(err, instrument.ErrIdentity):
		return err
	case err != nil:
		return fmt.Errorf("%w: a scale or an offset that this scope does not have?", err)
	}
	if d.mem, err = again(ctx, func() (Memory, error) { return d.dialect.ReadBack(ctx, d.client, d.plan) }); err != nil {
		return err
	}
	if err := d.mem.validate(); err != nil {
		return err
	}
	return d.learn(ctx)
}

// check asks the scope for complaints.
func (d *Device) check(ctx context.Context) error {
	if own, ok := d.dialect.(Checker); ok {
		return own.Check(ctx, d.client)
	}
	return d.client.Check(ctx, "set up")
}

// validate guards what all arithmetic rests on.
func (m Memory) validate() error {
	const most = 1 << 30
	if m.Points < 1 || m.Points > most || !(m.Step > 0) || math.IsInf(m.Step, 0) || m.Piece < 1 || m.Codes.Bytes < 1 || m.Codes.Bytes > 2 {
		return fmt.Errorf("%w: a memory of %d points, %v s apart", scpi.ErrInstrument, m.Points, m.Step)
	}
	return nil
}

// learn asks for the scale of each channel and makes the inputs.
func (d *Device) learn(ctx context.Context) error {
	spec := d.cfg.Family.Spec
	d.scales, d.inputs.Channels = nil, nil
	for _, n := range d.plan.Used {
		s, err := d.scale(ctx, n)
		if err != nil {
			return err
		}
		if abs(s.Step/d.mem.Step-1) > 1e-3 {
			return fmt.Errorf("%w: %v s a point on channel %d, %v s by its rate", scpi.ErrInstrument, s.Step, n, d.mem.Step)
		}
		d.scales = append(d.scales, s)
		in, _ := d.plan.On(n)
		d.inputs.Channels = append(d.inputs.Channels, spec.channel(ChannelName(n), in, s))
	}
	d.mem.Step = d.scales[0].Step // the preamble has more digits than the rate
	for _, s := range d.scales {
		if s.Step != d.mem.Step {
			return fmt.Errorf("%w: channels of %v and %v s a point", scpi.ErrInstrument, d.mem.Step, s.Step)
		}
	}
	const tickHz = 1e9
	d.inputs.Timebase = measure.Timebase{TickHz: tickHz, UTickHz: spec.Clock / math.Sqrt(3), TicksPerScan: d.mem.Step * tickHz}
	return nil
}

// scale asks for a channel's scale and refuses what cannot be one.
func (d *Device) scale(ctx context.Context, channel int) (Scale, error) {
	s, err := again(ctx, func() (Scale, error) { return d.dialect.Scale(ctx, d.client, channel) })
	if err != nil {
		return s, err
	}
	for _, v := range []float64{s.Gain, s.Zero, s.Division, s.Step, s.Begin} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return s, fmt.Errorf("%w: channel %d is scaled by %+v", scpi.ErrInstrument, channel, s)
		}
	}
	if s.Gain == 0 || !(s.Step > 0) || !(s.Division > 0) {
		return s, fmt.Errorf("%w: channel %d is scaled by %+v", scpi.ErrInstrument, channel, s)
	}
	return s, nil
}

// again repeats what changes nothing while the link can be brought back: the
// acquisition goes on in the scope without us. A scope that was asked too soon
// gets a moment.
func again[T any](ctx context.Context, f func() (T, error)) (v T, err error) {
	const tries, moment = 3, 100 * time.Millisecond
	for n := range time.Duration(tries) {
		v, err = f()
		if err == nil || ctx.Err() != nil || !retryable(err) {
			return v, err
		}
		if errors.Is(err, ErrFewer) {
			if err := Pause(ctx, moment<<n); err != nil {
				return v, err
			}
		}
	}
	return v, err
}

func retryable(err error) bool {
	return errors.Is(err, instrument.ErrSilent) || errors.Is(err, instrument.ErrDisconnected) || errors.Is(err, scpi.ErrReply) || errors.Is(err, ErrFewer)
}
