package measure

import (
	"math"
	"testing"
)

func TestSliceOfABlock(t *testing.T) {
	stamped := Timebase{TickHz: 1e6, TicksPerScan: 50, Stamped: true}
	uniform := Timebase{TickHz: 1e6, TicksPerScan: 50}
	counts := [][]Count{{1, 2, 3}}
	for name, c := range map[string]struct {
		tb       Timebase
		b        Block
		from, to int
		tick     int64
	}{
		"all":                        {stamped, Block{FirstScan: 7, FirstTick: 100, Ticks: []int64{100, 151, 199}, Counts: counts}, 0, 3, 100},
		"middle, stamped":            {stamped, Block{FirstScan: 7, FirstTick: 100, Ticks: []int64{100, 151, 199}, Counts: counts}, 1, 2, 151},
		"middle, uniform":            {uniform, Block{FirstScan: 7, FirstTick: 100, Counts: counts}, 1, 2, 150},
		"nothing at the end":         {uniform, Block{FirstScan: 7, FirstTick: 100, Counts: counts}, 3, 3, 250},
		"nothing at a stamped end":   {stamped, Block{FirstScan: 7, FirstTick: 100, Ticks: []int64{100, 151, 199}, Counts: counts}, 3, 3, 249},
		"nothing of an empty block":  {stamped, Block{FirstScan: 7, FirstTick: 100, Ticks: []int64{}, Counts: [][]Count{{}}}, 0, 0, 100},
		"nothing at a stamped start": {stamped, Block{FirstScan: 7, FirstTick: 100, Ticks: []int64{100, 151, 199}, Counts: counts}, 0, 0, 100},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.b.Slice(c.tb, c.from, c.to)
			if err := got.Validate(c.tb, 1); err != nil {
				t.Fatal(err)
			}
			if got.Scans() != c.to-c.from || got.FirstScan != 7+uint64(c.from) || got.FirstTick != c.tick {
				t.Errorf("%d scans from %d at tick %d, want %d from %d at %d", got.Scans(), got.FirstScan, got.FirstTick, c.to-c.from, 7+c.from, c.tick)
			}
		})
	}
}

// Everything that changes a joule changes the calibration's name.
func TestCalibrationID(t *testing.T) {
	base := func() *Setup {
		return &Setup{
			Timebase: Timebase{TickHz: 1e6, TicksPerScan: 50},
			Channels: []Channel{{Name: "s", Unit: UnitVolt, Gain: 1e-3}, {Name: "g", Unit: UnitVolt, Gain: 1e-3}},
			Rails:    []Rail{{Name: "slot", Role: RolePCIe12V, Wiring: WiringShunt, X: 0, Y: 1, Shunt: 0.005}},
			Missing:  []string{"pcie_3v3"},
		}
	}
	seen := map[string]string{}
	for name, change := range map[string]func(*Setup){
		"nothing": func(*Setup) {},
		"gain":    func(s *Setup) { s.Channels[1].Gain = math.Nextafter(s.Channels[1].Gain, 1) },
		"offset":  func(s *Setup) { s.Channels[1].Offset = 1e-9 },
		"name":    func(s *Setup) { s.Channels[1].Name = "w" },
		"u_gain":  func(s *Setup) { s.Channels[1].UGain = 1e-9 },
		"u_tick":  func(s *Setup) { s.Timebase.UTickHz = 1e-6 },
		"skew":    func(s *Setup) { s.Channels[1].Skew = 1e-9 },
		"noise":   func(s *Setup) { s.Channels[1].Noise = 1e-9 },
		"range":   func(s *Setup) { s.Channels[0].MaxCount = 9 },
		"shunt":   func(s *Setup) { s.Rails[0].Shunt += 1e-12 },
		"role":    func(s *Setup) { s.Rails[0].Role = RolePSU },
		"swap":    func(s *Setup) { s.Rails[0].X, s.Rails[0].Y = 1, 0 },
		"tick":    func(s *Setup) { s.Timebase.TickHz++ },
		"stamped": func(s *Setup) { s.Timebase.Stamped = true },
		"missing": func(s *Setup) { s.Missing = nil },
		"update":  func(s *Setup) { s.Response.Update = 1e-3 },
	} {
		s := base()
		change(s)
		id := s.CalibrationID()
		if other, taken := seen[id]; taken || len(id) != 16 {
			t.Errorf("%s and %s have the same name %s", name, other, id)
		}
		seen[id] = name
	}
	if first, again := base().CalibrationID(), base().CalibrationID(); first != again {
		t.Error("the same calibration has two names")
	}
}
