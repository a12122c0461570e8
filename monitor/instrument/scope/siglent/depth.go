package siglent

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/scpi"
)

// ladders are the depths of one channel of each series where both channels of a
// pair are in use. Sources: :ACQuire:MDEPth in the programming guide for the
// SDS2000X Plus and SDS5000X, public drivers for the others.
var ladders = map[string][]int{
	"SDS1000X": {10_000, 100_000, 1_000_000, 10_000_000},
	"SDS2000X": {10_000, 100_000, 1_000_000, 10_000_000, 100_000_000},
	"SDS3000X": {1000, 5000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000, 50_000_000, 100_000_000},
	"SDS5000X": {5000, 25_000, 125_000, 625_000, 1_250_000, 6_250_000, 12_500_000, 62_500_000, 125_000_000},
	"SDS6000A": {2500, 5000, 25_000, 50_000, 250_000, 500_000, 2_500_000, 5_000_000, 12_500_000, 25_000_000, 50_000_000, 125_000_000},
}

// depths are those of a model, or of all. One channel alone has a converter for
// itself, and on most twice as much memory.
func depths(m scope.Model, used int) (out []int) {
	for series, ladder := range ladders {
		if m.Series != "" && series != m.Series {
			continue
		}
		for _, d := range ladder {
			if used == 1 && series != "SDS6000A" && series != "SDS1000X" {
				d *= 2
			}
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
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
