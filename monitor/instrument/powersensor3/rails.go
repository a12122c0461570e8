package powersensor3

import (
	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// NaturalRails makes a rail of each pair, for a bench file that names none. The
// roles follow from the names that the device stores. If these tell one of the
// slot's two rails, the other is missing; if they tell none, nothing is known.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	rails = instrument.PairRails(in.Channels)
	has := map[measure.Role]bool{}
	for _, r := range rails {
		has[r.Role] = true
	}
	switch {
	case has[measure.RolePCIe12V] && !has[measure.RolePCIe3V3]:
		missing = []string{"pcie_3v3"}
	case has[measure.RolePCIe3V3] && !has[measure.RolePCIe12V]:
		missing = []string{"pcie_12v"}
	}
	return rails, missing
}
