// Package scope drives oscilloscopes as deferred instruments: one single
// acquisition into deep memory between start and stop, read afterwards.
//
//	Device (this package)                      Dialect (a family's package)
//	Open    connect, identify                ─▶ SetUp, then the error queue, ReadBack, Scale
//	Stream  arm, wait until it waits         ─▶ Arm, State, Force ─▶ Armed
//	        until ctx ends: the scope samples ─▶ State; then Stop
//	        Held, then piece by piece, channel by channel ─▶ Read ─▶ Blocks
//
// A family is a Family (its properties without a scope) with a Dialect (its
// commands), and rows in the table of models. Retries, reconnection, progress,
// time, and the account of losses are the Device's alone.
//
// Where the options name a trigger from outside, an edge on one of the inputs, it is
// waited for instead of forced.
//
// The trigger stands at the left edge, so that memory holds the FIRST
// points of the capture: time zero is known when it begins. A capture longer
// than the window ends in a gap.
package scope

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/scpi"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Config names the scope, where, and how it is set.
type Config struct {
	Family  *Family
	Address string
	Options Options
	// Poll is how often the state is asked for while it samples; default 200 ms.
	Poll time.Duration
	// Quiet and Stale are the SCPI client's.
	Quiet, Stale time.Duration
}

// Device is a scope. It implements instrument.Instrument, and is deferred: see
// instrument.Sink.
type Device struct {
	instrument.Base
	cfg     Config
	client  *scpi.Client
	dialect Dialect
	plan    *Plan
	mem     Memory
	scales  []Scale
}

// New makes a driver; nothing is opened yet.
func New(cfg Config) (*Device, error) {
	f := cfg.Family
	cfg.Options.family = f
	cfg.Poll = cmp.Or(max(cfg.Poll, 0), 200*time.Millisecond)
	d := &Device{cfg: cfg, dialect: f.Dialect(), client: scpi.New(scpi.Config{
		Address: cfg.Address, Timeout: cfg.Options.Timeout, Accept: f.Accept, Quiet: cfg.Quiet, Stale: cfg.Stale,
	})}
	err := instrument.Init(&d.Base, f.Kind, cfg.Address, cfg.Options, transport.Options{}, nil)
	if errors.Is(err, transport.ErrAddress) {
		err = fmt.Errorf("%w (the scope's TCP port is %d)", err, f.Port)
	}
	d.Run, d.Dial, d.Release = d.stream, nil, d.client.Close // the client holds the link
	d.Steps = []instrument.Step{d.client.OpenAny, d.setUp}   // the capture itself insists on the same scope
	return d, err
}

// Codes is how codes stand in the scope's answers; known after Open.
func (d *Device) Codes() Codes { return d.mem.Codes }

// Stats returns the faults of the link so far.
func (d *Device) Stats() scpi.Stats { return d.client.Stats() }

// setUp sets the plan for this model, reads back the scope's choices, and learns the scale of each
// channel. Settings are repeated where the link broke meanwhile.
func (d *Device) setUp(ctx context.Context) error {
	id := d.client.Identity()
	d.Identify(id.Model, id.Serial, id.Firmware)
	m, _ := Identify(id)
	var err error
	if d.plan, err = d.cfg.Options.plan(d.cfg.Family, m); err != nil {
		return err
	}
	if _, err = again(ctx, d, func(l *Link) any { d.dialect.SetUp(l, d.plan); return nil }); err != nil {
		return err
	}
	l := d.client.Link(ctx)
	d.dialect.Check(l)
	switch {
	case errors.Is(l.Err, instrument.ErrIdentity):
		return l.Err
	case l.Err != nil:
		return fmt.Errorf("%w: a scale or an offset that this scope does not have?", l.Err)
	}
	if d.mem, err = again(ctx, d, func(l *Link) Memory { return d.dialect.ReadBack(l, d.plan) }); err != nil {
		return err
	}
	const most = 1 << 30 // guards the numbers that all arithmetic rests on
	if m := d.mem; m.Points < 1 || m.Points > most || !(m.Step > 0) || math.IsInf(m.Step, 0) || m.Piece < 1 ||
		m.Codes.Bytes < 1 || m.Codes.Bytes > 2 {
		return fmt.Errorf("%w: a memory of %d points, %v s apart", scpi.ErrInstrument, m.Points, m.Step)
	}
	return d.learn(ctx)
}

