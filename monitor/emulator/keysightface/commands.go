package keysightface

import (
	"fmt"
	"math"

	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
)

type (
	call    = scpiface.Call
	command = scpiface.Command
	channel = scopeface.Channel
)

// nr3 writes a number as the scope does.
func nr3(v float64) string { return fmt.Sprintf("%+.5E", v) }

// exact writes a number with all the digits that a preamble has.
func exact(v float64) string { return fmt.Sprintf("%+.8E", v) }

// commands is the tree.
func (f *Face) commands() (all []command) {
	for _, more := range [][]command{f.rootCommands(), f.timeCommands(), f.acquireCommands(), f.rangeCommands(), f.inputCommands(), f.triggerCommands(), f.waveCommands()} {
		all = append(all, more...)
	}
	return all
}

func (f *Face) rootCommands() []command {
	return []command{
		{Pattern: "RUN", Set: scopeface.Do(func() { f.start(false) })},
		{Pattern: "STOP", Set: scopeface.Do(func() { f.events(); f.Stop() })},
		{Pattern: "SINGle", Set: scopeface.Do(func() { f.start(true) })},
		// Digitize takes whatever comes: the emulated one triggers at once.
		{Pattern: "DIGitize", Set: scopeface.Do(func() { f.start(true); f.Force() })},
		{Pattern: "TER", Query: scopeface.Told(func() string { f.events(); return take(&f.triggered) })},
		{Pattern: "AER", Query: scopeface.Told(func() string { return take(&f.armed) })},
		{Pattern: "OPERegister:CONDition", Query: scopeface.Told(func() string { return fmt.Sprintf("%+d", f.condition()) })},
		{Pattern: "RSTate", Query: scopeface.Told(func() string {
			switch {
			case !f.Running():
				return "STOP"
			case f.Single():
				return "SING"
			}
			return "RUN"
		})},
		{Pattern: "AUToscale", Set: scopeface.Do(func() {})},
		{Pattern: "SYSTem:PRESet", Set: scopeface.Do(f.reset)},
	}
}

func (f *Face) timeCommands() []command {
	setRange := func(v float64) error {
		if !(v >= 50e-9 && v <= 500) {
			return scpiface.ErrRange
		}
		f.timeRange = v
		return nil
	}
	return []command{
		{Pattern: "TIMebase:MODE", Set: scopeface.Word(&f.mode, "MAIN"), Query: scopeface.Text(&f.mode)},
		{Pattern: "TIMebase:REFerence", Set: scopeface.Word(&f.reference, "LEFT", "CENTer", "RIGHt"), Query: scopeface.Text(&f.reference)},
		{Pattern: "TIMebase[:MAIN]:RANGe", Set: scopeface.Set(setRange), Query: scopeface.Told(func() string { return nr3(f.timeRange) })},
		{
			Pattern: "TIMebase[:MAIN]:SCALe", Set: scopeface.Set(func(v float64) error { return setRange(divisions * v) }),
			Query: scopeface.Told(func() string { return nr3(f.timeRange / divisions) }),
		},
		{Pattern: "TIMebase:POSition", Set: scopeface.Set(func(v float64) error {
			if math.Abs(v) > 500 {
				return scpiface.ErrRange
			}
			f.position = v
			return nil
		}), Query: scopeface.Told(func() string { return nr3(f.position) })},
		{Pattern: "TIMebase", Query: scopeface.Told(func() string {
			return fmt.Sprintf(":TIM:MODE %s;REF %s;MAIN:RANG %s;POS %s", f.mode, f.reference, nr3(f.timeRange), nr3(f.position))
		})},
	}
}

func (f *Face) acquireCommands() []command {
	return []command{
		{Pattern: "ACQuire:TYPE", Set: scopeface.Word(&f.acqType, "NORMal", "AVERage", "HRESolution", "PEAK"), Query: scopeface.Text(&f.acqType)},
		{Pattern: "ACQuire:MODE", Set: scopeface.Word(&f.acqMode, "RTIMe", "SEGMented"), Query: scopeface.Text(&f.acqMode)},
		{Pattern: "ACQuire:SRATe", Query: scopeface.Told(func() string { return exact(f.Rate()) })},
		{Pattern: "ACQuire:POINts", Query: scopeface.Told(func() string { return fmt.Sprintf("%+d", f.Points()) })},
	}
}

