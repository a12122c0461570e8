package siglent

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/scpi"
)

// E11 are the families that speak the E11 command set. Sources: programming
// guide EN11 and public drivers; the accuracy is from memory of the data sheet of
// the SDS2000X Plus.
var E11 = &scope.Family{
	Kind: "siglent-e11", Name: "Siglent with the E11 commands (SDS2000X Plus, SDS5000X, SDS6000A, SDS…X HD)", Port: 5025,
	Channels: 4, Usual: 4, Memory: 500_000_000, MaxWindow: divisions * 100 * time.Second,
	MinScale: 500e-6, MaxScale: 10, MaxOffset: 200,
	Depths:  depths,
	Whole:   true,
	Spec:    scope.Spec{Gain: 0.03, ZeroDiv: 0.12, ZeroVolt: 2e-3, OffsetPart: 0.01, Clock: 25e-6, NoiseCodes: 0.7},
	Dialect: func() scope.Dialect { return &dialect{} },
}

const (
	divisions = 10      // across the screen; memory spans it
	maxPiece  = 250_000 // points a read
)

// dialect remembers of ReadBack how wide points are, and whether it was told to
// trigger.
type dialect struct {
	words  bool
	bits   int
	forced bool
}

// SetUp sets channels, window, depth and a trigger that nothing reaches. The
// horizontal delay of half a window puts the trigger at the left edge.
func (d *dialect) SetUp(ctx context.Context, c *scpi.Client, p *scope.Plan) error {
	// Memory can be set only while the scope runs freely.
	setup := []string{":TRIG:MODE AUTO", ":TRIG:RUN", ":ACQ:SEQ OFF", ":ACQ:MODE YT", ":ACQ:TYPE NORM", ":ACQ:MMAN AUTO"}
	for n := 1; n <= p.Model.Channels; n++ {
		in, on := p.On(n)
		if !on {
			setup = append(setup, fmt.Sprintf(":CHAN%d:SWIT OFF", n))
			continue
		}
		setup = append(setup,
			fmt.Sprintf(":CHAN%d:SWIT ON", n), fmt.Sprintf(":CHAN%d:COUP DC", n), fmt.Sprintf(":CHAN%d:INV OFF", n), fmt.Sprintf(":CHAN%d:UNIT V", n),
			fmt.Sprintf(":CHAN%d:PROB VAL,%g", n, in.Ratio()), fmt.Sprintf(":CHAN%d:SCAL %g", n, in.Scale), fmt.Sprintf(":CHAN%d:OFFS %g", n, in.Offset))
	}
	t := timeScale(p)
	const above = 4.05 // divisions; the trigger's range ends at 4.1
	return scope.SetAll(ctx, c, append(setup,
		fmt.Sprintf(":TIM:SCAL %g", t), fmt.Sprintf(":TIM:DEL %g", t*divisions/2), ":ACQ:MDEP "+showPoints(p.Points),
		":TRIG:TYPE EDGE", fmt.Sprintf(":TRIG:EDGE:SOUR C%d", p.Used[0]), ":TRIG:EDGE:SLOP RIS", ":TRIG:EDGE:COUP DC",
		fmt.Sprintf(":TRIG:EDGE:LEV %g", p.OutOfReach(above)))...)
}

// timeScale is the next time per division for the window.
func timeScale(p *scope.Plan) float64 { return scope.Step125(p.Window.Seconds() / divisions) }

// Check finds nothing: these scopes have no error queue. They take what is out
// of range at the range's end; ReadBack looks at every setting.
func (*dialect) Check(context.Context, *scpi.Client) error { return nil }

// ReadBack compares what the scope says with what was set.
func (d *dialect) ReadBack(ctx context.Context, c *scpi.Client, p *scope.Plan) (scope.Memory, error) {
	for _, n := range p.Used {
		if err := readChannel(ctx, c, p, n); err != nil {
			return scope.Memory{}, err
		}
	}
	t := timeScale(p)
	if err := scope.Expect(ctx, c, ":TIM:SCAL?", t, 1e-2); err != nil {
		return scope.Memory{}, err
	}
	if err := scope.Expect(ctx, c, ":TIM:DEL?", t*divisions/2, 1e-2); err != nil {
		return scope.Memory{}, err
	}
	depth, err := scpi.Ask(ctx, c, ":ACQ:MDEP?", parsePoints)
	if err == nil && depth != p.Points {
		err = fmt.Errorf("%w: memory depth %d after %d was set: choose one that this model has", scpi.ErrInstrument, depth, p.Points)
	}
	if err != nil {
		return scope.Memory{}, err
	}
	return d.memory(ctx, c, p, t*divisions)
}

// readChannel compares one channel. Three digits come back; an offset may be
// rounded to a pixel.
func readChannel(ctx context.Context, c *scpi.Client, p *scope.Plan, n int) error {
	in, _ := p.On(n)
	on, err := scpi.Ask(ctx, c, fmt.Sprintf(":CHAN%d:SWIT?", n), scpi.ParseBool)
	if err == nil && !on {
		err = fmt.Errorf("%w: channel %d stays off", scpi.ErrInstrument, n)
	}
	if err != nil {
		return err
	}
	if err := scope.Expect(ctx, c, fmt.Sprintf(":CHAN%d:SCAL?", n), in.Scale, 1e-2); err != nil {
		return err
	}
	offset, err := c.QueryNumber(ctx, fmt.Sprintf(":CHAN%d:OFFS?", n))
	if err == nil && !(math.Abs(offset-in.Offset) <= in.Scale/10+math.Abs(in.Offset)/100) {
		err = fmt.Errorf("%w: channel %d has an offset of %v V after %v V was set: too far for %v V a division?", scpi.ErrInstrument, n, offset, in.Offset, in.Scale)
	}
	return err
}

