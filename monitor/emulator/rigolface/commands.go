package rigolface

import (
	"math"

	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
)

type (
	call    = scpiface.Call
	command = scpiface.Command
)

// commands is the tree. What only changes the picture on the screen is kept
// and told, no more.
func (f *Face) commands() []command {
	all := []command{
		{Pattern: "RUN", Set: scopeface.Do(func() { f.Start(false) })},
		{Pattern: "STOP", Set: scopeface.Do(f.Stop)},
		{Pattern: "SINGle", Set: scopeface.Do(func() { f.Trig.Sweep = "SING"; f.Start(true) })},
		{Pattern: "TFORce", Set: scopeface.Do(f.Force)},
		{Pattern: "CLEar", Set: scopeface.Do(func() {})},
	}
	for _, more := range [][]command{f.timeCommands(), f.acquireCommands(), f.rangeCommands(), f.inputCommands(), f.triggerCommands(), f.edgeCommands(), f.waveCommands()} {
		all = append(all, more...)
	}
	return all
}

func (f *Face) timeCommands() []command {
	return []command{
		{Pattern: "TIMebase[:MAIN]:SCALe", Set: scopeface.Set(f.setTimeScale), Query: scopeface.Number(&f.timeScale)},
		{Pattern: "TIMebase[:MAIN]:OFFSet", Set: scopeface.Set(f.setTimeShift), Query: scopeface.Number(&f.timeShift)},
		{Pattern: "TIMebase:MODE", Set: func(c call) error { _, err := c.Word(0, "MAIN"); return err }, Query: scopeface.Fixed("MAIN")},
		{Pattern: "TIMebase:DELay:ENABle", Set: func(c call) error { _, err := c.Bool(0); return err }, Query: scopeface.Fixed("0")},
		{Pattern: "TIMebase:ROLL", Set: scopeface.Word(&f.roll, "0", "1"), Query: scopeface.Text(&f.roll)},
	}
}

func (f *Face) setTimeScale(v float64) error {
	v, err := scopeface.Step125(v, 5e-9, 50)
	if err == nil {
		f.timeScale = v
	}
	return err
}

func (f *Face) setTimeShift(v float64) error {
	if v < -f.Window()/2*1.001 || v > max(1, 100*f.timeScale) {
		return scpiface.ErrRange
	}
	f.timeShift = v
	return nil
}

func (f *Face) acquireCommands() []command {
	return []command{
		{Pattern: "ACQuire:MDEPth", Set: f.setDepth, Query: scopeface.Told(func() string {
			switch {
			case f.family.pages: // also where AUTO chose it
				return f.family.showDepth(f.Depth())
			case f.depth == 0:
				return "AUTO"
			}
			return f.family.showDepth(f.depth)
		})},
		{Pattern: "ACQuire:SRATe", Query: scopeface.Told(func() string { return scpiface.Exponent(f.Rate()) })},
		{Pattern: "ACQuire:TYPE", Set: scopeface.Word(&f.acqType, "NORMal", "AVERages", "PEAK", "HRESolution"), Query: scopeface.Text(&f.acqType)},
		{Pattern: "ACQuire:AVERages", Query: func(call) ([]byte, error) { return scpiface.Text("%d", f.average) }},
	}
}

// rangeCommands are what decides how volts become codes.
func (f *Face) rangeCommands() []command {
	return []command{
		f.Value("CHANnel<n>:SCALe", func(ch *scopeface.Channel) float64 { return ch.Scale }, func(ch *scopeface.Channel, v float64) error {
			v, err := scopeface.Step125(v, 1e-3*ch.Ratio, 10*ch.Ratio)
			if err == nil {
				ch.Scale = v
			}
			return err
		}),
		f.Value("CHANnel<n>:OFFSet", func(ch *scopeface.Channel) float64 { return ch.Shift }, func(ch *scopeface.Channel, v float64) error {
			if math.Abs(v) > f.family.offset(ch.Scale/ch.Ratio)*ch.Ratio {
				return scpiface.ErrRange
			}
			ch.Shift = v
			return nil
		}),
		f.Value("CHANnel<n>:PROBe", func(ch *scopeface.Channel) float64 { return ch.Ratio }, func(ch *scopeface.Channel, v float64) error {
			if v < 0.01 || v > 1000 {
				return scpiface.ErrRange
			}
			ch.Scale, ch.Shift, ch.Ratio = ch.Scale*v/ch.Ratio, ch.Shift*v/ch.Ratio, v
			return nil
		}),
	}
}

// inputCommands are a channel's other settings.
func (f *Face) inputCommands() []command {
	return []command{
		f.Display("CHANnel<n>:DISPlay", func() { f.depth = 0 }), // the share of memory has changed
		f.Keep("CHANnel<n>:COUPling", func(ch *scopeface.Channel) *string { return &ch.Coupling }, "DC", "AC", "GND"),
		f.Keep("CHANnel<n>:BWLimit", func(ch *scopeface.Channel) *string { return &ch.Limit }, "OFF", "20M"),
		f.Keep("CHANnel<n>:INVert", func(ch *scopeface.Channel) *string { return &ch.Invert }, "0", "OFF"),
		f.Keep("CHANnel<n>:UNITs", func(ch *scopeface.Channel) *string { return &ch.Units }, "VOLTage", "WATT", "AMPere", "UNKNown"),
	}
}

// status is the answer to :TRIG:STAT?.
func (f *Face) status() string {
	return map[scopeface.State]string{
		scopeface.Stopped: "STOP", scopeface.Waiting: "WAIT", scopeface.Sampling: "RUN", scopeface.Free: "AUTO", scopeface.Triggered: "TD",
	}[f.State()]
}

func (f *Face) triggerCommands() []command {
	t := &f.Trig
	return []command{
		{Pattern: "TRIGger:STATus", Query: scopeface.Told(f.status)},
		{Pattern: "TRIGger:POSition", Query: scopeface.Fixed("-1")},
		{Pattern: "TRIGger:MODE", Set: scopeface.Word(&t.Mode, "EDGE"), Query: scopeface.Text(&t.Mode)},
		{Pattern: "TRIGger:COUPling", Set: scopeface.Word(&t.Coupling, "DC", "AC", "LFReject", "HFReject"), Query: scopeface.Text(&t.Coupling)},
		{Pattern: "TRIGger:HOLDoff", Query: scopeface.Number(&t.Holdoff)},
		{Pattern: "TRIGger:SWEep", Set: func(c call) error {
			err := scopeface.Word(&t.Sweep, "AUTO", "NORMal", "SINGle")(c)
			if err == nil && t.Sweep == "SING" && f.Running() {
				f.Start(true)
			}
			return err
		}, Query: scopeface.Text(&t.Sweep)},
	}
}

func (f *Face) edgeCommands() []command {
	t, edge := &f.Trig, "TRIGger:"+f.family.edge
	return []command{
		{
			Pattern: edge + ":SOURce", Set: f.Source(&t.Source, "CHANnel"),
			Query: func(call) ([]byte, error) { return scpiface.Text("CHAN%d", t.Source+1) },
		},
		{Pattern: edge + ":SLOPe", Set: scopeface.Word(&t.Slope, "POSitive", "NEGative", "RFALl"), Query: scopeface.Text(&t.Slope)},
		{Pattern: edge + ":LEVel", Set: scopeface.Set(func(v float64) error {
			ch := &f.Channel[t.Source]
			if math.Abs(v+ch.Shift) > f.family.level*ch.Scale*1.001 {
				return scpiface.ErrRange
			}
			t.Level = v
			return nil
		}), Query: scopeface.Number(&t.Level)},
	}
}
