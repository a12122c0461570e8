package perf

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument"
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

	// allowed is the number of scans that may be delivered in all. The parent raises it as
	// the database follows, so that the slowest stage sets the pace.
	allowed atomic.Int64
	more    chan struct{}

	// played gets a value when the stop marker can have been detected.
	asked  atomic.Bool // true requests the stop marker
	played chan struct{}
	begun  atomic.Int64 // wall clock of the first scan, ns since 1970
	passed atomic.Int64 // scans delivered since
}

const (
	generatorPeriod = 1 << 17
	generatorBlock  = 8192
	generatorLead   = 50 * time.Millisecond
	// generatorStep is a prime, so that steps fall anywhere in a coding block.
	generatorStep = 20011
)

// NewGenerator returns a generator of the given scan rate in Hz. Unless paced it delivers
// as fast as its sink accepts. Its counts are the same in every run.
func NewGenerator(rate measure.Hertz, paced bool) *generator {
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

// Open, Close and Identity have nothing to reach: they fail only with ctx.
func (g *generator) Open(ctx context.Context) error { return ctx.Err() }

func (g *generator) Close() error { return nil }

func (g *generator) Identity() instrument.Identity {
	return instrument.Identity{Kind: "generator", Model: "six 16-bit channels", Address: "none"}
}

// generatorRails are three rails with two channels each, current and voltage.
var generatorRails = []measure.Rail{
	{Name: "pcie_3v3", Role: measure.RolePCIe3V3, Wiring: measure.WiringClamp, X: 0, Y: 1},
	{Name: "pcie_12v", Role: measure.RolePCIe12V, Wiring: measure.WiringClamp, X: 2, Y: 3},
	{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 4, Y: 5},
}

// Inputs returns six channels: current (1 mA a count) and voltage (0.5 mV) of three rails.
func (g *generator) Inputs() instrument.Inputs {
	in := instrument.Inputs{Timebase: measure.Timebase{TickHz: g.rate, TicksPerScan: 1, UTickHz: 1e-6}}
	for _, r := range generatorRails {
		c := measure.Channel{Name: r.Name + ".current", Unit: measure.UnitAmpere, Gain: 1e-3, MinCount: -32768, MaxCount: 32767}
		in.Channels = append(in.Channels, c)
		c.Name, c.Unit, c.Gain = r.Name+".voltage", measure.UnitVolt, 5e-4
		in.Channels = append(in.Channels, c)
	}
	return in
}

// Setup makes the three rails of the six channels.
func (g *generator) Setup(in instrument.Inputs) (measure.Setup, error) {
	s := measure.Setup{
		Timebase: in.Timebase, Channels: in.Channels, Response: in.Response, Rails: slices.Clone(generatorRails),
	}
	return s, s.Validate()
}

// allow raises the number of scans that may be delivered in all, and wakes Stream.
func (g *generator) allow(scans int64) {
	g.allowed.Store(scans)
	backoff.Nudge(g.more)
}

// Stream delivers blocks until ctx ends, which is no error. It may be called again for the
// next capture, but not concurrently.
func (g *generator) Stream(ctx context.Context, sink instrument.Sink) error {
	s := g.newScore()
	g.asked.Store(false)
	select {
	case <-g.played: // left from an earlier capture
	default:
	}
	// Paced blocks last 1 ms, so that latency is not dominated by the block's own length.
	size := uint64(generatorBlock)
	if g.paced {
		size = uint64(max(16, min(generatorBlock, float64(g.rate)/1000)))
	}
	begin := time.Now()
	g.begun.Store(begin.UnixNano())
	for scan, n := uint64(0), uint64(0); ctx.Err() == nil; scan += n {
		// A block ends where the table repeats, and at the end of the start marker, behind
		// which the busy counts begin.
		n = min(size, generatorPeriod-scan%generatorPeriod)
		if scan < s.startEnd {
			n = min(n, s.startEnd-scan)
		}
		if !g.wait(ctx, begin, scan+n) {
			return nil
		}
		// Keep the markers apart: the detector cannot separate markers that touch.
		if s.stop == never && scan >= s.startEnd+s.length/4 && g.asked.Load() {
			s.stop = scan
		}
		if err := sink.Block(s.block(scan, n)); err != nil {
			return err
		}
		g.passed.Store(int64(scan + n))
		if !s.reported && s.stop != never && scan+n >= s.stop+s.length+s.settle {
			s.reported = true
			g.played <- struct{}{}
		}
	}
	return nil
}

// wait blocks until the scans before end are due (paced) or allowed. It returns false where
// ctx ended first.
func (g *generator) wait(ctx context.Context, begin time.Time, end uint64) bool {
	if g.paced {
		return cli.SleepUntil(ctx, begin.Add(measure.Seconds(float64(end)/float64(g.rate)).Duration()))
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

// never is a scan number that does not occur.
const never = math.MaxUint64

// score is the state of one stream: the markers' chips and the scans at which they begin.
type score struct {
	g               *generator
	perChip         float64
	chips           [2][]bool // start, stop
	length          uint64    // scans of a marker
	settle          uint64    // quiet scans behind the stop marker before it is reported
	start, startEnd uint64
	stop            uint64
	reported        bool // the stop marker's end was reported
	blk             measure.Block
	mixed           [][]measure.Count
}

// newScore returns the state for a new stream: the start marker follows after
// generatorLead, with the chip length that fits the rate.
func (g *generator) newScore() *score {
	setup, _ := g.Setup(g.Inputs()) // its error was reported when the bench was set up
	spec := marker.ProfileFor(setup, g.tag)
	s := &score{
		g: g, perChip: float64(spec.Chip) * float64(g.rate), chips: [2][]bool{spec.Chips(marker.Start), spec.Chips(marker.Stop)},
		start: uint64(generatorLead.Seconds() * float64(g.rate)), stop: never,
	}
	s.length = uint64(math.Ceil(s.perChip * float64(spec.Len())))
	if !g.paced {
		// Without a pace there is no time to wait for the marker's sidelobes to pass.
		s.settle = s.length / 2
	}
	s.startEnd = s.start + s.length
	s.blk.Counts = make([][]measure.Count, len(g.busy))
	for range g.busy {
		s.mixed = append(s.mixed, make([]measure.Count, generatorBlock))
	}
	return s
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

// mix adds 1500 counts to the currents of the block at the high chips of the marker that
// begins at scan begin. Blocks outside the marker stay as they are.
func (s *score) mix(scan, n, begin uint64, chips []bool) {
	if begin == never || scan+n <= begin || scan >= begin+s.length {
		return
	}
	// Even channels are currents. Copy before adding: the counts alias the shared table.
	for c := 0; c < len(s.blk.Counts); c += 2 {
		dst := s.mixed[c][:n]
		copy(dst, s.blk.Counts[c])
		for at := max(begin, scan); at < scan+n; at++ {
			if chip := int(float64(at-begin) / s.perChip); chip < len(chips) && chips[chip] {
				dst[at-scan] += 1500
			}
		}
		s.blk.Counts[c] = dst
	}
}