// memory learns how points are recorded and read.
func (d *dialect) memory(ctx context.Context, c *scpi.Client, p *scope.Plan, window float64) (m scope.Memory, err error) {
	d.words = false
	desc, err := d.describe(ctx, c, p.Used[0])
	if err != nil {
		return m, err
	}
	if d.words = desc.adc > 8; d.words {
		if desc, err = d.describe(ctx, c, p.Used[0]); err != nil {
			return m, err
		}
	}
	d.bits = desc.bits
	rate, err := c.QueryNumber(ctx, ":ACQ:SRAT?")
	if err == nil && !(rate > 0 && !math.IsInf(rate, 0)) {
		err = fmt.Errorf("%w: %v S/s", scpi.ErrInstrument, rate)
	}
	if err != nil {
		return m, err
	}
	piece, err := scpi.Ask(ctx, c, ":WAV:MAXP?", parsePoints)
	if err != nil {
		return m, err
	}
	points := min(float64(p.Points), math.Round(rate*window))
	return scope.Memory{
		Points: int(points), Step: 1 / rate, Piece: min(piece, maxPiece), Codes: scope.Codes{Bytes: desc.width(), Signed: true},
	}, nil
}

// from selects a channel and the width of its points.
func (d *dialect) from(ctx context.Context, c *scpi.Client, channel int) error {
	width := "BYTE"
	if d.words {
		width = "WORD"
	}
	return scope.Send(ctx, c, fmt.Sprintf(":WAV:SOUR C%d", channel), ":WAV:WIDT "+width, ":WAV:INT 1")
}

// describe asks for a channel's descriptor.
func (d *dialect) describe(ctx context.Context, c *scpi.Client, channel int) (descriptor, error) {
	if err := d.from(ctx, c, channel); err != nil {
		return descriptor{}, err
	}
	b, err := c.QueryBlock(ctx, ":WAV:PRE?", 2*descriptorSize, nil)
	if err != nil {
		return descriptor{}, err
	}
	desc, err := parseDescriptor(b)
	if err == nil && desc.words != d.words {
		err = fmt.Errorf("%w: a waveform descriptor of another width than was set", scpi.ErrReply)
	}
	return desc, err
}

// Scale is what the descriptor says of a channel.
func (d *dialect) Scale(ctx context.Context, c *scpi.Client, channel int) (scope.Scale, error) {
	desc, err := d.describe(ctx, c, channel)
	if err != nil {
		return scope.Scale{}, err
	}
	top := math.Ldexp(1, desc.bits-1)
	return scope.Scale{
		Gain: desc.gain(), Zero: -desc.offset, Division: desc.volts, Step: desc.seconds, Quantum: desc.quantum(),
		Least: measure.Count(-top), Most: measure.Count(top - desc.quantum()),
	}, nil
}

// Arm begins a single acquisition.
func (d *dialect) Arm(ctx context.Context, c *scpi.Client) error {
	d.forced = false
	return c.Command(ctx, ":TRIG:MODE SING")
}

// Force triggers it.
func (d *dialect) Force(ctx context.Context, c *scpi.Client) error {
	d.forced = true
	return c.Command(ctx, ":TRIG:MODE FTRIG")
}

// Stop ends it.
func (*dialect) Stop(ctx context.Context, c *scpi.Client) error { return c.Command(ctx, ":TRIG:STOP") }

// State asks for the trigger's state.
func (d *dialect) State(ctx context.Context, c *scpi.Client) (scope.State, error) {
	s, err := scpi.Ask(ctx, c, ":TRIG:STAT?", parseState)
	if s == arming { // so near to the trigger it says what it did before, or does next
		if s = scope.Free; d.forced {
			s = scope.Sampling
		}
	}
	return s, err
}

// arming is a scope that is not ready for its trigger: it fills what lies before
// it, of which there is nothing here. It soon is.
const arming scope.State = 100

func parseState(s string) (scope.State, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "stop", "fstop":
		return scope.Stopped, nil
	case "ready":
		return scope.Waiting, nil
	case "arm":
		return arming, nil
	case "trig'd":
		return scope.Sampling, nil
	case "auto", "roll":
		return scope.Free, nil
	}
	return 0, fmt.Errorf("%w: :TRIG:STAT? gives %.40q", scpi.ErrReply, s)
}

// Held is the number of points of the recording.
func (*dialect) Held(ctx context.Context, c *scpi.Client, _ int) (points int, told bool, err error) {
	points, err = scpi.Ask(ctx, c, ":ACQ:POIN?", parsePoints)
	return points, true, err
}

// Read reads a piece.
func (d *dialect) Read(ctx context.Context, c *scpi.Client, channel, first, n int, dst []byte) ([]byte, error) {
	if err := d.from(ctx, c, channel); err != nil {
		return dst, err
	}
	if err := scope.Send(ctx, c, fmt.Sprintf(":WAV:STAR %d", first), fmt.Sprintf(":WAV:POIN %d", n)); err != nil {
		return dst, err
	}
	size := n
	if d.words {
		size *= 2
	}
	from := len(dst)
	out, err := c.QueryBlock(ctx, ":WAV:DATA?", size, dst)
	if err == nil && d.words {
		extend(out[from:], d.bits)
	}
	return out, err
}
