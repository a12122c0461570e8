package rigolface

import (
	"math"
	"strings"

	"wattmark/monitor/emulator/scpiface"
)

type (
	call    = scpiface.Call
	command = scpiface.Command
)

// commands is the tree. What only changes the picture on the screen is kept
// and told, no more.
func (f *Face) commands() []command {
	do := func(a func()) func(call) error { return func(call) error { a(); return nil } }
	all := []command{
		{Pattern: "RUN", Set: do(func() { f.run(false) })},
		{Pattern: "STOP", Set: do(f.stop)},
		{Pattern: "SINGle", Set: do(func() { f.trig.sweep = "SING"; f.run(true) })},
		{Pattern: "TFORce", Set: do(func() { f.update(); f.force() })},
		{Pattern: "CLEar", Set: do(func() {})},
		{Pattern: "TIMebase[:MAIN]:SCALe", Set: f.setTimeScale, Query: number(&f.timeScale)},
		{Pattern: "TIMebase[:MAIN]:OFFSet", Set: f.setTimeShift, Query: number(&f.timeShift)},
		{Pattern: "TIMebase:MODE", Set: func(c call) error { _, err := c.Word(0, "MAIN"); return err }, Query: fixed("MAIN")},
		{Pattern: "TIMebase:DELay:ENABle", Set: func(c call) error { _, err := c.Bool(0); return err }, Query: fixed("0")},
		{Pattern: "ACQuire:MDEPth", Set: f.setDepth, Query: func(call) ([]byte, error) {
			if f.depth == 0 {
				return scpiface.Text("AUTO")
			}
			return scpiface.Text("%d", f.depth)
		}},
		{Pattern: "ACQuire:SRATe", Query: func(call) ([]byte, error) { return scpiface.Text("%s", scpiface.Exponent(f.rate())) }},
		{Pattern: "ACQuire:TYPE", Set: word(&f.acqType, "NORMal", "AVERages", "PEAK", "HRESolution"), Query: text(&f.acqType)},
		{Pattern: "ACQuire:AVERages", Query: func(call) ([]byte, error) { return scpiface.Text("%d", f.average) }},
	}
	all = append(all, f.channelCommands()...)
	all = append(all, f.triggerCommands()...)
	return append(all, f.waveCommands()...)
}

func (f *Face) setTimeScale(c call) error {
	v, err := c.Number(0)
	if err == nil {
		v, err = step125(v, 5e-9, 50)
	}
	if err == nil {
		f.timeScale = v
	}
	return err
}

func (f *Face) setTimeShift(c call) error {
	v, err := c.Number(0)
	if err == nil && (v < -f.window()/2*1.001 || v > 5000) {
		err = scpiface.ErrRange
	}
	if err == nil {
		f.timeShift = v
	}
	return err
}

// on finds the channel that a header names.
func (f *Face) on(set func(*channel, call) error) func(call) error {
	return func(c call) error {
		if n := c.Suffixes[0]; n < 1 || n > Channels {
			return scpiface.ErrUndefined
		}
		return set(&f.channels[c.Suffixes[0]-1], c)
	}
}

func (f *Face) of(get func(*channel) ([]byte, error)) func(call) ([]byte, error) {
	return func(c call) ([]byte, error) {
		if n := c.Suffixes[0]; n < 1 || n > Channels {
			return nil, scpiface.ErrUndefined
		}
		return get(&f.channels[c.Suffixes[0]-1])
	}
}

func (f *Face) channelCommands() []command {
	keep := func(pattern string, at func(*channel) *string, words ...string) command {
		return command{
			Pattern: "CHANnel<n>:" + pattern,
			Set:     f.on(func(ch *channel, c call) error { return word(at(ch), words...)(c) }),
			Query:   f.of(func(ch *channel) ([]byte, error) { return []byte(*at(ch)), nil }),
		}
	}
	value := func(pattern string, at func(*channel) *float64, set func(*channel, float64) error) command {
		return command{
			Pattern: "CHANnel<n>:" + pattern,
			Set: f.on(func(ch *channel, c call) error {
				v, err := c.Number(0)
				if err != nil {
					return err
				}
				return set(ch, v)
			}),
			Query: f.of(func(ch *channel) ([]byte, error) { return scpiface.Text("%s", scpiface.Exponent(*at(ch))) }),
		}
	}
	return []command{
		{
			Pattern: "CHANnel<n>:DISPlay",
			Set: f.on(func(ch *channel, c call) error {
				v, err := c.Bool(0)
				if err == nil && ch.shown != v {
					ch.shown = v
					f.depth = 0 // the share of memory has changed
				}
				return err
			}),
			Query: f.of(func(ch *channel) ([]byte, error) { return []byte(flag(ch.shown)), nil }),
		},
		value("SCALe", func(ch *channel) *float64 { return &ch.scale }, func(ch *channel, v float64) error {
			v, err := step125(v, 1e-3*ch.ratio, 10*ch.ratio)
			if err == nil {
				ch.scale = v
			}
			return err
		}),
		value("OFFSet", func(ch *channel) *float64 { return &ch.offset }, func(ch *channel, v float64) error {
			most := 2 * ch.ratio
			if ch.scale >= 0.5*ch.ratio {
				most = 100 * ch.ratio
			}
			if math.Abs(v) > most {
				return scpiface.ErrRange
			}
			ch.offset = v
			return nil
		}),
		value("PROBe", func(ch *channel) *float64 { return &ch.ratio }, func(ch *channel, v float64) error {
			if v < 0.01 || v > 1000 {
				return scpiface.ErrRange
			}
			ch.scale, ch.offset, ch.ratio = ch.scale*v/ch.ratio, ch.offset*v/ch.ratio, v
			return nil
		}),
		keep("COUPling", func(ch *channel) *string { return &ch.coupling }, "DC", "AC", "GND"),
		keep("BWLimit", func(ch *channel) *string { return &ch.limit }, "OFF", "20M"),
		keep("INVert", func(ch *channel) *string { return &ch.invert }, "0", "OFF"),
		keep("UNITs", func(ch *channel) *string { return &ch.units }, "VOLTage", "WATT", "AMPere", "UNKNown"),
	}
}

