package u2300face

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"wattmark/monitor/emulator/scpiface"
)

type (
	call    = scpiface.Call
	command = scpiface.Command
)

const (
	slowest   = 3       // scans a second
	maxPoints = 8 << 20 // of a block or a single shot, over all channels
)

// commands is the tree.
func (f *Face) commands() []command {
	return []command{
		f.setting("ROUTe:CHANnel:RANGe", func(c *channel) *string { return &c.rng }, rangeWord),
		f.setting("ROUTe:CHANnel:POLarity", func(c *channel) *string { return &c.polarity }, words("BIPolar", "UNIPolar")),
		f.setting("ROUTe:CHANnel:STYPe", func(c *channel) *string { return &c.kind }, words("SINGle", "DIFFerential", "NRS")),
		{Pattern: "ROUTe:SCAN", Set: f.idle(f.setScan), Query: func(call) ([]byte, error) { return []byte(list(f.scan)), nil }},
		{Pattern: "ACQuire:SRATe", Set: f.idle(f.setRate), Query: func(call) ([]byte, error) { return scpiface.Text("%d", f.rate) }},
		{Pattern: "ACQuire:POINts", Set: f.idle(f.setPoints(&f.depth)), Query: func(call) ([]byte, error) { return scpiface.Text("%d", f.depth) }},
		{Pattern: "WAVeform:POINts", Set: f.idle(f.setPoints(&f.points)), Query: func(call) ([]byte, error) { return scpiface.Text("%d", f.points) }},
		{Pattern: "ACQuire:BURSt", Set: f.idle(func(c call) error {
			v, err := c.Bool(0)
			if err == nil {
				f.burst = v
			}
			return err
		}), Query: func(call) ([]byte, error) {
			if f.burst {
				return []byte("1"), nil
			}
			return []byte("0"), nil
		}},
		{Pattern: "TRIGger:SOURce", Set: f.idle(func(c call) error { _, err := c.Word(0, "NONE"); return err }), Query: func(call) ([]byte, error) { return []byte("NONE"), nil }},
		{Pattern: "RUN", Set: func(call) error { return f.start(false) }},
		{Pattern: "DIGitize", Set: func(call) error { return f.start(true) }},
		{Pattern: "STOP", Set: func(call) error {
			f.update()
			if f.acq.running {
				f.freeze(f.converted())
			}
			return nil
		}},
		{Pattern: "WAVeform:STATus", Query: func(call) ([]byte, error) { return []byte(f.status()), nil }},
		{Pattern: "WAVeform:COMPlete", Query: func(call) ([]byte, error) {
			if f.update(); f.acq.running {
				return []byte("NO"), nil
			}
			return []byte("YES"), nil
		}},
		{Pattern: "WAVeform:DATA", Query: func(call) ([]byte, error) { return f.data() }},
		{Pattern: "MEASure[:VOLTage][:DC]", Query: f.measure},
	}
}

// idle lets a command pass only while no acquisition runs.
func (f *Face) idle(set func(call) error) func(call) error {
	return func(c call) error {
		if f.update(); f.acq.running {
			return scpiface.ErrConflict
		}
		return set(c)
	}
}

// each finds the channels that parameter i lists.
func (f *Face) each(c call, i int, do func(*channel, int) error) error {
	numbers, err := c.Channels(i)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if n < firstChannel || n >= firstChannel+f.channels {
			return scpiface.ErrRange
		}
		if err := do(&f.inputs[n-firstChannel], n); err != nil {
			return err
		}
	}
	return nil
}

// setting is a header with a value and a list of channels.
func (f *Face) setting(pattern string, at func(*channel) *string, parse func(call) (string, error)) command {
	return command{
		Pattern: pattern,
		Set: f.idle(func(c call) error {
			v, err := parse(c)
			if err != nil {
				return err
			}
			if err := f.each(c, 1, func(_ *channel, n int) error {
				if v == "DIFF" && n >= firstChannel+f.channels/2 {
					return scpiface.ErrRange
				}
				return nil
			}); err != nil {
				return err
			}
			return f.each(c, 1, func(ch *channel, _ int) error { *at(ch) = v; return nil })
		}),
		Query: func(c call) ([]byte, error) {
			var out []string
			err := f.each(c, 0, func(ch *channel, _ int) error { out = append(out, *at(ch)); return nil })
			return joined(out, err)
		},
	}
}

func words(w ...string) func(call) (string, error) {
	return func(c call) (string, error) { return c.Word(0, w...) }
}

func rangeWord(c call) (string, error) {
	v, err := c.Number(0)
	if err != nil {
		return "", err
	}
	if !slices.Contains([]float64{10, 5, 2.5, 1.25}, v) {
		return "", scpiface.ErrRange
	}
	return strconv.FormatFloat(v, 'f', -1, 64), nil
}

func (f *Face) setScan(c call) error {
	numbers, err := c.Channels(0)
	if err != nil {
		return err
	}
	if err := f.each(c, 0, func(*channel, int) error { return nil }); err != nil {
		return err
	}
	if f.rate*len(numbers) > f.fastest {
		return scpiface.ErrConflict
	}
	f.scan = numbers
	return nil
}

func (f *Face) setRate(c call) error {
	v, err := c.Number(0)
	if err == nil && !(v >= slowest && v*float64(len(f.scan)) <= float64(f.fastest)) {
		err = scpiface.ErrRange
	}
	if err == nil {
		f.rate = int(math.Round(v))
	}
	return err
}

func (f *Face) setPoints(at *int) func(call) error {
	return func(c call) error {
		v, err := c.Number(0)
		if err == nil && (v < 1 || v != math.Trunc(v) || v*float64(len(f.scan)) > maxPoints) {
			err = scpiface.ErrRange
		}
		if err == nil {
			*at = int(v)
		}
		return err
	}
}

// measure is a single reading of the channels listed, in volts.
func (f *Face) measure(c call) ([]byte, error) {
	var out []string
	now := f.cfg.Now()
	err := f.each(c, 0, func(ch *channel, _ int) error {
		out = append(out, scpiface.Exponent(ch.volts(f.board, f.board.MeanPower(now, now))))
		return nil
	})
	return joined(out, err)
}

func joined(values []string, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return []byte(strings.Join(values, ",")), nil
}

// list writes a channel list.
func list(numbers []int) string {
	s := make([]string, len(numbers))
	for i, n := range numbers {
		s[i] = fmt.Sprint(n)
	}
	return "(@" + strings.Join(s, ",") + ")"
}