// learn asks for the scale of each channel and makes the inputs.
func (d *Device) learn(ctx context.Context) error {
	spec := d.cfg.Family.Spec
	d.scales, d.In.Channels = nil, nil
	for _, n := range d.plan.Used {
		s, err := d.scale(ctx, n)
		if err != nil {
			return err
		}
		if math.Abs(s.Step/d.mem.Step-1) > 1e-3 {
			return fmt.Errorf("%w: %v s a point on channel %d, %v s by its rate", scpi.ErrInstrument, s.Step, n, d.mem.Step)
		}
		d.scales = append(d.scales, s)
		in, _ := d.plan.On(n)
		d.In.Channels = append(d.In.Channels, spec.channel(ChannelName(n), in, s))
	}
	d.mem.Step = d.scales[0].Step // the preamble has more digits than the rate
	for _, s := range d.scales {
		if s.Step != d.mem.Step {
			return fmt.Errorf("%w: channels of %v and %v s a point", scpi.ErrInstrument, d.mem.Step, s.Step)
		}
	}
	const tickHz = 1e9
	d.In.Timebase = measure.Timebase{
		TickHz: tickHz, UTickHz: spec.Clock / math.Sqrt(3), TicksPerScan: d.mem.Step * tickHz,
	}
	return nil
}

// scale asks for a channel's scale and refuses an impossible one.
func (d *Device) scale(ctx context.Context, channel int) (Scale, error) {
	s, err := again(ctx, d, func(l *Link) Scale { return d.dialect.Scale(l, channel) })
	if err != nil {
		return s, err
	}
	odd := func(v float64) bool { return !measure.Known(v) }
	if slices.ContainsFunc([]float64{s.Gain, s.Zero, s.Division, s.Step, s.Begin}, odd) || s.Gain == 0 ||
		!(s.Step > 0) || !(s.Division > 0) {
		return s, fmt.Errorf("%w: channel %d is scaled by %+v", scpi.ErrInstrument, channel, s)
	}
	return s, nil
}

// again repeats queries, which change nothing, while the link can be brought back: the
// acquisition goes on in the scope without us. A scope that was asked too soon
// gets a moment.
func again[T any](ctx context.Context, d *Device, f func(*Link) T) (v T, err error) {
	const tries, moment = 3, 100 * time.Millisecond
	for n := range time.Duration(tries) {
		l := d.client.Link(ctx)
		v = f(l)
		if err = l.Err; err == nil || ctx.Err() != nil || !errors.Is(err, instrument.ErrSilent) &&
			!errors.Is(err, instrument.ErrDisconnected) && !errors.Is(err, scpi.ErrReply) && !errors.Is(err, ErrFewer) {
			return v, err
		}
		if errors.Is(err, ErrFewer) {
			if err := backoff.Sleep(ctx, moment<<n); err != nil {
				return v, err
			}
		}
	}
	return v, err
}

// Input is how one channel is set.
type Input struct {
	// Scale is volts a division at the probe's tip; many scopes have steps of 1, 2,
	// 5 and round up. Eight divisions are the range.
	Scale float64 `yaml:"scale"`
	// Offset is added before the converter: −12 puts 12 V in the middle of the range.
	Offset float64 `yaml:"offset"`
	// Probe is the probe's ratio; default 1.
	Probe float64 `yaml:"probe"`
	// AmperePerVolt makes the channel a current: the scale of a clamp; 0 for none.
	AmperePerVolt float64 `yaml:"ampere_per_volt"`
}

// Ratio is the probe's.
func (i Input) Ratio() float64 { return cmp.Or(i.Probe, 1) }

