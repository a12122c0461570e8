package main

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// generator is an instrument without a wire, for benchmarks: six 16-bit
// channels with noise of 4 counts (rms), steps of 900 counts and a ripple of 8
// (amplitude), as fast as the capture takes them or paced like a real meter. It
// plays the markers of a task into its own currents: the start marker after a
// lead, the stop marker on request.
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

	// allowed is how many scans may be delivered in all: with it the slowest
	// stage of a chain makes the first one wait.
	allowed atomic.Int64
	more    chan struct{}

	asked  atomic.Bool   // the stop marker was asked for
	played chan struct{} // gets a value when the stop marker can have been seen
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
	timer := time.NewTimer(0)
	defer timer.Stop()
	begin := time.Now()
	g.begun.Store(begin.UnixNano())
	for scan, n := uint64(0), uint64(0); ctx.Err() == nil; scan += n {
		n = min(size, generatorPeriod-scan%generatorPeriod)
		if scan < s.startEnd {
			n = min(n, s.startEnd-scan)
		}
		if !g.wait(ctx, timer, begin, scan+n) {
			return nil
		}
		// Two markers that touch could not be told from two that overlap.
		if s.stop == never && scan >= s.startEnd+s.length/4 && g.asked.Load() {
			s.stop = scan
		}
		if err := sink.Block(s.block(scan, n)); err != nil {
			return err
		}
		g.passed.Store(int64(scan + n))
		if !s.told && s.stop != never && scan+n >= s.stop+s.length+s.settle {
			s.told = true
			g.played <- struct{}{}
		}
	}
	return nil
}

// wait returns when the scans before end have been taken, and are allowed.
func (g *generator) wait(ctx context.Context, timer *time.Timer, begin time.Time, end uint64) bool {
	if g.paced {
		due := begin.Add(measure.Seconds(float64(end) / float64(g.rate)).Duration())
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		}
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
