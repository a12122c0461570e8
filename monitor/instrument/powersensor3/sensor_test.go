package powersensor3

import (
	"math"
	"strings"
	"testing"

	"wattmark/measure"
)

func TestSensorRoundTrip(t *testing.T) {
	s := Sensor{Type: "MLX10", Pair: "slot 12V", Vref: 1.65, Sensitivity: 0.12, InUse: true}
	var got Sensor
	got.Unmarshal(s.Marshal())
	if got != s {
		t.Errorf("%+v, want %+v", got, s)
	}
	long := Sensor{Type: strings.Repeat("x", 40)}
	got.Unmarshal(long.Marshal())
	if got.Type != strings.Repeat("x", 15) {
		t.Errorf("long text: %q", got.Type)
	}
}

// value = (3.3·level/1023 − vref)/sensitivity
func TestChannelScale(t *testing.T) {
	c, err := Sensor{Type: "MLX10", Vref: 1.65, Sensitivity: 0.12}.channel(0, "x")
	if err != nil {
		t.Fatal(err)
	}
	for level, want := range map[measure.Count]float64{0: -13.75, 1023: 13.75, 512: (3.3*512/1023 - 1.65) / 0.12} {
		if got := c.Value(level); math.Abs(got-want) > 1e-6 {
			t.Errorf("level %d: %v A, want %v", level, got, want)
		}
	}
	if c.Name != "x.current" || c.Unit != measure.UnitAmpere || !c.OverRange(1023) || !c.OverRange(0) || c.OverRange(1) {
		t.Errorf("%+v", c)
	}
	v, err := Sensor{Sensitivity: 0.2}.channel(1, "x")
	if err != nil || v.Name != "x.voltage" || v.Unit != measure.UnitVolt || math.Abs(v.Value(1023)-16.5) > 1e-6 {
		t.Errorf("%+v, %v", v, err)
	}
	for name, bad := range map[string]Sensor{
		"no sensitivity": {}, "NaN": {Sensitivity: float32(math.NaN())}, "NaN vref": {Sensitivity: 1, Vref: float32(math.NaN())},
		"infinite": {Sensitivity: float32(math.Inf(1))},
	} {
		if _, err := bad.channel(0, "x"); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPairNames(t *testing.T) {
	var s [Sensors]Sensor
	for i, n := range []string{"Slot 12V", "Slot 12V", "", "", "PCIe8 (1)", "", "Slot 12V", "Slot 12V"} {
		s[i] = Sensor{Pair: n, InUse: true}
	}
	if got, want := pairNames(s), [4]string{"slot_12v", "pair1", "pcie8_1", "pair3"}; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