func (f *Face) triggerCommands() []command {
	t := &f.trig
	return []command{
		{Pattern: "TRIGger:STATus", Query: func(call) ([]byte, error) { return []byte(f.status()), nil }},
		{Pattern: "TRIGger:POSition", Query: fixed("-1")},
		{Pattern: "TRIGger:MODE", Set: word(&t.mode, "EDGE"), Query: text(&t.mode)},
		{Pattern: "TRIGger:COUPling", Set: word(&t.coupling, "DC", "AC", "LFReject", "HFReject"), Query: text(&t.coupling)},
		{Pattern: "TRIGger:HOLDoff", Query: number(&t.holdoff)},
		{Pattern: "TRIGger:SWEep", Set: func(c call) error {
			err := word(&t.sweep, "AUTO", "NORMal", "SINGle")(c)
			if err == nil && t.sweep == "SING" && f.acq.running {
				f.run(true)
			}
			return err
		}, Query: text(&t.sweep)},
		{
			Pattern: "TRIGger:EDGe:SOURce", Set: func(c call) error { return source(&t.source, c) },
			Query: func(call) ([]byte, error) { return scpiface.Text("CHAN%d", t.source+1) },
		},
		{Pattern: "TRIGger:EDGe:SLOPe", Set: word(&t.slope, "POSitive", "NEGative", "RFALl"), Query: text(&t.slope)},
		{Pattern: "TRIGger:EDGe:LEVel", Set: func(c call) error {
			v, err := c.Number(0)
			if err == nil {
				t.level = v
			}
			return err
		}, Query: number(&t.level)},
	}
}

func (f *Face) waveCommands() []command {
	w := &f.wav
	point := func(at *int) (func(call) error, func(call) ([]byte, error)) {
		return func(c call) error {
			v, err := c.Number(0)
			if err == nil && (v < 1 || v > MaxMemory || v != math.Trunc(v)) {
				err = scpiface.ErrRange
			}
			if err == nil {
				*at = int(v)
			}
			return err
		}, func(call) ([]byte, error) { return scpiface.Text("%d", *at) }
	}
	setStart, start := point(&w.start)
	setStop, stop := point(&w.stop)
	return []command{
		{
			Pattern: "WAVeform:SOURce", Set: func(c call) error { return source(&w.source, c) },
			Query: func(call) ([]byte, error) { return scpiface.Text("CHAN%d", w.source+1) },
		},
		{Pattern: "WAVeform:MODE", Set: word(&w.mode, "NORMal", "MAXimum", "RAW"), Query: text(&w.mode)},
		{Pattern: "WAVeform:FORMat", Set: word(&w.format, "BYTE", "WORD", "ASCii"), Query: text(&w.format)},
		{Pattern: "WAVeform:STARt", Set: setStart, Query: start},
		{Pattern: "WAVeform:STOP", Set: setStop, Query: stop},
		{Pattern: "WAVeform:PREamble", Query: func(call) ([]byte, error) { return f.preamble() }},
		{Pattern: "WAVeform:DATA", Query: func(call) ([]byte, error) { return f.data() }},
		{Pattern: "WAVeform:XINCrement", Query: func(call) ([]byte, error) { return []byte(exact(f.view().step * 1e-9)), nil }},
		{Pattern: "WAVeform:YINCrement", Query: func(call) ([]byte, error) {
			inc, _ := f.scaling(w.source)
			return []byte(exact(inc)), nil
		}},
		{Pattern: "WAVeform:YORigin", Query: func(call) ([]byte, error) {
			_, origin := f.scaling(w.source)
			return scpiface.Text("%d", origin)
		}},
		{Pattern: "WAVeform:YREFerence", Query: fixed("127")},
	}
}

// source reads CHANn.
func source(at *int, c call) error {
	if len(c.Args) == 0 {
		return scpiface.ErrMissing
	}
	w := strings.ToUpper(c.Args[0])
	w = strings.TrimPrefix(strings.TrimPrefix(w, "CHAN"), "NEL")
	if len(w) != 1 || w[0] < '1' || w[0] > '0'+Channels {
		return scpiface.ErrValue
	}
	*at = int(w[0] - '1')
	return nil
}

func word(at *string, words ...string) func(call) error {
	return func(c call) error {
		w, err := c.Word(0, words...)
		if err == nil {
			*at = w
		}
		return err
	}
}

func text(at *string) func(call) ([]byte, error) {
	return func(call) ([]byte, error) { return []byte(*at), nil }
}

func fixed(s string) func(call) ([]byte, error) {
	return func(call) ([]byte, error) { return []byte(s), nil }
}

func number(at *float64) func(call) ([]byte, error) {
	return func(call) ([]byte, error) { return scpiface.Text("%s", scpiface.Exponent(*at)) }
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
