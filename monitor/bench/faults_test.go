package bench

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/monitor/instrument/registry"
)

// head is lines 1 to 3 of most cases.
const head = "name: b\ninstruments:\n- {kind: pmd, port: /dev/ttyUSB0}\n"

// two is two instruments, in lines 1 to 4.
const two = "name: b\ninstruments:\n- {name: a, kind: pmd, port: /dev/ttyUSB0}\n- {name: b, kind: pmd, port: /dev/ttyUSB1}\n"

var faults = []struct {
	name, text   string
	line, column int
	want         string
}{
	{"empty", "", 0, 0, "the file is empty"},
	{"comment only", "# nothing\n", 0, 0, "the file is empty"},
	{"not yaml", "name: [", 1, 7, ""},
	{"a tab", "name: b\ninstruments:\n\t- kind: pmd\n", 3, 1, "a tab: YAML wants spaces"},
	{"two documents", head + "---\nname: c\n", 5, 1, "one document"},
	{"unknown key", "nmae: b\n", 1, 1, `unknown field "nmae"`},
	{"unknown key deep", head + "rails:\n- name: a\n  clamp: {curent: x}\n", 6, 11, `unknown field "curent"`},
	{"key twice", "name: a\nname: b\n", 2, 1, "already defined"},
	{"wrong type", "name: b\ninstruments: 7\n", 2, 14, ""},
	{"no instruments", "name: b\n", 1, 1, "no instrument"},
	{"two of a name", "instruments:\n- {kind: pmd, port: /dev/a}\n- {kind: pmd, port: /dev/b}\n", 3, 3, "two instruments are called pmd"},
	{"a slash in a name", "instruments:\n- {name: a/b, kind: pmd, port: /dev/a}\n", 2, 10, "no / in it"},
	{"fault of the second", "instruments:\n- {kind: pmd, port: /dev/a}\n- kind: labjack\n", 3, 3, "port is missing: a labjack"},
	{"option of the second", "instruments:\n- {kind: pmd, port: /dev/a}\n- kind: nvml\n  options: {baud: 9600}\n", 4, 13, `unknown field "baud"`},
	{"align by what", two + "align: {by: luck}\n", 5, 8, `align by "luck": want trigger, markers or clock`},
	{"align key", two + "align: {bye: clock}\n", 5, 9, `unknown field "bye"`},
	{"align alone", head + "align: {by: clock}\n", 4, 8, "there is one instrument"},
	{"align master", two + "align: {by: trigger, master: c}\n", 5, 8, `master "c": this bench has a, b`},
	{"align master without trigger", two + "align: {by: clock, master: a}\n", 5, 8, "say by: trigger"},
	{"align u", two + "align: {by: clock, u: -1ms}\n", 5, 8, "must not be negative"},
	{"channel of both", two + "rails:\n- name: r\n  clamp: {current: eps1.current, voltage: a/eps1.voltage}\n", 7, 20, `is one of a and of b: write a/eps1.current`},
	{"channel of neither", two + "rails:\n- name: r\n  clamp: {current: b/eps7.current, voltage: a/eps1.voltage}\n", 7, 20, `unknown channel "eps7.current": the pmd has b/pcie1.voltage`},
	{"channel of no instrument", two + "rails:\n- name: r\n  clamp: {current: c/eps1.current, voltage: a/eps1.voltage}\n", 7, 20, `unknown instrument "c"`},
	{"calibration of the other's channel", "instruments:\n- {name: a, kind: pmd, port: /dev/a}\n- name: b\n  kind: pmd\n  port: /dev/b\n  channels:\n    a/eps1.current: {gain: 1}\n", 7, 5, "put it under its own instrument"},
	{"gain of the second", "instruments:\n- {name: a, kind: pmd, port: /dev/a}\n- name: b\n  kind: pmd\n  port: /dev/b\n  channels:\n    eps1.current: {gain: 0}\n", 7, 26, "gain is 0"},
	{"no kind", "instruments:\n- port: /dev/a\n", 2, 3, "kind is missing"},
	{"unknown instrument", "instruments:\n- kind: oscilloscope\n", 2, 9, `unknown instrument "oscilloscope": want one of powersensor3, pmd`},
	{"no port", "instruments:\n- kind: pmd\n", 2, 3, "port is missing: a pmd wants a serial port"},
	{"port and address", "instruments:\n- kind: pmd\n  port: /dev/a\n  address: /dev/b\n", 4, 12, "keep one"},
	{"unknown option", "instruments:\n- kind: pmd\n  port: /dev/a\n  options:\n    buad: 9600\n", 5, 5, `unknown field "buad"`},
	{"bad option", "instruments:\n- kind: pmd\n  port: /dev/a\n  options: {baud: 9600}\n", 4, 12, "baud 9600"},
	{"option of another kind", "instruments:\n- kind: nvml\n  options: {baud: 9600}\n", 3, 13, `unknown field "baud"`},
	{"unknown channel", head + "rails:\n- name: a\n  clamp: {current: eps3.current, voltage: eps1.voltage}\n", 6, 20, `unknown channel "eps3.current": the pmd has pcie1.voltage`},
	{"unknown instrument of a channel", head + "rails:\n- name: a\n  clamp: {current: scope/eps1.current, voltage: eps1.voltage}\n", 6, 20, `unknown instrument "scope"`},
	{"unknown channel calibrated", "instruments:\n- kind: pmd\n  port: /dev/a\n  channels:\n    eps9.current: {gain: 1}\n", 5, 5, `unknown channel "eps9.current"`},
	{"channel twice", head + "rails:\n- name: a\n  clamp: {current: eps1.current, voltage: eps1.voltage}\n- name: b\n  clamp: {current: eps2.current, voltage: eps1.voltage}\n", 8, 43, "channel eps1.voltage is already used by rail a"},
	{"channel twice in disguise", head + "rails:\n- name: a\n  clamp: {current: eps1.current, voltage: eps1.voltage}\n- name: b\n  clamp: {current: eps2.current, voltage: pmd/eps1.voltage}\n", 8, 43, "channel eps1.voltage is already used by rail a"},
	{"rail twice", head + "rails:\n- name: a\n  clamp: {current: eps1.current, voltage: eps1.voltage}\n- name: a\n  clamp: {current: eps2.current, voltage: eps2.voltage}\n", 7, 9, "rail a: named twice"},
	{"no rail name", head + "rails:\n- clamp: {current: eps1.current, voltage: eps1.voltage}\n", 5, 3, "name is missing"},
	{"shunt of nothing", head + "rails:\n- name: a\n  shunt: {source: eps1.voltage, ground: eps2.voltage, ohm: 0}\n", 6, 60, "a shunt in Ω of 0"},
	{"shunt missing", head + "rails:\n- name: a\n  shunt: {source: eps1.voltage, ground: eps2.voltage}\n", 6, 0, "a shunt in Ω of 0"},
	{"shunt NaN", head + "rails:\n- name: a\n  shunt: {source: eps1.voltage, ground: eps2.voltage, ohm: .nan}\n", 6, 60, "of NaN"},
	{"shunt infinite", head + "rails:\n- name: a\n  shunt: {source: eps1.voltage, ground: eps2.voltage, ohm: .inf}\n", 6, 60, "of +Inf"},
	{"shunt uncertainty", head + "rails:\n- name: a\n  shunt: {source: eps1.voltage, ground: eps2.voltage, ohm: 1, u_rel: -1}\n", 6, 70, "must be zero or positive"},
	{"assumed nothing", head + "rails:\n- name: a\n  assumed: {current: eps1.current, volt: 0}\n", 6, 42, "an assumed voltage in V of 0"},
	{"wrong unit", head + "rails:\n- name: a\n  clamp: {current: eps1.voltage, voltage: eps1.current}\n", 5, 3, "reads V; a clamp rail wants A"},
	{"no wiring", head + "rails:\n- name: a\n", 5, 3, "rail a has 0 wirings"},
	{"two wirings", head + "rails:\n- name: a\n  clamp: {current: x, voltage: y}\n  power: {channel: z}\n", 5, 3, "rail a has 2 wirings"},
	{"no channel", head + "rails:\n- name: a\n  clamp: {current: eps1.current}\n", 6, 0, "voltage is missing"},
	{"unknown role", head + "rails:\n- name: a\n  role: slot\n  clamp: {current: eps1.current, voltage: eps1.voltage}\n", 6, 9, `unknown role "slot": want pcie_12v, pcie_3v3, psu, whole_gpu`},
	{"two at the wall", head + "rails:\n- name: a\n  clamp: {current: eps1.current, voltage: eps1.voltage}\n- {name: b, role: wall, power: {channel: x}}\n- {name: c, role: wall, power: {channel: y}}\n", 8, 19, "rail c: b is at the wall already"},
	{"the wall alone", head + "rails:\n- {name: b, role: wall, power: {channel: x}}\n", 5, 1, "rail b is at the wall, and no rail of the card is beside it"},
	{"the wall by two channels", head + "rails:\n- name: a\n  clamp: {current: eps1.current, voltage: eps1.voltage}\n- name: b\n  role: wall\n  clamp: {current: eps2.current, voltage: eps2.voltage}\n", 7, 3, "rail b: at the wall a meter multiplies itself: wire it by power"},
	{"the wall by volts", head + "rails:\n- name: a\n  clamp: {current: eps1.current, voltage: eps1.voltage}\n- {name: b, role: wall, power: {channel: eps2.voltage}}\n", 7, 3, "reads V; a power rail wants W"},
	{"the wall aligned loosely", two + "align: {by: clock, u: 1s}\nrails:\n- {name: b, role: wall, power: {channel: x}}\n", 5, 23, "placed within 10 ms"},
	{"gain NaN", "instruments:\n- kind: pmd\n  port: /dev/a\n  channels:\n    eps1.current: {gain: .nan}\n", 5, 26, "gain is NaN"},
	{"offset infinite", "instruments:\n- kind: pmd\n  port: /dev/a\n  channels:\n    eps1.current: {offset: -.inf}\n", 5, 28, "offset is -Inf"},
	{"gain zero", "instruments:\n- kind: pmd\n  port: /dev/a\n  channels:\n    eps1.current: {gain: 0}\n", 5, 26, "gain is 0"},
	{"uncertainty negative", "instruments:\n- kind: pmd\n  port: /dev/a\n  channels:\n    eps1.current: {u_gain: -0.1}\n", 5, 28, "u_gain is negative"},
	{"missing and measured", head + "rails:\n- name: a\n  clamp: {current: eps1.current, voltage: eps1.voltage}\nmissing: [a]\n", 7, 11, "cannot be missing"},
	{"missing twice", head + "missing: [a, a]\n", 4, 14, "named twice"},
	{"gain of letters", "instruments:\n- kind: pmd\n  port: /dev/a\n  channels:\n    eps1.current: {gain: abc}\n", 5, 26, `instruments[0].channels[eps1.current].gain: "abc": want a number, in the channel's unit (V, A, W) a count`},
	{"gain of keys", "instruments:\n- kind: pmd\n  port: /dev/a\n  channels:\n    eps1.current: {gain: {a: 1}}\n", 5, 26, `gain: want a number`},
	{"channel without keys", "instruments:\n- kind: pmd\n  port: /dev/a\n  channels:\n    eps1.current: 5\n", 5, 19, `want keys and values`},
	{"delay of letters", "instruments:\n- name: abc\n  kind: pmd\n  port: /dev/a\n  delay: abc\n", 5, 10, `instruments[0].delay: "abc" is no time: want a time with its unit`},
	{"time without unit", head + "response: {tau: 5}\n", 4, 17, `response.tau: "5": want a time with its unit, such as 5us`},
	{"time of another unit", head + "response: {tau: 5 parsecs}\n", 4, 17, `response.tau: "5 parsecs" is no time`},
	{"port of a list", "instruments:\n- kind: pmd\n  port: [1]\n", 3, 9, `instruments[0].port: want one word or text`},
	{"missing no list", head + "missing: 7\n", 4, 10, `missing: want a list`},
	{"rails no list", head + "rails: {a: b}\n", 4, 8, `want a list`},
	{"switch", head + "align: {shared_clock: maybe}\n", 4, 23, `align.shared_clock: "maybe": want true or false`},
	{"option of letters", "instruments:\n- kind: pmd\n  port: /dev/a\n  options: {baud: fast}\n", 4, 19, `options.baud: "fast": want a whole number, in bits a second`},
	{"option of an input", "instruments:\n- kind: labjack\n  port: tcp:a:502\n  options: {inputs: [{ain: x}]}\n", 4, 28, `options.inputs[0].ain: "x": want a whole number`},
	{"option too large", "instruments:\n- kind: pmd\n  port: /dev/a\n  options: {baud: 1e99}\n", 4, 19, `is too large`},
	{"shunt with a unit", head + "rails:\n- name: a\n  shunt: {source: a, ground: b, ohm: 5mOhm}\n", 6, 38, `rails[0].shunt.ohm: "5mOhm": want a number, in Ω`},
	{"response negative", head + "response: {tau: -1ms}\n", 4, 11, "negative"},
}

