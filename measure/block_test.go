package measure

import "testing"

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
