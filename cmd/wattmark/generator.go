package main

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/instrument"
)

// generator is an instrument without a wire, for benchmarks: six 16-bit
// channels with noise of 4 counts (rms), steps of 900 and a ripple of 8, as fast as the capture
// takes them or paced like a real meter. It plays the markers of a task into
// its own currents: the start marker after a lead, the stop marker on request.
//
//	lead ─ start marker ─ busy … ─ stop marker ─ quiet …
//
// The counts repeat after generatorPeriod scans, so that making them costs
// nothing beside moving them.
type generator struct {
	rate  measure.Hertz // paced at; also the nominal sample rate
	paced bool
	tag   uint32 // of the markers

	busy, quiet [][]measure.Count // with and without kernels that come and go

	// taken limits the scans delivered to so many more than allowed, which makes
	// the slowest stage of a chain block the first.
	allowed atomic.Int64
	more    chan struct{}

	asked  atomic.Bool   // the stop marker was asked for
	played chan struct{} // gets a value when the stop marker was delivered
	begun  atomic.Int64  // wall clock of the first scan, ns since 1970
	passed atomic.Int64  // scans delivered since
}

const (
	generatorPeriod = 1 << 17
	generatorBlock  = 8192
	generatorLead   = 50 * time.Millisecond
	// generatorStep is a prime, so that steps fall anywhere in a coding block.
	generatorStep = 20011
)

func newGenerator(rate measure.Hertz, paced bool) *generator {
	g := &generator{rate: rate, paced: paced, more: make(chan struct{}, 1), played: make(chan struct{}, 1)}
	g.allowed.Store(math.MaxInt64)
	rng := rand.New(rand.NewPCG(1, 2))
	for c := range 6 {
		busy, quiet := make([]measure.Count, generatorPeriod), make([]measure.Count, generatorPeriod)
		for i := range quiet {
			ripple := 8 * math.Sin(2*math.Pi*float64(i)/640)
			quiet[i] = measure.Count(4000*(c+1) + int(math.Round(ripple+4*rng.NormFloat64())))
			busy[i] = quiet[i]
			if (i/generatorStep+c)%3 == 0 {
				busy[i] += 900 // a kernel comes and goes
			}
		}
		g.busy, g.quiet = append(g.busy, busy), append(g.quiet, quiet)
	}
	return g
}

func (g *generator) Open(ctx context.Context) error { return ctx.Err() }
func (g *generator) Close() error                   { return nil }

func (g *generator) Identity() instrument.Identity {
	return instrument.Identity{Kind: "generator", Model: "six 16-bit channels", Address: "none"}
}

func (g *generator) Inputs() instrument.Inputs {
	in := instrument.Inputs{Timebase: measure.Timebase{TickHz: g.rate, TicksPerScan: 1, UTickHz: 1e-6}}
	for _, rail := range []string{"pcie_3v3", "pcie_12v", "aux_12v"} {
		in.Channels = append(in.Channels,
			measure.Channel{Name: rail + ".current", Unit: measure.UnitAmpere, Gain: 1e-3, MinCount: -32768, MaxCount: 32767},
			measure.Channel{Name: rail + ".voltage", Unit: measure.UnitVolt, Gain: 5e-4, MinCount: -32768, MaxCount: 32767})
	}
	return in
}

// setup makes the three rails of the six channels.
func (g *generator) setup(in instrument.Inputs) (measure.Setup, error) {
	s := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Response: in.Response}
	for i, role := range []measure.Role{measure.RolePCIe3V3, measure.RolePCIe12V, measure.RolePSU} {
		s.Rails = append(s.Rails, measure.Rail{
			Name: []string{"pcie_3v3", "pcie_12v", "aux_12v"}[i], Role: role, Wiring: measure.WiringClamp, X: 2 * i, Y: 2*i + 1,
		})
	}
	return s, s.Validate()
}

// playStop asks for the stop marker; played tells when it was delivered.
func (g *generator) playStop() { g.asked.Store(true) }

// allow lets so many scans pass in all.
func (g *generator) allow(scans int64) {
	g.allowed.Store(scans)
	select {
	case g.more <- struct{}{}:
	default:
	}
}

// Stream delivers blocks until ctx ends.
func (g *generator) Stream(ctx context.Context, sink instrument.Sink) error {
	s, err := g.newScore()
	if err != nil {
		return err
	}
	g.asked.Store(false)
	select {
	case <-g.played: // of a capture before
	default:
	}
	size := uint64(generatorBlock)
	if g.paced {
		size = uint64(max(16, min(generatorBlock, float64(g.rate)/1000)))
	}
	begin := time.Now()
	g.begun.Store(begin.UnixNano())
	for scan, n := uint64(0), uint64(0); ctx.Err() == nil; scan += n {
		n = min(size, generatorPeriod-scan%generatorPeriod)
		if scan < s.startEnd {
			n = min(n, s.startEnd-scan)
		}
		if !g.wait(ctx, begin, scan+n) {
			return nil
		}
		if s.stop == never && scan >= s.startEnd && g.asked.Load() {
			s.stop = scan
		}
		if err := sink.Block(s.block(scan, n)); err != nil {
			return err
		}
		g.passed.Store(int64(scan + n))
		if !s.told && s.stop != never && scan+n >= s.stop+s.length {
			s.told = true
			g.played <- struct{}{}
		}
	}
	return nil
}

// wait returns when the scans before end have been taken, and are allowed.
func (g *generator) wait(ctx context.Context, begin time.Time, end uint64) bool {
	if g.paced {
		due := begin.Add(measure.Seconds(float64(end) / float64(g.rate)).Duration())
		return sleepUntil(ctx, due)
	}
	for g.allowed.Load() < int64(end) {
		select {
		case <-g.more:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// sleepUntil returns false when ctx ends first.
func sleepUntil(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

// never is a scan that does not come.
const never = math.MaxUint64

// score is what one stream plays.
type score struct {
	g               *generator
	perChip         float64
	chips           [2][]bool // start, stop
	length          uint64    // scans of a marker
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