func TestFaultsPointAtTheLine(t *testing.T) {
	for _, tc := range faults {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("bench.yaml", []byte(tc.text))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%v", err)
			}
			if e.Line != tc.line || (tc.column != 0 && e.Column != tc.column) {
				t.Errorf("at %d:%d, want %d:%d\n%v", e.Line, e.Column, tc.line, tc.column, err)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v\nwant %q", err, tc.want)
			}
			for _, word := range []string{"unmarshal", "Go struct", "interface {}", "float64", "uint64"} {
				if strings.Contains(e.Message, word) {
					t.Errorf("%q is no word of a bench file's: %v", word, err)
				}
			}
			if e.Line == 0 {
				return
			}
			if !strings.HasPrefix(err.Error(), fmt.Sprintf("bench.yaml:%d:%d: ", e.Line, e.Column)) {
				t.Errorf("%v", err)
			}
			line := strings.ReplaceAll(strings.Split(tc.text, "\n")[e.Line-1], "\t", " ")
			if !strings.Contains(e.Snippet, fmt.Sprintf("> %3d | %s", e.Line, line)) || !strings.Contains(e.Snippet, "^") {
				t.Errorf("snippet:\n%s", e.Snippet)
			}
		})
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, err := Parse("b.yaml", []byte(head+"rails:\n- name: a\n  role: x\n  assumed: {current: eps1.current, volt: 0}\n- name: a\n  power: {}\n"))
	for _, want := range []string{"b.yaml:6:9", "unknown role", "b.yaml:7:", "an assumed voltage", "b.yaml:8:9", "named twice", "channel is missing"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q is not told:\n%v", want, err)
		}
	}
}

func TestFaultsCanBeTestedFor(t *testing.T) {
	if _, err := Parse("b.yaml", []byte("instruments: [{kind: x}]")); !errors.Is(err, registry.ErrUnknown) {
		t.Error(err)
	}
	if _, err := Parse("b.yaml", make([]byte, maxSize+1)); err == nil {
		t.Error("a huge file was read")
	}
}
