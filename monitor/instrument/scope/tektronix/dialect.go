package tektronix

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/scpi"
)

// Tektronix are the families MDO3000, MDO4000, MSO/DPO3000 and 4000, and the 4, 5
// and 6 Series MSO. Sources: programmer manuals as public drivers cite them; the
// accuracy is from memory of the data sheet of the MDO3000.
var Tektronix = &scope.Family{
	Kind: "tektronix", Name: "Tektronix MDO/MSO/DPO 3000 or 4000, or 4, 5 or 6 Series MSO", Port: 4000,
	Channels: 4, Usual: 4, Memory: 250_000_000, MaxWindow: divisions * 100 * time.Second,
	MinScale: 1e-3, MaxScale: 10, MaxOffset: 100,
	Depths:  depths,
	Whole:   true,
	Spec:    scope.Spec{Gain: 0.02, ZeroDiv: 0.2, ZeroVolt: 1e-3, OffsetPart: 0.005, Clock: 10e-6, NoiseCodes: 0.7},
	Dialect: func() scope.Dialect { return &dialect{} },
}

const (
	divisions = 10      // across the screen; memory spans it
	perDiv    = 25      // codes of one byte a division
	series    = "4/5/6" // the model's, of the newer ones
	piece     = 250_000 // points a read; no limit is stated
)

// depths are those of one channel, on a model that has its share of memory.
func depths(m scope.Model, _ int) (out []int) {
	for _, d := range []int{1000, 10_000, 100_000, 1_000_000, 5_000_000, 10_000_000, 20_000_000} {
		if d <= m.Memory/max(1, m.Channels) {
			out = append(out, d)
		}
	}
	return out
}

// dialect remembers of ReadBack what a channel was set to, and whether a record
// of its own is there to be compared with that.
type dialect struct {
	width, depth int
	step         float64
	quantum      float64 // codes between two steps of the converter
	taken        bool
}

// SetUp sets channels, window, depth and a trigger that nothing reaches.
func (d *dialect) SetUp(ctx context.Context, c *scpi.Client, p *scope.Plan) error {
	d.taken = false
	newer := p.Model.Series == series
	setup := []string{"HEAD OFF", "VERB ON", "ACQ:STATE STOP", "ACQ:MOD SAM", "ACQ:STOPA SEQ", "HOR:DEL:MOD OFF", "HOR:POS 0"}
	for n := 1; n <= p.Model.Channels; n++ {
		setup = append(setup, channel(p, n, newer)...)
	}
	const above = 6 // divisions; codes end at 5.12, the trigger's range at 8
	setup = append(setup,
		"TRIG:A:TYP EDGE", "TRIG:A:MOD NORM", fmt.Sprintf("TRIG:A:EDGE:SOU CH%d", p.Used[0]), "TRIG:A:EDGE:SLO RIS", "TRIG:A:EDGE:COUP DC",
		fmt.Sprintf("TRIG:A:LEV:CH%d %g", p.Used[0], p.OutOfReach(above)))
	if !newer {
		return scope.SetAll(ctx, c, append(setup, fmt.Sprintf("HOR:SCA %g", timeScale(p)), fmt.Sprintf("HOR:RECO %d", p.Points))...)
	}
	if err := scope.SetAll(ctx, c, append(setup, "HOR:MOD MAN")...); err != nil {
		return err
	}
	return setRate(ctx, c, p)
}

// channel are the settings of one. This maker counts an offset the other way: +12
// puts 12 V in the middle.
func channel(p *scope.Plan, n int, newer bool) []string {
	display, probe := "SEL:CH%d", "CH%d:PRO:GAIN %g"
	if newer {
		display, probe = "DIS:GLO:CH%d:STATE", "CH%d:PROBEF:EXTA %g"
	}
	in, on := p.On(n)
	if !on {
		return []string{fmt.Sprintf(display+" OFF", n)}
	}
	return []string{
		fmt.Sprintf(display+" ON", n), fmt.Sprintf("CH%d:COUP DC", n), fmt.Sprintf("CH%d:INV OFF", n), fmt.Sprintf(probe, n, 1/in.Ratio()),
		fmt.Sprintf("CH%d:SCA %g", n, in.Scale), fmt.Sprintf("CH%d:POS 0", n), fmt.Sprintf("CH%d:OFFS %g", n, -in.Offset),
	}
}

