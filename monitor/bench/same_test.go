package bench

import (
	"strings"
	"testing"
)

func TestSameInstruments(t *testing.T) {
	const gpu = "gpu: GPU-01234567-89ab-cdef-0123-456789abcdef\n"
	parse := func(text string) *Bench {
		t.Helper()
		b, err := Parse("b.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	was := parse(fourWirings)
	for _, c := range []struct {
		name, old, new string
		same           bool
	}{
		{"nothing", "", "", true},
		{"a gain", "gain: 0.002", "gain: 0.003", true},
		{"a rail's name", "name: slot", "name: socket", true},
		{"a shunt", "ohm: 0.005", "ohm: 0.006", true},
		{"the bench's name", "name: riser", "name: other", false},
		{"the address", "address: somewhere", "address: elsewhere", false},
		{"an option", "at_end: stop", "at_end: wait", false},
		{"the GPU", "\nname: riser\n", "\nname: riser\n" + gpu, false},
	} {
		text := strings.Replace(fourWirings, c.old, c.new, 1)
		if c.old != "" && text == fourWirings {
			t.Fatalf("%s: nothing was replaced", c.name)
		}
		if got := was.SameInstruments(parse(text)); got != c.same {
			t.Errorf("%s: same = %v", c.name, got)
		}
	}
}
