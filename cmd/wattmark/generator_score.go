package main

import (
	"math"

	"wattmark/measure"
	"wattmark/measure/marker"
)

// never is a scan that does not come.
const never = math.MaxUint64

// score is what one stream plays.
type score struct {
	g               *generator
	perChip         float64
	chips           [2][]bool // start, stop
	length          uint64    // scans of a marker
	settle          uint64    // quiet scans behind the stop marker before it is told of
	start, startEnd uint64
	stop            uint64
	told            bool // of the stop marker's end
	blk             measure.Block
	mixed           [][]measure.Count
}

func (g *generator) newScore() (*score, error) {
	setup, err := g.setup(g.Inputs())
	if err != nil {
		return nil, err
	}
	spec := marker.ProfileFor(setup, g.tag)
	s := &score{g: g, perChip: float64(spec.Chip) * float64(g.rate), stop: never}
	s.chips = [2][]bool{spec.Chips(marker.Start), spec.Chips(marker.Stop)}
	s.length = uint64(math.Ceil(s.perChip * float64(spec.Len())))
	if !g.paced {
		// Without a pace there is no time to wait for the marker's sidelobes to pass.
		s.settle = s.length / 2
	}
	s.start = uint64(generatorLead.Seconds() * float64(g.rate))
	s.startEnd = s.start + s.length
	s.blk.Counts = make([][]measure.Count, len(g.busy))
	for range g.busy {
		s.mixed = append(s.mixed, make([]measure.Count, generatorBlock))
	}
	return s, nil
}

// block returns scans [scan, scan+n), which do not cross the table's end. It
// aliases the tables, except where a marker is played.
func (s *score) block(scan, n uint64) *measure.Block {
	s.blk.FirstScan, s.blk.FirstTick = scan, int64(scan)
	at := scan % generatorPeriod
	from := s.g.quiet
	if scan >= s.startEnd && s.stop == never {
		from = s.g.busy
	}
	for c := range s.blk.Counts {
		s.blk.Counts[c] = from[c][at : at+n]
	}
	s.mix(scan, n, s.start, s.chips[0])
	s.mix(scan, n, s.stop, s.chips[1])
	return &s.blk
}

// mix raises the currents of the block where the marker that begins at a scan
// is high.
func (s *score) mix(scan, n, begin uint64, chips []bool) {
	if begin == never || scan+n <= begin || scan >= begin+s.length {
		return
	}
	for c := 0; c < len(s.blk.Counts); c += 2 {
		dst := s.mixed[c][:n]
		copy(dst, s.blk.Counts[c])
		for i := range dst {
			at := scan + uint64(i)
			if at < begin {
				continue
			}
			if chip := int(float64(at-begin) / s.perChip); chip < len(chips) && chips[chip] {
				dst[i] += 1500
			}
		}
		s.blk.Counts[c] = dst
	}
}
