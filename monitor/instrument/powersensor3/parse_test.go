package powersensor3

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/wattmark/wattmark/measure"
)

// put appends a frame as the device sends it.
func put(b []byte, f Frame) []byte {
	packet := func(id byte, marker bool, level uint16) {
		lo := byte(level & 0x3F)
		if marker {
			lo |= 0x40
		}
		b = append(b, 0x80|id<<4|byte(level>>6), lo)
	}
	packet(7, true, f.Stamp)
	for id, l := range f.Levels {
		packet(byte(id), id == 0 && f.Marker, l)
	}
	return b
}

// frames makes n frames of a steady device, with noise.
func frames(n int) (fs []Frame, bytes []byte) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range n {
		f := Frame{Stamp: uint16(i*FrameMicros) % StampTurn, Marker: i%97 == 5}
		for s := range f.Levels {
			f.Levels[s] = uint16(rng.IntN(MaxLevel + 1))
		}
		fs, bytes = append(fs, f), put(bytes, f)
	}
	return fs, bytes
}

// parseAll feeds pieces and returns the frames found.
func parseAll(p *Parser, pieces ...[]byte) (out []Frame) {
	for _, b := range pieces {
		for len(b) > 0 {
			n, ok := p.Next(b)
			if b = b[n:]; ok {
				out = append(out, p.Frame)
			}
		}
	}
	return out
}

func TestFragmentsAtEveryByte(t *testing.T) {
	want, b := frames(6)
	for cut := range len(b) + 1 {
		var p Parser
		if d := cmp.Diff(want, parseAll(&p, b[:cut], b[cut:])); d != "" || p.Skipped+p.Broken != 0 {
			t.Fatalf("cut at %d: skipped %d, broken %d\n%s", cut, p.Skipped, p.Broken, d)
		}
	}
	var p Parser
	var got []Frame
	for i := range b {
		got = append(got, parseAll(&p, b[i:i+1])...)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("byte by byte:\n%s", d)
	}
}

// Wherever one byte is lost, at most the frame that it belonged to is.
func TestOneByteDropped(t *testing.T) {
	want, b := frames(6)
	for i := range b {
		var p Parser
		got := parseAll(&p, b[:i], b[i+1:])
		hit := i / 18
		expect := append(append([]Frame{}, want[:hit]...), want[hit+1:]...)
		if d := cmp.Diff(expect, got); d != "" {
			t.Errorf("byte %d: %s", i, d)
		}
	}
}

// A doubled byte costs nothing.
func TestOneByteDuplicated(t *testing.T) {
	want, b := frames(6)
	for i := range b {
		var p Parser
		got := parseAll(&p, b[:i+1], b[i:])
		if d := cmp.Diff(want, got); d != "" || p.Skipped != 1 {
			t.Errorf("byte %d: skipped %d\n%s", i, p.Skipped, d)
		}
	}
}

// A flipped bit harms one frame at most, and never the frames after the next.
func TestOneBitFlipped(t *testing.T) {
	want, b := frames(6)
	for i := range b {
		for bit := range 8 {
			c := append([]byte{}, b...)
			c[i] ^= 1 << bit
			var p Parser
			got := parseAll(&p, c)
			wrong := 0
			for _, f := range got {
				found := false
				for _, w := range want {
					found = found || f == w
				}
				if !found {
					wrong++
				}
			}
			if wrong > 1 || len(got) < 5 || len(got) > 6 {
				t.Errorf("byte %d bit %d: %d frames, %d of them wrong", i, bit, len(got), wrong)
			}
		}
	}
}

func TestLostPacketDoesNotShiftTheOthers(t *testing.T) {
	want, b := frames(4)
	for packet := range 9 {
		at := 18 + 2*packet
		var p Parser
		got := parseAll(&p, b[:at], b[at+2:])
		expect := []Frame{want[0], want[2], want[3]}
		if d := cmp.Diff(expect, got); d != "" {
			t.Errorf("packet %d: %s", packet, d)
		}
	}
}