// timeScale is the next of the steps 1, 2, 4 of seconds a division.
func timeScale(p *scope.Plan) float64 {
	want := p.Window.Seconds() / divisions
	decade := math.Pow(10, math.Floor(math.Log10(want)))
	for _, m := range []float64{1, 2, 4} {
		if want <= m*decade*(1+1e-9) {
			return m * decade
		}
	}
	return 10 * decade
}

// setRate looks for the fastest rate at which memory spans the window: the scope
// takes one of its own near to what it is told, and may change the depth by it.
func setRate(ctx context.Context, c *scpi.Client, p *scope.Plan) error {
	want := float64(p.Points) / p.Window.Seconds()
	for _, part := range []float64{1, 0.8, 0.6, 0.5, 0.4, 0.25, 0.1} {
		if err := scope.SetAll(ctx, c, fmt.Sprintf("HOR:MOD:SAMPLER %g", want*part), fmt.Sprintf("HOR:MOD:RECO %d", p.Points)); err != nil {
			return err
		}
		got, err := c.QueryNumber(ctx, "HOR:MOD:SAMPLER?")
		if err != nil {
			return err
		}
		if got > 0 && got <= want*(1+1e-6) {
			return nil
		}
	}
	return fmt.Errorf("%w: no rate at which %d points span %v: choose a deeper memory or a shorter window", scpi.ErrInstrument, p.Points, p.Window)
}

// ReadBack compares what the scope says with what was set.
func (d *dialect) ReadBack(ctx context.Context, c *scpi.Client, p *scope.Plan) (m scope.Memory, err error) {
	for _, n := range p.Used {
		in, _ := p.On(n)
		if err := scope.Expect(ctx, c, fmt.Sprintf("CH%d:SCA?", n), in.Scale, 1e-2); err != nil {
			return m, err
		}
	}
	if err := scope.Expect(ctx, c, "HOR:RECO?", float64(p.Points), 0); err != nil {
		return m, err
	}
	rate, err := c.QueryNumber(ctx, "HOR:SAMPLER?")
	if err == nil && !(rate > 0 && float64(p.Points)/rate >= p.Window.Seconds()*(1-1e-3)) {
		err = fmt.Errorf("%w: %d points at %v S/s do not span %v", scpi.ErrInstrument, p.Points, rate, p.Window)
	}
	if err != nil {
		return m, err
	}
	d.width, d.quantum, d.depth, d.step = 1, 1, p.Points, 1/rate
	if p.Model.Series == series {
		d.width, d.quantum = 2, 16 // 12 bits at the top of 16
	}
	return scope.Memory{Points: d.depth, Step: d.step, Piece: min(piece, d.depth), Codes: scope.Codes{Bytes: d.width, Signed: true}}, nil
}

// Arm begins a single acquisition.
func (d *dialect) Arm(ctx context.Context, c *scpi.Client) error {
	d.taken = false
	return scope.Send(ctx, c, "HEAD OFF", "ACQ:STOPA SEQ", "ACQ:STATE RUN")
}

// Force triggers it.
func (d *dialect) Force(ctx context.Context, c *scpi.Client) error {
	d.taken = true
	return c.Command(ctx, "TRIG FORC")
}

// Stop ends it.
func (*dialect) Stop(ctx context.Context, c *scpi.Client) error {
	return c.Command(ctx, "ACQ:STATE STOP")
}

// State asks for the trigger's state.
func (d *dialect) State(ctx context.Context, c *scpi.Client) (scope.State, error) {
	s, err := scpi.Ask(ctx, c, "TRIG:STATE?", parseState)
	if s == arming {
		if s = scope.Free; d.taken {
			s = scope.Sampling
		}
	}
	return s, err
}

// arming is a scope that fills what lies before its trigger, of which there is
// nothing here. It soon is ready.
const arming scope.State = 100

// parseState reads a state, in its long or short form.
func parseState(s string) (scope.State, error) {
	t := strings.ToUpper(strings.TrimSpace(s))
	if i := strings.LastIndexByte(t, ' '); i >= 0 { // :TRIGGER:STATE READY
		t = t[i+1:]
	}
	for _, c := range []struct {
		long  string
		state scope.State
	}{{"SAVE", scope.Stopped}, {"READY", scope.Waiting}, {"TRIGGER", scope.Sampling}, {"AUTO", scope.Free}, {"ARMED", arming}} {
		if len(t) >= 3 && strings.HasPrefix(c.long, t) {
			return c.state, nil
		}
	}
	return 0, fmt.Errorf("%w: TRIG:STATE? gives %s", scpi.ErrReply, shown(s))
}
