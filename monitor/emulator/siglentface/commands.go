package siglentface

import (
	"math"
	"slices"

	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
)

type (
	call    = scpiface.Call
	command = scpiface.Command
)

// commands is the tree. What does not touch the measurement is kept and told.
func (f *Face) commands() []command {
	return slices.Concat(f.timeCommands(), f.rangeCommands(), f.inputCommands(), f.triggerCommands(), f.edgeCommands(), f.waveCommands())
}

// keep is a setting without an effect here.
func (f *Face) keep(pattern string, words ...string) command {
	return command{
		Pattern: pattern,
		Set: func(c call) error {
			w, err := c.Word(0, words...)
			if err == nil {
				f.words[pattern] = w
			}
			return err
		},
		Query: scopeface.Told(func() string { return f.words[pattern] }),
	}
}

// clamp is how this maker takes what is out of range: at the range's end,
// without an error.
func clamp(v, least, most float64) float64 { return min(max(v, least), most) }

func (f *Face) timeCommands() []command {
	return []command{
		{Pattern: "TIMebase:SCALe", Set: scopeface.Set(func(v float64) error {
			v, err := scopeface.Step125(clamp(v, 1e-9, 1000), 1e-9, 1000)
			if err == nil {
				f.timeScale = v
			}
			return err
		}), Query: scopeface.Told(func() string { return number(f.timeScale) })},
		{Pattern: "TIMebase:DELay", Set: scopeface.Set(func(v float64) error {
			f.delay = clamp(v, -5*f.timeScale, 5000*f.timeScale)
			return nil
		}), Query: scopeface.Told(func() string { return number(f.delay) })},
		{Pattern: "ACQuire:MDEPth", Set: f.setDepth, Query: scopeface.Told(func() string { return showPoints(f.depth) })},
		{Pattern: "ACQuire:SRATe", Query: scopeface.Told(func() string { return number(f.Rate()) })},
		{Pattern: "ACQuire:POINts", Query: scopeface.Told(func() string { return number(float64(f.readable())) })},
		f.keep("ACQuire:TYPE", "NORMal", "PEAK"),
		f.keep("ACQuire:MODE", "YT", "XY", "ROLL"),
		f.keep("ACQuire:MMANagement", "AUTO", "FSRate", "FMDepth"),
		f.keep("ACQuire:SEQuence", "ON", "OFF"),
		f.keep("TIMebase:REFerence", "DELay", "POSition"),
	}
}

func (f *Face) value(pattern string, get func(*scopeface.Channel) float64, set func(*scopeface.Channel, float64)) command {
	return command{
		Pattern: pattern,
		Set: f.On(func(ch *scopeface.Channel, c call) error {
			v, err := c.Number(0)
			if err == nil {
				set(ch, v)
			}
			return err
		}),
		Query: f.Of(func(ch *scopeface.Channel) ([]byte, error) { return []byte(number(get(ch))), nil }),
	}
}

// rangeCommands are what decides how volts become codes.
func (f *Face) rangeCommands() []command {
	shift := func(ch *scopeface.Channel, v float64) {
		most := 2.0
		switch {
		case ch.Scale >= 1.02*ch.Ratio:
			most = 200
		case ch.Scale >= 0.12*ch.Ratio:
			most = 20
		}
		ch.Shift = clamp(v, -most*ch.Ratio, most*ch.Ratio)
	}
	return []command{
		f.value("CHANnel<n>:SCALe", func(ch *scopeface.Channel) float64 { return ch.Scale }, func(ch *scopeface.Channel, v float64) {
			ch.Scale = clamp(v, 500e-6*ch.Ratio, 10*ch.Ratio)
			shift(ch, ch.Shift)
		}),
		f.value("CHANnel<n>:OFFSet", func(ch *scopeface.Channel) float64 { return ch.Shift }, shift),
		{
			Pattern: "CHANnel<n>:PROBe",
			Set: f.On(func(ch *scopeface.Channel, c call) error {
				v := 1.0
				w, err := c.Word(0, "DEFault", "VALue")
				if err == nil && w == "VAL" {
					v, err = c.Number(1)
				}
				if err == nil && (v < 1e-6 || v > 1e6) {
					err = scpiface.ErrRange
				}
				if err == nil {
					ch.Scale, ch.Shift, ch.Ratio = ch.Scale*v/ch.Ratio, ch.Shift*v/ch.Ratio, v
				}
				return err
			}),
			Query: f.Of(func(ch *scopeface.Channel) ([]byte, error) { return []byte(number(ch.Ratio)), nil }),
		},
	}
}

