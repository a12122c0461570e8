package tekface

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
)

type (
	call    = scpiface.Call
	command = scpiface.Command
)

// commands is the tree. With HEADer ON each reply begins with its header.
func (f *Face) commands() []command {
	all := slices.Concat(f.acquireCommands(), f.timeCommands(), f.inputCommands(), f.triggerCommands(), f.edgeCommands(), f.dataCommands(), f.preambleCommands())
	if f.family.series {
		all = append(all, f.seriesCommands()...)
	} else {
		all = append(all, f.olderCommands()...)
	}
	for i, c := range all {
		if c.Query == nil {
			continue
		}
		all[i].Query = func(a call) ([]byte, error) {
			out, err := c.Query(a)
			if f.header && out != nil {
				out = append([]byte(told(c.Pattern, a.Suffixes, f.verbose)), out...)
			}
			return out, err
		}
	}
	return append(
		all,
		command{Pattern: "HEADer", Set: truth(&f.header), Query: scopeface.Told(func() string { return scopeface.Flag(f.header) })},
		command{Pattern: "VERBose", Set: truth(&f.verbose), Query: scopeface.Told(func() string { return scopeface.Flag(f.verbose) })},
	)
}

func truth(at *bool) func(call) error {
	return func(c call) error {
		v, err := c.Bool(0)
		if err == nil {
			*at = v
		}
		return err
	}
}

// keep is a setting that is told in its long form.
func (f *Face) keep(pattern string, words ...string) command {
	return command{
		Pattern: pattern,
		Set: func(c call) error {
			for _, w := range words {
				if got, err := c.Word(0, w); err == nil {
					if f.words[pattern] = strings.ToUpper(w); !f.verbose {
						f.words[pattern] = got
					}
					return nil
				}
			}
			return scpiface.ErrValue
		},
		Query: scopeface.Told(func() string { return f.words[pattern] }),
	}
}

// number is a setting with its reply in steps of thousands: 400.0000E-12.
func number(pattern string, get func() float64, set func(float64) error) command {
	c := command{Pattern: pattern, Query: scopeface.Told(func() string { return thousands(get()) })}
	if set != nil {
		c.Set = scopeface.Set(set)
	}
	return c
}

// thousands writes a number as this maker does.
func thousands(v float64) string {
	if v == 0 {
		return "0.0E+0"
	}
	e := 3 * int(math.Floor(math.Log10(math.Abs(v))/3+1e-12))
	return fmt.Sprintf("%.4fE%+d", v/math.Pow(10, float64(e)), e)
}

// begin is ACQuire:STATE RUN.
func (f *Face) begin() {
	f.began = f.now()
	f.Start(f.stopAfter == "SEQ")
	if f.stopAfter == "SEQ" && f.Trig.Sweep == "AUTO" {
		f.Force() // it does not wait for long
	}
}

func (f *Face) acquireCommands() []command {
	return []command{
		{Pattern: "ACQuire:STATE", Set: func(c call) error {
			w, err := c.Word(0, "RUN", "STOP", "ON", "OFF", "1", "0")
			switch {
			case err != nil:
			case w == "RUN" || w == "ON" || w == "1":
				f.begin()
			default:
				f.Stop()
			}
			return err
		}, Query: scopeface.Told(func() string { return scopeface.Flag(f.Running()) })},
		{Pattern: "ACQuire:STOPAfter", Set: scopeface.Word(&f.stopAfter, "RUNSTop", "SEQuence"), Query: scopeface.Text(&f.stopAfter)},
		{Pattern: "ACQuire:NUMACq", Query: scopeface.Told(func() string { return fmt.Sprint(f.taken()) })},
		f.keep("ACQuire:MODe", "SAMple", "PEAKdetect", "HIRes", "AVErage", "ENVelope"),
	}
}

// taken is how many acquisitions were finished since the last start.
func (f *Face) taken() int {
	switch {
	case f.stopAfter != "SEQ":
		return int((f.now() - f.began).Seconds() / f.Window())
	case !f.Running() && f.whole():
		return 1
	}
	return 0
}

// whole tells whether memory holds a record that was finished.
func (f *Face) whole() bool { return f.Memory().Points == f.Depth() }

func (f *Face) timeCommands() []command {
	return []command{
		number("HORizontal:SCAle", func() float64 { return f.Window() / divisions }, f.setTimeScale),
		{Pattern: "HORizontal:RECOrdlength", Set: scopeface.Set(f.setDepth), Query: scopeface.Told(func() string { return fmt.Sprint(f.depth) })},
		number("HORizontal:SAMPLERate", f.Rate, nil),
		number("HORizontal:POSition", func() float64 { return f.position }, func(v float64) error {
			if !(v >= 0 && v <= 100) {
				return scpiface.ErrRange
			}
			f.position = v
			return nil
		}),
		{Pattern: "HORizontal:DELay:MODe", Set: func(c call) error {
			on, err := c.Bool(0)
			if err == nil {
				f.words["HORizontal:DELay:MODe"] = scopeface.Flag(on)
			}
			return err
		}, Query: scopeface.Told(func() string { return f.words["HORizontal:DELay:MODe"] })},
	}
}

// seriesCommands are those of the 4, 5 and 6 Series alone.
func (f *Face) seriesCommands() []command {
	return []command{
		{Pattern: "HORizontal:MODe", Set: func(c call) error {
			w, err := c.Word(0, "AUTO", "MANual")
			if err == nil {
				f.manual = w == "MAN"
			}
			return err
		}, Query: scopeface.Told(func() string { return map[bool]string{true: "MANUAL", false: "AUTO"}[f.manual] })},
		number("HORizontal:MODe:SAMPLERate", f.Rate, f.setRate),
		{Pattern: "HORizontal:MODe:RECOrdlength", Set: scopeface.Set(f.setDepth), Query: scopeface.Told(func() string { return fmt.Sprint(f.depth) })},
		{Pattern: "HORizontal:ROLL", Query: scopeface.Fixed("OFF")},
		f.display("DISplay:GLObal:CH<n>:STATE"),
		f.probe("CH<n>:PROBEFunc:EXTAtten"),
	}
}

// olderCommands are those of the 3000 and 4000 series alone.
func (f *Face) olderCommands() []command {
	return []command{f.display("SELect:CH<n>"), f.probe("CH<n>:PRObe:GAIN")}
}