// Options are the settings of a scope in a bench file. Family.Defaults makes them.
type Options struct {
	// Window is the time that memory has to span; the scope's next larger one is
	// taken. Default 6 s.
	Window time.Duration `yaml:"window"`
	// Depth is the memory depth of one channel in points; 0 for the deepest that is
	// read within seconds: 12 million points over all channels.
	Depth int `yaml:"depth"`
	// Inputs are the channels in use by name, ch1 to ch4.
	Inputs map[string]Input `yaml:"inputs"`
	// Timeout bounds one exchange; default 5 s.
	Timeout time.Duration `yaml:"timeout"`
	// Trigger makes the acquisition wait for a rising edge, as another scope's
	// trigger output gives it; without it the driver forces the trigger.
	Trigger Trigger `yaml:"trigger"`

	family *Family
}

// Validate reports an option that cannot be used with any scope of the family.
func (o Options) Validate() error {
	f := o.family
	if f == nil {
		return errors.New("options of no family of scopes: begin with its Defaults")
	}
	if err := cmp.Or(
		instrument.Within("window", o.Window, time.Microsecond, f.MaxWindow, fmt.Sprintf("1µs to %v", f.MaxWindow)),
		instrument.Within("timeout", o.Timeout, 100*time.Millisecond, 5*time.Minute, "100ms to 5m"),
	); err != nil {
		return err
	}
	if err := o.validInputs(f); err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	if err := o.validTrigger(); err != nil {
		return fmt.Errorf("trigger: %w", err)
	}
	return o.validDepth(f, Model{Channels: f.Channels, Memory: f.Memory})
}

// validInputs reports an input that the family does not have, or whose scale is out of range.
func (o Options) validInputs(f *Family) error {
	if len(o.Inputs) == 0 {
		return fmt.Errorf("no channel: name one of ch1 to ch%d", f.Channels)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Inputs)) {
		if len(name) != 3 || name[:2] != "ch" || name[2] < '1' || int(name[2]-'0') > f.Channels {
			return fmt.Errorf("unknown channel %q: want ch1 to ch%d", name, f.Channels)
		}
		in := o.Inputs[name]
		ratio := in.Ratio()
		least, most := f.MinScale*ratio, f.MaxScale*ratio
		switch {
		case !(ratio >= 0.01 && ratio <= 1000):
			return fmt.Errorf("%s: probe %v: want 0.01 to 1000", name, ratio)
		case !(in.Scale >= least && in.Scale <= most):
			return fmt.Errorf("%s: scale %v V: want %v to %v V a division with this probe", name, in.Scale, least, most)
		case !(math.Abs(in.Offset) <= f.MaxOffset*ratio):
			return fmt.Errorf("%s: offset %v V: want at most ±%v V with this probe", name, in.Offset, f.MaxOffset*ratio)
		case !measure.Known(in.AmperePerVolt):
			return fmt.Errorf("%s: ampere_per_volt %v: must be finite", name, in.AmperePerVolt)
		}
	}
	return nil
}

// validDepth reports a depth that is none of the family's.
func (o Options) validDepth(f *Family, m Model) error {
	known := f.depths(m, len(o.Inputs))
	switch {
	case o.Depth == 0:
		return nil
	case known == nil:
		return fmt.Errorf("depth %d: a %s chooses its depth by itself: leave it out", o.Depth, f.Name)
	case !slices.Contains(known, o.Depth):
		return fmt.Errorf("depth %d: with %s the scope knows %v", o.Depth, measure.Plural(len(o.Inputs), "channel"), known)
	}
	return nil
}

// plan fits the options to the model that answers.
func (o Options) plan(f *Family, m Model) (*Plan, error) {
	p := &Plan{Options: o, Model: m}
	for n := 1; n <= f.Channels; n++ {
		if _, on := p.On(n); !on {
			continue
		}
		if n > m.Channels {
			return nil, fmt.Errorf("inputs: %s: this model has %s", ChannelName(n), measure.Plural(m.Channels, "channel"))
		}
		p.Used = append(p.Used, n)
	}
	p.Points = f.depth(&o, m)
	return p, o.validDepth(f, m)
}
