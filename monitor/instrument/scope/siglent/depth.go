package siglent

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"wattmark/monitor/scpi"
)

// The memories of the families, in points over all channels. Depths follow from
// them. Sources: the list of :ACQuire:MDEPth in the programming guide for the
// SDS2000X Plus and SDS5000X, public drivers for the others.
const (
	memory2000  = 400_000_000 // SDS2000X Plus and HD
	memory3000  = 400_000_001 // SDS3000X HD, SDS7000A
	memory5000  = 500_000_000
	memory6000  = 500_000_001
	memorySmall = 100_000_000 // SDS800X HD, SDS1000X HD
)

// depths are the depths of one channel. One channel alone has a converter for
// itself, and twice as much.
func depths(memory, used int) (out []int) {
	var all []int
	switch memory {
	case memory2000:
		all = []int{10_000, 100_000, 1_000_000, 10_000_000, 100_000_000}
	case memory3000:
		all = []int{1000, 5000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000, 50_000_000, 100_000_000}
	case memory5000:
		all = []int{5000, 25_000, 125_000, 625_000, 1_250_000, 6_250_000, 12_500_000, 62_500_000, 125_000_000}
	case memory6000:
		return []int{2500, 5000, 25_000, 50_000, 250_000, 500_000, 2_500_000, 5_000_000, 12_500_000, 25_000_000, 50_000_000, 125_000_000}
	default:
		return []int{10_000, 100_000, 1_000_000, 10_000_000}
	}
	for _, d := range all {
		if used == 1 {
			d *= 2
		}
		out = append(out, d)
	}
	return out
}

// units are how this maker shortens numbers.
var units = []struct {
	name string
	v    float64
}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}}

// showPoints writes a number of points as :ACQuire:MDEPth takes it: 10M, 625k.
func showPoints(n int) string {
	for _, u := range units {
		if v := float64(n) / u.v; v >= 1 {
			return strconv.FormatFloat(v, 'g', -1, 64) + u.name
		}
	}
	return strconv.Itoa(n)
}

// parsePoints reads one: 10M, 1.25Mpts, 1.00E+07, 10000000.
func parsePoints(s string) (int, error) {
	t := strings.ToUpper(strings.TrimSpace(s))
	t = strings.TrimSuffix(strings.TrimSuffix(t, "PTS"), "PT")
	scale := 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(t, strings.ToUpper(u.name)); ok {
			t, scale = rest, u.v
			break
		}
	}
	v, err := scpi.ParseNumber(t)
	if err != nil || !(v >= 0 && v*scale <= math.MaxInt32) {
		return 0, fmt.Errorf("%w: %.40q is no number of points", scpi.ErrReply, s)
	}
	return int(math.Round(v * scale)), nil
}
