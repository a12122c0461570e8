package powersensor3

import (
	"strings"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// NaturalRails makes a rail of each pair, for a bench file that names none. The
// role follows from the name that the device stores (slot or pcie with 3.3 V or
// 12 V), else the rail is a direct supply. If names tell some of the slot's
// rails and not others, the others are missing.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	index := map[string]int{}
	for i, c := range in.Channels {
		index[c.Name] = i
	}
	has := map[measure.Role]bool{}
	for i, c := range in.Channels {
		name, ok := strings.CutSuffix(c.Name, ".current")
		if !ok {
			continue
		}
		v, ok := index[name+".voltage"]
		if !ok {
			continue // a current alone needs an assumed voltage: only a bench file can say
		}
		r := measure.Rail{Name: name, Role: roleOf(name), Wiring: measure.WiringClamp, X: i, Y: v}
		has[r.Role] = true
		rails = append(rails, r)
	}
	if has[measure.RolePCIe3V3] != has[measure.RolePCIe12V] {
		for role, name := range map[measure.Role]string{measure.RolePCIe3V3: "pcie_3v3", measure.RolePCIe12V: "pcie_12v"} {
			if !has[role] {
				missing = append(missing, name)
			}
		}
	}
	return rails, missing
}

func roleOf(name string) measure.Role {
	slot := strings.Contains(name, "slot") || strings.HasPrefix(name, "pcie_") || strings.HasPrefix(name, "peg")
	switch {
	case strings.Contains(name, "3v3") || strings.Contains(name, "3_3v"):
		return measure.RolePCIe3V3
	case slot && strings.Contains(name, "12v"):
		return measure.RolePCIe12V
	}
	return measure.RolePSU
}
