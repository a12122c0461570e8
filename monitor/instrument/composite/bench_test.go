package composite

import (
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// steady is an instrument of so many channels; only its inputs are used.
type steady struct {
	fake
	channels int
}

func (s *steady) Inputs() instrument.Inputs {
	in := instrument.Inputs{Timebase: s.timebase()}
	for c := range s.channels {
		in.Channels = append(in.Channels, measure.Channel{Name: string(rune('a' + c)), Unit: measure.UnitVolt, Gain: 1})
	}
	return in
}

// nowhere takes blocks and forgets them.
type nowhere struct{ scans int }

func (n *nowhere) Block(b *measure.Block) error { n.scans += b.Scans(); return nil }
func (n *nowhere) Event(measure.Event) error    { return nil }

// BenchmarkMerge merges eight channels of 20 kS/s with eight of 4.8 kS/s, from
// the members' blocks of 10 ms on, with their clocks followed.
func BenchmarkMerge(b *testing.B) {
	fast, slow := &steady{fake{name: "fast", rate: 20e3, stamped: true}, 8}, &steady{fake{name: "slow", rate: 4800, stamped: true}, 8}
	c, err := New([]Member{{Name: "slow", Instrument: slow}, {Name: "fast", Instrument: fast}}, Align{By: Clock})
	if err != nil {
		b.Fatal(err)
	}
	out := &nowhere{}
	s := &session{c: c, sink: out, members: make([]member, 2), epoch: time.Unix(0, 0)}
	for i := range 2 {
		s.feeds = append(s.feeds, &feed{member: i, free: make(chan *packet, 256), stopped: &s.stopped})
	}
	s.merger = newMerger(c, out, s.free)
	if s.live, err = newLive(s); err != nil {
		b.Fatal(err)
	}
	blocks := [2]measure.Block{}
	for i, n := range []int{48, 200} {
		blocks[i].Counts, blocks[i].Ticks = make([][]measure.Count, 8), make([]int64, n)
		for ch := range blocks[i].Counts {
			blocks[i].Counts[ch] = make([]measure.Count, n)
		}
	}
	round := 0
	step := func() {
		at := s.epoch.Add(time.Duration(round+1) * 10 * time.Millisecond)
		for i := range blocks {
			blk := &blocks[i]
			n := blk.Scans()
			blk.FirstScan = uint64(round * n)
			for k := range blk.Ticks {
				blk.Ticks[k] = int64(round)*10_000_000 + int64(k)*10_000_000/int64(n)
			}
			blk.FirstTick = blk.Ticks[0]
			p := s.feeds[i].packet()
			p.fill(blk, at)
			if err := s.live.take(i, p); err != nil {
				b.Fatal(err)
			}
		}
		round++
	}
	for range 1000 {
		step()
	}
	out.scans = 0
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		step()
	}
	b.ReportMetric(float64(out.scans)/b.Elapsed().Seconds(), "scans/s")
	if out.scans < 195*b.N {
		b.Fatalf("%d scans of %d blocks of 200", out.scans, b.N)
	}
}
