package rigol

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"wattmark/measure"
	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/scpi"
)

// common is what the families share.
type common struct {
	divisions float64  // across the screen; memory spans it
	above     float64  // divisions of the trigger's level, near to the end of its range
	setup     []string // settings of the family's own
	// wide: memory may span more than the screen, around its middle.
	wide  bool
	depth func(points int) string
}

// SetUp sets channels, window, depth and a trigger that nothing reaches.
func (d common) SetUp(ctx context.Context, c *scpi.Client, p *scope.Plan) error {
	// Memory can be set only while the scope runs.
	setup := append([]string{":RUN", ":ACQ:TYPE NORM", ":TIM:MODE MAIN"}, d.setup...)
	for n := 1; n <= p.Model.Channels; n++ {
		in, on := p.On(n)
		if !on {
			setup = append(setup, fmt.Sprintf(":CHAN%d:DISP OFF", n))
			continue
		}
		setup = append(setup,
			fmt.Sprintf(":CHAN%d:DISP ON", n), fmt.Sprintf(":CHAN%d:COUP DC", n), fmt.Sprintf(":CHAN%d:INV OFF", n),
			fmt.Sprintf(":CHAN%d:PROB %g", n, in.Ratio()), fmt.Sprintf(":CHAN%d:SCAL %g", n, in.Scale), fmt.Sprintf(":CHAN%d:OFFS %g", n, in.Offset))
	}
	t := d.timeScale(p)
	if err := scope.SetAll(ctx, c, append(setup, fmt.Sprintf(":TIM:MAIN:SCAL %g", t), ":ACQ:MDEP "+d.depth(p.Points))...); err != nil {
		return err
	}
	span, err := d.span(ctx, c, p)
	if err != nil {
		return err
	}
	return scope.SetAll(ctx, c, fmt.Sprintf(":TIM:MAIN:OFFS %g", span/2), ":TRIG:MODE EDGE", fmt.Sprintf(":TRIG:EDGE:SOUR CHAN%d", p.Used[0]), ":TRIG:EDGE:SLOP POS",
		fmt.Sprintf(":TRIG:EDGE:LEV %g", p.OutOfReach(d.above)))
}

// span is the time that memory spans, around the middle of the screen.
func (d common) span(ctx context.Context, c *scpi.Client, p *scope.Plan) (float64, error) {
	if !d.wide {
		return d.timeScale(p) * d.divisions, nil
	}
	rate, err := sampleRate(ctx, c)
	return float64(p.Points) / rate, err
}

func sampleRate(ctx context.Context, c *scpi.Client) (float64, error) {
	rate, err := c.QueryNumber(ctx, ":ACQ:SRAT?")
	if err == nil && !(rate > 0 && rate < 1e12) {
		err = fmt.Errorf("%w: %v S/s", scpi.ErrInstrument, rate)
	}
	return rate, err
}

// suffixed is a depth as the newer families list it: 10k, 1M.
func suffixed(points int) string {
	switch {
	case points%1_000_000 == 0:
		return fmt.Sprintf("%dM", points/1_000_000)
	case points%1000 == 0:
		return fmt.Sprintf("%dk", points/1000)
	}
	return strconv.Itoa(points)
}

// timeScale is the next time per division for the window.
func (d common) timeScale(p *scope.Plan) float64 {
	return scope.Step125(p.Window.Seconds() / d.divisions)
}

// readBack compares depth and window with what was set, and returns the step.
func (d common) readBack(ctx context.Context, c *scpi.Client, p *scope.Plan) (step float64, err error) {
	if err := scope.Expect(ctx, c, ":ACQ:MDEP?", float64(p.Points), 0); err != nil {
		return 0, err
	}
	if err := scope.Expect(ctx, c, ":TIM:MAIN:SCAL?", d.timeScale(p), 1e-3); err != nil {
		return 0, err
	}
	span, err := d.span(ctx, c, p)
	if err != nil {
		return 0, err
	}
	if err := scope.Expect(ctx, c, ":TIM:MAIN:OFFS?", span/2, 1e-3); err != nil {
		return 0, err
	}
	rate, err := sampleRate(ctx, c)
	return 1 / rate, err
}

// Arm begins a single acquisition.
func (common) Arm(ctx context.Context, c *scpi.Client) error { return c.Command(ctx, ":SING") }

// Force triggers it.
func (common) Force(ctx context.Context, c *scpi.Client) error { return c.Command(ctx, ":TFOR") }

// Stop ends it.
func (common) Stop(ctx context.Context, c *scpi.Client) error { return c.Command(ctx, ":STOP") }

// State asks for the trigger's state.
func (common) State(ctx context.Context, c *scpi.Client) (scope.State, error) {
	return scpi.Ask(ctx, c, ":TRIG:STAT?", parseState)
}

func parseState(s string) (scope.State, error) {
	switch s {
	case "STOP":
		return scope.Stopped, nil
	case "WAIT":
		return scope.Waiting, nil
	case "RUN", "TD": // TD is there for a moment only
		return scope.Sampling, nil
	case "AUTO":
		return scope.Free, nil
	}
	return 0, fmt.Errorf("%w: :TRIG:STAT? gives %q", scpi.ErrReply, s)
}

// selectMemory selects a channel's deep memory. Everything is set anew each
// time: the link may be a new one.
func selectMemory(ctx context.Context, c *scpi.Client, channel int, format string) error {
	return scope.Send(ctx, c, fmt.Sprintf(":WAV:SOUR CHAN%d", channel), ":WAV:MODE RAW", ":WAV:FORM "+format)
}

// read asks for n points behind the first, size bytes in all.
func read(ctx context.Context, c *scpi.Client, channel int, format string, first, n, size int, dst []byte) ([]byte, error) {
	if err := selectMemory(ctx, c, channel, format); err != nil {
		return dst, err
	}
	if err := scope.Send(ctx, c, fmt.Sprintf(":WAV:STAR %d", first+1), fmt.Sprintf(":WAV:STOP %d", first+n)); err != nil {
		return dst, err
	}
	return c.QueryBlock(ctx, ":WAV:DATA?", size, dst)
}

// scaled makes a scale of a preamble: V = (code − origin − reference)·increment,
// with the origin in codes.
func scaled(ctx context.Context, c *scpi.Client, channel int, p scpi.Preamble, most measure.Count) (scope.Scale, error) {
	division, err := c.QueryNumber(ctx, fmt.Sprintf(":CHAN%d:SCAL?", channel))
	if err == nil && !(division > 0 && !math.IsInf(division, 0)) {
		err = fmt.Errorf("%w: %v V a division", scpi.ErrReply, division)
	}
	return scope.Scale{
		Gain: p.YIncrement, Zero: -(p.YOrigin + p.YReference) * p.YIncrement,
		Division: division, Step: p.XIncrement, Least: 0, Most: most,
	}, err
}
