package keysight

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/scpi"
)

// InfiniiVision is the X-Series 1000 to 6000: 8 bits, and a depth that the scope
// chooses by itself so that its memory, divided among the channels, spans the
// screen. Sources: the programmer's guides of the 1000 and 3000T X-Series; the
// limits are those of the 1000 X-Series, from memory of its data sheet.
var InfiniiVision = &scope.Family{
	Kind: "keysight-infiniivision", Name: "Keysight InfiniiVision (EDUX1002, DSOX1102, DSOX2004, MSOX3024, …)", Port: 5025,
	Channels: 4, Usual: 2, Memory: 8_000_000, MaxWindow: divisions * 50 * time.Second,
	MinScale: 5e-4, MaxScale: 10, MaxOffset: 40,
	Spec:    scope.Spec{Gain: 0.03, ZeroDiv: 0.1, ZeroVolt: 2e-3, OffsetPart: 0.01, Clock: 60e-6, NoiseCodes: 0.7},
	Dialect: func() scope.Dialect { return &infiniivision{} },
}

const divisions = 10

// infiniivision remembers what an event register says once: that it has armed.
type infiniivision struct {
	armed, forced bool
	points        int // as ReadBack learned them
}

// SetUp sets channels, window, and a trigger that nothing reaches. The trigger
// lies at the left edge: memory is what the screen shows.
func (d *infiniivision) SetUp(ctx context.Context, c *scpi.Client, p *scope.Plan) error {
	setup := []string{":STOP", ":ACQ:MODE RTIM", ":ACQ:TYPE NORM", ":TIM:MODE MAIN", ":TIM:REF CENT"}
	for n := 1; n <= p.Model.Channels; n++ {
		in, on := p.On(n)
		if !on {
			setup = append(setup, fmt.Sprintf(":CHAN%d:DISP 0", n))
			continue
		}
		setup = append(setup,
			fmt.Sprintf(":CHAN%d:DISP 1", n), fmt.Sprintf(":CHAN%d:COUP DC", n), fmt.Sprintf(":CHAN%d:INV 0", n), fmt.Sprintf(":CHAN%d:UNIT VOLT", n),
			fmt.Sprintf(":CHAN%d:PROB %g", n, in.Ratio()), fmt.Sprintf(":CHAN%d:SCAL %g", n, in.Scale), fmt.Sprintf(":CHAN%d:OFFS %g", n, -in.Offset))
	}
	span := timeRange(p)
	const above = 5 // divisions; the trigger's range ends at 6
	return scope.SetAll(ctx, c, append(setup,
		fmt.Sprintf(":TIM:RANG %g", span), fmt.Sprintf(":TIM:POS %g", span/2), ":TRIG:MODE EDGE", ":TRIG:SWE NORM",
		fmt.Sprintf(":TRIG:EDGE:SOUR CHAN%d", p.Used[0]), ":TRIG:EDGE:SLOP POS", fmt.Sprintf(":TRIG:EDGE:LEV %g", p.OutOfReach(above)))...)
}

// timeRange is the next range of the usual steps for the window.
func timeRange(p *scope.Plan) float64 {
	return divisions * scope.Step125(p.Window.Seconds()/divisions)
}

// ReadBack compares what the scope sets to the nearest in silence, and makes a
// trial acquisition: only a single one has the whole memory and the rate of the
// recording, and only one that was taken has a preamble.
func (d *infiniivision) ReadBack(ctx context.Context, c *scpi.Client, p *scope.Plan) (scope.Memory, error) {
	if err := scope.Expect(ctx, c, ":TIM:RANG?", timeRange(p), 1e-3); err != nil {
		return scope.Memory{}, err
	}
	for _, n := range p.Used {
		in, _ := p.On(n)
		if err := scope.Expect(ctx, c, fmt.Sprintf(":CHAN%d:OFFS?", n), -in.Offset, 0.02); err != nil {
			return scope.Memory{}, fmt.Errorf("%w: it has less range at this scale", err)
		}
	}
	if err := d.try(ctx, c); err != nil {
		return scope.Memory{}, err
	}
	rate, err := c.QueryNumber(ctx, ":ACQ:SRAT?")
	if err != nil {
		return scope.Memory{}, err
	}
	const most = 1 << 28
	points := math.Round(rate * timeRange(p))
	if !(points >= 1 && points <= most) {
		return scope.Memory{}, fmt.Errorf("%w: %v S/s", scpi.ErrInstrument, rate)
	}
	d.points = int(points)
	return scope.Memory{Points: d.points, Step: 1 / rate, Piece: d.points, Codes: scope.Codes{Bytes: 1}}, nil
}

// try takes a moment of a single acquisition.
func (d *infiniivision) try(ctx context.Context, c *scpi.Client) error {
	if err := d.Arm(ctx, c); err != nil {
		return err
	}
	const tries, moment = 50, 10 * time.Millisecond
	for n := 0; ; n++ {
		s, err := d.State(ctx, c)
		switch {
		case err != nil:
			return err
		case s == scope.Waiting:
			if err := d.Force(ctx, c); err != nil {
				return err
			}
			if _, err := d.State(ctx, c); err != nil { // the trigger was taken
				return err
			}
			return d.Stop(ctx, c)
		case n == tries:
			return fmt.Errorf("%w: it is %v where it should wait for its trigger", scpi.ErrInstrument, s)
		}
		if err := scope.Pause(ctx, moment); err != nil {
			return err
		}
	}
}

// Arm begins a single acquisition.
func (d *infiniivision) Arm(ctx context.Context, c *scpi.Client) error {
	d.armed, d.forced = false, false
	if _, err := c.QueryNumber(ctx, ":AER?"); err != nil { // reading clears it
		return err
	}
	return c.Command(ctx, ":SING")
}

// Force triggers it.
func (d *infiniivision) Force(ctx context.Context, c *scpi.Client) error {
	d.forced = true
	return c.Command(ctx, ":TRIG:FORC")
}

// Stop ends it.
func (d *infiniivision) Stop(ctx context.Context, c *scpi.Client) error {
	return c.Command(ctx, ":STOP")
}

// The bits of the operation status condition register.
const (
	running = 1 << 3
	waiting = 1 << 5
)

// State asks whether it runs. Whether it is armed the condition says while it
// waits, and an event register once.
func (d *infiniivision) State(ctx context.Context, c *scpi.Client) (scope.State, error) {
	v, err := c.QueryNumber(ctx, ":OPER:COND?")
	if err != nil {
		return 0, err
	}
	if !(v >= 0 && v < 1<<16) || v != math.Trunc(v) {
		return 0, fmt.Errorf("%w: :OPER:COND? gives %v", scpi.ErrReply, v)
	}
	bits := int(v)
	switch {
	case bits&running == 0:
		return scope.Stopped, nil
	case d.forced:
		return d.single(ctx, c)
	case bits&waiting != 0:
		return scope.Waiting, nil
	}
	if !d.armed {
		a, err := c.QueryNumber(ctx, ":AER?")
		if err != nil {
			return 0, err
		}
		d.armed = a != 0
	}
	if d.armed {
		return scope.Sampling, nil // it has armed and waits no more
	}
	return scope.Free, nil
}

// single tells a recording that goes on from a scope that was set to run freely
// meanwhile.
func (d *infiniivision) single(ctx context.Context, c *scpi.Client) (scope.State, error) {
	s, err := c.Query(ctx, ":TRIG:SWE?")
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(strings.ToUpper(strings.TrimSpace(s)), "NORM") {
		return scope.Sampling, nil
	}
	return scope.Free, nil
}
