package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"wattmark/measure"
)

// dataRow is one row of data; NULL is NaN. scale is how large the sums behind
// power were, for the comparison of sums that cancel out.
type dataRow struct {
	task       int64
	name, user string
	v          [7]float64 // power, current1..3, voltage1..3
	time       string
	seq        int64
	scale      float64
}

// sample is a task as the test made it.
type sample struct {
	id     TaskID
	setup  measure.Setup
	blocks []measure.Block
	window bool
	first  uint64
	count  uint64
}

// randomSetup draws any number of rails of any wiring and role.
func randomSetup(rng *rand.Rand, tb measure.Timebase) measure.Setup {
	s := measure.Setup{Timebase: tb}
	channel := func(unit measure.Unit) int {
		s.Channels = append(s.Channels, measure.Channel{
			Name: fmt.Sprintf("c%d", len(s.Channels)), Unit: unit,
			Gain: (rng.Float64() + 0.1) * 1e-3, Offset: rng.NormFloat64() * float64(rng.IntN(2)),
		})
		return len(s.Channels) - 1
	}
	for n := 1 + rng.IntN(6); len(s.Rails) < n; {
		r := measure.Rail{
			Name: fmt.Sprintf("rail%d", len(s.Rails)), Role: measure.Role(1 + rng.IntN(4)),
			Wiring: measure.Wiring(1 + rng.IntN(4)), Y: -1,
		}
		switch r.Wiring {
		case measure.WiringShunt:
			r.Y, r.X, r.Shunt = channel(measure.UnitVolt), channel(measure.UnitVolt), measure.Ohm(0.001+rng.Float64())
		case measure.WiringClamp:
			r.X, r.Y = channel(measure.UnitAmpere), channel(measure.UnitVolt)
		case measure.WiringAssumed:
			r.X, r.Assumed = channel(measure.UnitAmpere), 12
		case measure.WiringPower:
			r.X = channel(measure.UnitWatt)
		}
		s.Rails = append(s.Rails, r)
	}
	channel(measure.UnitVolt) // one that no rail uses
	return s
}

// randomCounts makes counts of any width, of which each 256 may have another.
func randomCounts(rng *rand.Rand, n int) []measure.Count {
	out := make([]measure.Count, n)
	var width, base int32
	for i := range out {
		if i%200 == 0 {
			width, base = int32(rng.IntN(33)), int32(rng.Uint32())>>rng.IntN(20)
		}
		out[i] = base + int32(rng.Uint64()&(1<<width-1))
	}
	return out
}

// randomTask stores blocks with gaps between them, and at times a window that
// cuts chunks.
func randomTask(t testing.TB, d *DB, rng *rand.Rand, one bool) sample {
	tb := measure.Timebase{TickHz: 1e6, TicksPerScan: 50, Stamped: rng.IntN(2) == 0}
	s := sample{setup: randomSetup(rng, tb)}
	for one && !oneARole(s.setup.Rails) {
		s.setup = randomSetup(rng, tb)
	}
	s.id = begin(t, d, s.setup)
	scan, no, total := uint64(rng.IntN(3)*1000), uint64(rng.IntN(4)), uint64(0)
	for range 1 + rng.IntN(4) {
		n := 1 + rng.IntN(1500)
		b := measure.Block{FirstScan: scan, FirstTick: int64(scan) * 50}
		for range s.setup.Channels {
			b.Counts = append(b.Counts, randomCounts(rng, n))
		}
		for i := 0; tb.Stamped && i < n; i++ {
			b.Ticks = append(b.Ticks, b.FirstTick+int64(50*i+rng.IntN(5)))
		}
		chunks := encode(t, tb, b, 1+rng.IntN(1000), no)
		ok(t, d.AppendChunks(t.Context(), s.id, chunks, nil))
		no += uint64(len(chunks))
		s.blocks = append(s.blocks, b)
		total += uint64(n)
		scan += uint64(n + rng.IntN(2)*rng.IntN(3000))
	}
	if s.window = rng.IntN(3) > 0; s.window {
		b := s.blocks[rng.IntN(len(s.blocks))]
		s.first = b.FirstScan + uint64(rng.IntN(b.Scans()))
		s.count = uint64(rng.Int64N(int64(total)))
		ok(t, d.Finish(t.Context(), s.id, Outcome{State: Complete, Result: &measure.Result{FirstScan: s.first, Samples: s.count}}))
	}
	return s
}

// want works the rows out from the counts and Rail.Linear alone.
func (s *sample) want() []dataRow {
	var out []dataRow
	zero := s.blocks[0].FirstScan
	if s.window {
		zero = s.first
	}
	for _, b := range s.blocks {
		for i := range b.Scans() {
			scan := b.FirstScan + uint64(i)
			if s.window && (scan < s.first || uint64(len(out)) == s.count) {
				continue
			}
			r := dataRow{task: int64(s.id), name: "gemm", user: "lab", time: "2026-03-04T05:06:07.123456Z", seq: int64(scan - zero)}
			s.fill(&r, &b, i)
			out = append(out, r)
		}
	}
	return out
}

func (s *sample) fill(r *dataRow, b *measure.Block, i int) {
	var current, power, volts [5]float64
	var rails [5]int
	var hidden [5]bool
	for _, rail := range s.setup.Rails {
		l, k := rail.Linear(s.setup.Channels), rail.Role
		x, y := float64(b.Counts[rail.X][i]), 0.0
		if rail.Y >= 0 {
			y = float64(b.Counts[rail.Y][i])
		}
		amp, volt := l.I0+l.IX*x+l.IY*y, l.V0+l.VY*y
		r.v[0] += amp * volt
		r.scale += math.Abs(amp * volt)
		current[k] += amp
		power[k] += amp * volt
		volts[k] = volt
		rails[k]++
		hidden[k] = hidden[k] || rail.Wiring == measure.WiringPower
	}
	for k := 1; k <= 3; k++ {
		r.v[k], r.v[3+k] = math.NaN(), math.NaN()
		if rails[k] > 0 && !hidden[k] {
			if r.v[k], r.v[3+k] = current[k], volts[k]; rails[k] > 1 {
				r.v[3+k] = power[k] / current[k]
			}
		}
	}
}
