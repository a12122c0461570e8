package tekface

import (
	"math"

	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
)

func (f *Face) display(pattern string) command { return f.Display(pattern, func() {}) }

// channel is a setting of one: a number.
func (f *Face) channel(pattern string, get func(i int) float64, set func(i int, v float64) error) command {
	in := func(c call) (int, error) {
		if n := c.Suffixes[0]; n < 1 || n > len(f.Channel) {
			return 0, scpiface.ErrUndefined
		}
		return c.Suffixes[0] - 1, nil
	}
	return command{
		Pattern: pattern,
		Set: func(c call) error {
			i, err := in(c)
			if err != nil {
				return err
			}
			v, err := c.Number(0)
			if err == nil {
				err = set(i, v)
			}
			f.shift(i)
			return err
		},
		Query: func(c call) ([]byte, error) {
			i, err := in(c)
			if err != nil {
				return nil, err
			}
			return []byte(thousands(get(i))), nil
		},
	}
}

// probe is the probe's gain: 0.1 of one that divides by ten.
func (f *Face) probe(pattern string) command {
	return f.channel(pattern, func(i int) float64 { return 1 / f.Channel[i].Ratio }, func(i int, v float64) error {
		if !(v >= 1e-4 && v <= 1e4) {
			return scpiface.ErrRange
		}
		c := &f.Channel[i]
		c.Scale, f.inputs[i].offset, c.Ratio = c.Scale/v/c.Ratio, f.inputs[i].offset/v/c.Ratio, 1/v
		return nil
	})
}

func (f *Face) inputCommands() []command {
	return []command{
		f.channel("CH<n>:SCAle", func(i int) float64 { return f.Channel[i].Scale }, func(i int, v float64) error {
			if c := &f.Channel[i]; v >= 1e-3*c.Ratio*0.999 && v <= 10*c.Ratio*1.001 {
				c.Scale = v
				return nil
			}
			return scpiface.ErrRange
		}),
		f.channel("CH<n>:OFFSet", func(i int) float64 { return f.inputs[i].offset }, func(i int, v float64) error {
			most := 1.0
			switch s := f.Channel[i].Scale / f.Channel[i].Ratio; {
			case s > 1:
				most = 100
			case s > 0.05:
				most = 50 // 10 V below 0.1 V a division on some
			}
			if !(math.Abs(v) <= most*f.Channel[i].Ratio) {
				return scpiface.ErrRange
			}
			f.inputs[i].offset = v
			return nil
		}),
		f.channel("CH<n>:POSition", func(i int) float64 { return f.inputs[i].position }, func(i int, v float64) error {
			if !(math.Abs(v) <= 8) {
				return scpiface.ErrRange
			}
			f.inputs[i].position = v
			return nil
		}),
		f.Keep("CH<n>:COUPling", func(ch *scopeface.Channel) *string { return &ch.Coupling }, "DC", "AC"),
		f.Keep("CH<n>:INVert", func(ch *scopeface.Channel) *string { return &ch.Invert }, "OFF", "0"),
		f.Keep("CH<n>:BANdwidth", func(ch *scopeface.Channel) *string { return &ch.Limit }, "FULl", "TWEnty"),
	}
}

// status is the answer to TRIGger:STATE?.
func (f *Face) status() string {
	long := map[scopeface.State]string{
		scopeface.Stopped: "SAVE", scopeface.Waiting: "READY", scopeface.Sampling: "TRIGGER", scopeface.Free: "AUTO", scopeface.Triggered: "TRIGGER",
	}[f.State()]
	if f.verbose {
		return long
	}
	return map[string]string{"SAVE": "SAV", "READY": "REA", "TRIGGER": "TRIG", "AUTO": "AUTO"}[long]
}

func (f *Face) triggerCommands() []command {
	t := &f.Trig
	return []command{
		{Pattern: "TRIGger", Set: func(c call) error {
			_, err := c.Word(0, "FORCe")
			if err == nil {
				f.Force()
			}
			return err
		}},
		{Pattern: "TRIGger:STATE", Query: scopeface.Told(f.status)},
		{Pattern: "TRIGger:A:TYPe", Set: scopeface.Word(&t.Mode, "EDGE"), Query: scopeface.Text(&t.Mode)},
		{Pattern: "TRIGger:A:MODe", Set: scopeface.Word(&t.Sweep, "AUTO", "NORMal"), Query: scopeface.Text(&t.Sweep)},
	}
}

func (f *Face) edgeCommands() []command {
	t := &f.Trig
	slopes := map[string]string{"RIS": "POS", "FALL": "NEG", "EIT": "RFAL"}
	return []command{
		{Pattern: "TRIGger:A:EDGE:SOUrce", Set: f.Source(&t.Source, "CH"), Query: func(call) ([]byte, error) { return scpiface.Text("CH%d", t.Source+1) }},
		{Pattern: "TRIGger:A:EDGE:SLOpe", Set: func(c call) error {
			w, err := c.Word(0, "RISe", "FALL", "EITher")
			if err == nil {
				t.Slope = slopes[w]
			}
			return err
		}, Query: scopeface.Told(func() string { return map[string]string{"POS": "RISE", "NEG": "FALL", "RFAL": "EITHER"}[t.Slope] })},
		{Pattern: "TRIGger:A:EDGE:COUPling", Set: scopeface.Word(&t.Coupling, "DC", "AC", "HFRej", "LFRej", "NOISErej"), Query: scopeface.Text(&t.Coupling)},
		f.channel("TRIGger:A:LEVel:CH<n>", func(int) float64 { return t.Level }, func(i int, v float64) error {
			c := f.Channel[i]
			if !(math.Abs(v+c.Shift) <= 8*c.Scale) {
				return scpiface.ErrRange
			}
			t.Level = v
			return nil
		}),
	}
}