// inputCommands are a channel's other settings.
func (f *Face) inputCommands() []command {
	return []command{
		{
			Pattern: "CHANnel<n>:SWITch",
			Set: f.On(func(ch *scopeface.Channel, c call) error {
				on, err := c.Bool(0)
				if err == nil {
					ch.Shown = on
					f.share()
				}
				return err
			}),
			Query: f.Of(func(ch *scopeface.Channel) ([]byte, error) {
				return []byte(map[bool]string{true: "ON", false: "OFF"}[ch.Shown]), nil
			}),
		},
		f.Keep("CHANnel<n>:COUPling", func(ch *scopeface.Channel) *string { return &ch.Coupling }, "DC", "AC", "GND"),
		f.Keep("CHANnel<n>:BWLimit", func(ch *scopeface.Channel) *string { return &ch.Limit }, "FULL", "20M", "200M"),
		f.Keep("CHANnel<n>:INVert", func(ch *scopeface.Channel) *string { return &ch.Invert }, "OFF"),
		f.Keep("CHANnel<n>:UNIT", func(ch *scopeface.Channel) *string { return &ch.Units }, "V", "A"),
	}
}

// begin is what a trigger mode does.
func (f *Face) begin(mode string) {
	f.mode = mode
	switch mode {
	case "SING":
		f.Trig.Sweep = "SING"
		f.Start(true)
	case "FTRIG": // one frame at once, whatever it did
		if f.State() != scopeface.Waiting || f.Trig.Sweep != "SING" {
			f.Trig.Sweep = "SING"
			f.Start(true)
		}
		f.Force()
	default:
		f.Trig.Sweep = mode
		f.Start(false)
	}
}

func (f *Face) triggerCommands() []command {
	status := map[scopeface.State]string{
		scopeface.Stopped: "Stop", scopeface.Waiting: "Ready", scopeface.Sampling: "Trig'd", scopeface.Free: "Auto", scopeface.Triggered: "Trig'd",
	}
	return []command{
		{Pattern: "TRIGger:MODE", Set: func(c call) error {
			mode, err := c.Word(0, "AUTO", "NORMal", "SINGle", "FTRIG")
			if err == nil {
				f.begin(mode)
			}
			return err
		}, Query: scopeface.Told(func() string {
			return map[string]string{"AUTO": "AUTO", "NORM": "NORMal", "SING": "SINGle", "FTRIG": "FTRIG"}[f.mode]
		})},
		{Pattern: "TRIGger:RUN", Set: scopeface.Do(func() { f.begin(f.mode) })},
		{Pattern: "TRIGger:STOP", Set: scopeface.Do(f.Stop)},
		{Pattern: "TRIGger:STATus", Query: scopeface.Told(func() string { return status[f.State()] })},
		{Pattern: "TRIGger:TYPE", Set: scopeface.Word(&f.Trig.Mode, "EDGE"), Query: scopeface.Text(&f.Trig.Mode)},
	}
}

func (f *Face) edgeCommands() []command {
	t := &f.Trig
	slopes := map[string]string{"RIS": "POS", "FALL": "NEG", "ALT": "RFAL"}
	return []command{
		{Pattern: "TRIGger:EDGE:SOURce", Set: f.Source(&t.Source, "C"), Query: func(call) ([]byte, error) { return scpiface.Text("C%d", t.Source+1) }},
		{Pattern: "TRIGger:EDGE:SLOPe", Set: func(c call) error {
			w, err := c.Word(0, "RISing", "FALLing", "ALTernate")
			if err == nil {
				t.Slope = slopes[w]
			}
			return err
		}, Query: scopeface.Told(func() string {
			return map[string]string{"POS": "RISing", "NEG": "FALLing", "RFAL": "ALTernate"}[t.Slope]
		})},
		{Pattern: "TRIGger:EDGE:COUPling", Set: scopeface.Word(&t.Coupling, "DC", "AC", "LFREJect", "HFREJect"), Query: scopeface.Text(&t.Coupling)},
		{Pattern: "TRIGger:EDGE:LEVel", Set: scopeface.Set(func(v float64) error {
			ch, most := f.Channel[t.Source], 4.1
			t.Level = clamp(v, -most*ch.Scale-ch.Shift, most*ch.Scale-ch.Shift)
			return nil
		}), Query: scopeface.Told(func() string { return number(t.Level) })},
	}
}

// within is a number of points that is whole and not negative.
func within(at *int) func(call) error {
	return scopeface.Set(func(v float64) error {
		if v < 0 || v > 1e9 || v != math.Trunc(v) {
			return scpiface.ErrRange
		}
		*at = int(v)
		return nil
	})
}
