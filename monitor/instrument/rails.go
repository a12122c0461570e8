package instrument

import (
	"strings"

	"wattmark/measure"
)

// PairRails makes the rails that the channels' names suggest: x.current with
// x.voltage is a clamp rail x, and a channel in watts is a power rail. A current
// without a voltage makes none: only a bench file can say what to assume.
func PairRails(channels []measure.Channel) (rails []measure.Rail) {
	index := map[string]int{}
	for i, c := range channels {
		index[c.Name] = i
	}
	for i, c := range channels {
		if c.Unit == measure.UnitWatt {
			name := strings.TrimSuffix(c.Name, ".power")
			rails = append(rails, measure.Rail{Name: name, Role: RoleOf(name), Wiring: measure.WiringPower, X: i, Y: -1})
			continue
		}
		name, ok := strings.CutSuffix(c.Name, ".current")
		if !ok || c.Unit != measure.UnitAmpere {
			continue
		}
		if v, ok := index[name+".voltage"]; ok && channels[v].Unit == measure.UnitVolt {
			rails = append(rails, measure.Rail{Name: name, Role: RoleOf(name), Wiring: measure.WiringClamp, X: i, Y: v})
		}
	}
	return rails
}

// RoleOf guesses a rail's role from its name: gpu is the whole card, 3v3 or a
// slot's 12 V are the slot's, all else is a direct supply.
func RoleOf(name string) measure.Role {
	slot := strings.Contains(name, "slot") || strings.HasPrefix(name, "pcie_") || strings.HasPrefix(name, "peg")
	switch {
	case name == "gpu":
		return measure.RoleWholeGPU
	case strings.Contains(name, "3v3") || strings.Contains(name, "3_3v"):
		return measure.RolePCIe3V3
	case slot && strings.Contains(name, "12v"):
		return measure.RolePCIe12V
	}
	return measure.RolePSU
}