// rangeCommands are what decides how volts become codes. What is out of range is
// set to the nearest that is not, in silence.
func (f *Face) rangeCommands() []command {
	clip := func(v, least, most float64) float64 { return min(max(v, least), most) }
	setScale := func(ch *channel, v float64) error { ch.Scale = clip(v, 5e-4*ch.Ratio, 10*ch.Ratio); return nil }
	return []command{
		f.Value("CHANnel<n>:SCALe", func(ch *channel) float64 { return ch.Scale }, setScale),
		f.Value("CHANnel<n>:RANGe", func(ch *channel) float64 { return ch.Scale * rows }, func(ch *channel, v float64) error { return setScale(ch, v/rows) }),
		f.Value("CHANnel<n>:OFFSet", func(ch *channel) float64 { return -ch.Shift }, func(ch *channel, v float64) error {
			most := 25 * ch.Ratio
			if ch.Scale < 0.2*ch.Ratio {
				most = 2 * ch.Ratio
			}
			ch.Shift = -clip(v, -most, most)
			return nil
		}),
		f.Value("CHANnel<n>:PROBe", func(ch *channel) float64 { return ch.Ratio }, func(ch *channel, v float64) error {
			if v < 0.1 || v > 10000 {
				return scpiface.ErrRange
			}
			ch.Scale, ch.Shift, ch.Ratio = ch.Scale*v/ch.Ratio, ch.Shift*v/ch.Ratio, v
			return nil
		}),
	}
}

// inputCommands are a channel's other settings.
func (f *Face) inputCommands() []command {
	flag := func(pattern string, at func(*channel) *string) command {
		return command{
			Pattern: pattern,
			Set: f.On(func(ch *channel, c call) error {
				v, err := c.Bool(0)
				if err == nil {
					*at(ch) = scopeface.Flag(v)
				}
				return err
			}),
			Query: f.Of(func(ch *channel) ([]byte, error) { return []byte(*at(ch)), nil }),
		}
	}
	return []command{
		f.Display("CHANnel<n>:DISPlay", func() {}),
		f.Keep("CHANnel<n>:COUPling", func(ch *channel) *string { return &ch.Coupling }, "DC", "AC"),
		flag("CHANnel<n>:BWLimit", func(ch *channel) *string { return &ch.Limit }),
		flag("CHANnel<n>:INVert", func(ch *channel) *string { return &ch.Invert }),
		f.Keep("CHANnel<n>:UNITs", func(ch *channel) *string { return &ch.Units }, "VOLT", "AMPere"),
		{Pattern: "CHANnel<n>:LABel", Set: f.On(func(ch *channel, c call) error {
			if len(c.Args) == 0 {
				return scpiface.ErrMissing
			}
			ch.Label = c.Args[0][:min(10, len(c.Args[0]))]
			return nil
		}), Query: f.Of(func(ch *channel) ([]byte, error) { return scpiface.Text("%q", ch.Label) })},
		{Pattern: "CHANnel<n>", Query: func(c call) ([]byte, error) {
			return f.Of(func(ch *channel) ([]byte, error) {
				return scpiface.Text(`:CHAN%d:RANG %s;OFFS %s;COUP %s;IMP ONEM;DISP %s;BWL %s;INV %s;LAB %q;UNIT %s;PROB %s;PROB:SKEW +0.00E+00;STYP SING`,
					c.Suffixes[0], nr3(ch.Scale*rows), nr3(-ch.Shift), ch.Coupling, scopeface.Flag(ch.Shown), ch.Limit, ch.Invert, ch.Label, ch.Units, nr3(ch.Ratio))
			})(c)
		}},
	}
}

func (f *Face) triggerCommands() []command {
	t := &f.Trig
	return []command{
		{Pattern: "TRIGger:FORCe", Set: scopeface.Do(f.Force)},
		{Pattern: "TRIGger:MODE", Set: scopeface.Word(&t.Mode, "EDGE"), Query: scopeface.Text(&t.Mode)},
		{Pattern: "TRIGger:SWEep", Set: scopeface.Word(&t.Sweep, "AUTO", "NORMal"), Query: scopeface.Text(&t.Sweep)},
		{Pattern: "TRIGger:HOLDoff", Query: scopeface.Number(&t.Holdoff)},
		{
			Pattern: "TRIGger[:EDGE]:SOURce", Set: f.Source(&t.Source, "CHANnel"),
			Query: func(call) ([]byte, error) { return scpiface.Text("CHAN%d", t.Source+1) },
		},
		{Pattern: "TRIGger[:EDGE]:SLOPe", Set: scopeface.Word(&t.Slope, "POSitive", "NEGative", "EITHer"), Query: scopeface.Text(&t.Slope)},
		{Pattern: "TRIGger[:EDGE]:COUPling", Set: scopeface.Word(&t.Coupling, "DC", "AC", "LFReject"), Query: scopeface.Text(&t.Coupling)},
		{Pattern: "TRIGger[:EDGE]:LEVel", Set: scopeface.Set(func(v float64) error {
			ch := &f.Channel[t.Source] // at most six divisions off the middle
			if math.Abs(v+ch.Shift) > 6*ch.Scale {
				return scpiface.ErrRange
			}
			t.Level = v
			return nil
		}), Query: scopeface.Number(&t.Level)},
	}
}