// A device whose memory marks only some sensors as in use may send just those.
func TestOnlyTheWantedSensors(t *testing.T) {
	var b []byte
	for i := range 3 {
		full := put(nil, Frame{Stamp: uint16(i * 50), Levels: [8]uint16{1, 2, 3, 4, 5, 6, 7, 8}})
		b = append(b, full[:10]...) // stamp and sensors 0 to 3
	}
	p := Parser{Want: 0b1111}
	got := parseAll(&p, b)
	if len(got) != 3 || p.Broken != 0 || got[2].Levels[3] != 4 {
		t.Errorf("%+v, broken %d", got, p.Broken)
	}
}

func TestFullScaleSensor7IsNoStopMark(t *testing.T) {
	f := Frame{Levels: [8]uint16{7: MaxLevel}}
	var b []byte
	for i := range 100 {
		f.Stamp = uint16(i*50) % StampTurn
		b = put(b, f)
	}
	if b[16] != 0xFF || b[17] != 0x3F {
		t.Fatalf("the hazard is gone: % x", b[16:18])
	}
	var p Parser
	if got := parseAll(&p, b); len(got) != 100 || got[99].Levels[7] != MaxLevel {
		t.Errorf("%d frames", len(got))
	}
	var m stopMark
	if m.find(b) {
		t.Error("full scale was taken for the stop mark")
	}
	for cut := range 5 {
		m := stopMark{}
		mark := []byte{0xFF, 0x3F, 0xFF, 0x3F}
		if !m.find(append(append([]byte{}, b...), mark[:cut]...)) && !m.find(mark[cut:]) {
			t.Errorf("mark cut at %d not found", cut)
		}
	}
}

func FuzzParser(f *testing.F) {
	_, b := frames(5)
	f.Add(b, 7)
	f.Add(b[3:], 1)
	f.Add([]byte{0xFF, 0x3F, 0xFF, 0x3F}, 2)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		var whole, parts Parser
		want := parseAll(&whole, b)
		if len(b) > 0 {
			cut = (cut%len(b) + len(b)) % len(b)
		} else {
			cut = 0
		}
		got := parseAll(&parts, b[:cut], b[cut:])
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("cut at %d of %d: %s", cut, len(b), d)
		}
		if whole.Skipped != parts.Skipped || whole.Broken != parts.Broken {
			t.Errorf("the fragments count differently")
		}
		if len(want)*18 > len(b) {
			t.Errorf("%d frames of %d bytes", len(want), len(b))
		}
		for _, f := range want {
			if f.Stamp >= StampTurn {
				t.Errorf("stamp %d", f.Stamp)
			}
		}
	})
}

func BenchmarkParser(b *testing.B) {
	_, data := frames(10_000)
	var p Parser
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		rest := data
		for len(rest) > 0 {
			n, _ := p.Next(rest)
			rest = rest[n:]
		}
	}
}

func FuzzSet(f *testing.F) {
	f.Add("pair0.name", "slot")
	f.Add("sensor7.in_use", "false")
	f.Add("sensor0.sensitivity", "-1e40")
	f.Add("sensor3.", "")
	f.Fuzz(func(t *testing.T, key, value string) {
		var s [Sensors]Sensor
		if err := Set(&s, key, value); err != nil {
			if s != ([Sensors]Sensor{}) {
				t.Errorf("refused with %v, but changed", err)
			}
			return
		}
		for i := range s { // what is accepted is stored as it was said
			var back Sensor
			if back.Unmarshal(s[i].Marshal()); back != s[i] {
				t.Errorf("%q=%q: %+v comes back as %+v", key, value, s[i], back)
			}
		}
	})
}

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
	if c.Name != "x.current" || c.Unit != measure.UnitAmpere || !c.OverRange(1023) || !c.OverRange(0) ||
		c.OverRange(1) {
		t.Errorf("%+v", c)
	}
	v, err := Sensor{Sensitivity: 0.2}.channel(1, "x")
	if err != nil || v.Name != "x.voltage" || v.Unit != measure.UnitVolt || math.Abs(v.Value(1023)-16.5) > 1e-6 {
		t.Errorf("%+v, %v", v, err)
	}
	for name, bad := range map[string]Sensor{
		"no sensitivity": {}, "NaN": {Sensitivity: float32(math.NaN())},
		"NaN vref": {Sensitivity: 1, Vref: float32(math.NaN())},
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
