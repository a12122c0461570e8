package measure

import (
	"math"
	"testing"
)

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
