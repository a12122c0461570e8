package measurement

import (
	"fmt"
	"go/build"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/referee"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store"
)

// judged is what the product makes of one recording.
type judged struct {
	miss, rel, relU float64 // error over U; error and U over the truth
	verdict         quality.Level
	err             error
}

const refereeTick = 1e6

// judge measures a recording as monitor and host do: markers found, clocks related, the work integrated.
func judge(b referee.Bench, seed uint64) (j judged) {
	setup := refereeSetup(b.Meter, nil)
	spec := marker.ProfileFor(*setup, uint32(seed))
	play := func(k marker.Kind) referee.Marker {
		return referee.Marker{Chips: spec.Chips(k), Chip: float64(spec.Chip), Code: spec.CodeStart()}
	}
	rec := b.Record(seed, play(marker.Start), play(marker.Stop))
	setup = refereeSetup(b.Meter, rec)
	in := quality.Input{Setup: setup, Marker: spec}
	var blocks []*measure.Block
	d, err := marker.NewDetector(spec, setup)
	if err != nil {
		return judged{err: err}
	}
	for _, r := range rec.Runs {
		blk := &measure.Block{FirstScan: r.First, FirstTick: int64(math.Round(float64(r.First) * setup.Timebase.TicksPerScan))}
		for _, c := range r.Counts {
			v := make([]measure.Count, len(c))
			for i, x := range c {
				v[i] = measure.Count(x)
			}
			blk.Counts = append(blk.Counts, v)
		}
		if last := len(blocks) - 1; last >= 0 {
			end := blocks[last].FirstScan + uint64(blocks[last].Scans())
			in.Events = append(in.Events, measure.Event{Kind: measure.EventGap, FirstScan: end, Scans: r.First - end, Exact: true, Channel: -1})
		}
		blocks = append(blocks, blk)
		if err := d.Push(blk); err != nil {
			return judged{err: err}
		}
	}
	_ = d.Finish()
	in.Markers = d.Found()
	bd := bound(in.Markers)
	at := func(host float64) time.Time {
		return time.Unix(0, 0).Add(measure.Seconds(host).Duration())
	}
	var played []store.Played
	for _, e := range rec.Edges {
		kind := marker.Start
		if e.Stop {
			kind = marker.Stop
		}
		played = append(played, store.Played{Kind: kind, Chip: e.Chip, At: at(e.Host)})
	}
	fit, fitErr := relate(setup, played, bd.timed(spec, in.Markers))
	p, err := choose(fit, fitErr, []store.Kernel{{Start: at(rec.From), End: at(rec.To)}}, bd)
	in.Clock = fit
	if err == nil {
		var g *measure.Integrator
		if g, err = measure.NewIntegrator(setup, p.From, p.To); err == nil {
			g.Rest(marker.Rest(in.Markers))
			for _, blk := range blocks {
				if err = g.Add(blk); err != nil {
					break
				}
			}
		}
		if err == nil {
			var r measure.Result
			if r, err = g.Result(p.edges); err == nil {
				in.Result = &r
			}
		}
	}
	in.Clipped = clippings(setup, blocks, p, bd)
	j.verdict = quality.Judge(in).Level
	if in.Result == nil {
		return judged{verdict: j.verdict, err: err}
	}
	e := float64(in.Result.Total.Energy) - rec.Energy
	j.miss, j.rel, j.relU = e/float64(in.Result.Total.U), e/rec.Energy, float64(in.Result.Total.U)/rec.Energy
	return j
}

// clippings counts clipped readings inside the window, in the markers, and elsewhere.
func clippings(setup *measure.Setup, blocks []*measure.Block, p *pick, b bounds) (out []quality.Clipping) {
	for c, ch := range setup.Channels {
		if ch.MaxCount <= ch.MinCount {
			continue
		}
		n := quality.Clipping{Channel: c}
		for _, blk := range blocks {
			for i, x := range blk.Counts[c] {
				if x > ch.MinCount && x < ch.MaxCount {
					continue
				}
				t := setup.Timebase.Seconds(float64(blk.FirstScan+uint64(i)) * setup.Timebase.TicksPerScan)
				switch in := func(f *marker.Found) bool { return f != nil && t >= f.Begin && t < f.End }; {
				case p != nil && t >= p.From && t < p.To:
					n.Inside++
				case in(b.start) || in(b.stop):
					n.Markers++
				default:
					n.Outside++
				}
			}
		}
		if n.Inside+n.Markers+n.Outside > 0 {
			out = append(out, n)
		}
	}
	return out
}

// refereeSetup is the setup of a meter; its channels are those of a recording, if there is one.
func refereeSetup(m referee.Meter, rec *referee.Recording) *measure.Setup {
	s := &measure.Setup{Timebase: measure.Timebase{
		TickHz: refereeTick, UTickHz: m.UTick, TicksPerScan: refereeTick / m.Rate,
	}}
	if rec == nil {
		rec = referee.Bench{Meter: m}.Channels()
	}
	for _, c := range rec.Channels {
		unit := measure.UnitVolt
		if c.Current {
			unit = measure.UnitAmpere
		}
		s.Channels = append(s.Channels, measure.Channel{
			Name: c.Name, Unit: unit, Gain: c.Gain, Offset: c.Offset, UGain: c.UGain, UOffset: c.UOffset,
			MinCount: measure.Count(c.Min), MaxCount: measure.Count(c.Max),
		})
	}
	for i, role := range []measure.Role{measure.RolePSU, measure.RolePCIe12V} {
		s.Rails = append(s.Rails, measure.Rail{
			Name: fmt.Sprint("rail", i+1), Role: role, Wiring: measure.WiringClamp, X: 2*i + 1, Y: 2 * i,
		})
	}
	return s
}

// coverage judges a bench with many seeds, on all processors.
func coverage(b referee.Bench, seeds int) []judged {
	out := make([]judged, seeds)
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				out[i] = judge(b, uint64(i))
			}
		})
	}
	for i := range out {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

// report is a line of the table of coverage.
type report struct {
	n, within, flagged, withinGood, failed int
	bias, rms, u                           float64
}

func summarise(js []judged) (r report) {
	for _, j := range js {
		r.n++
		if j.err != nil && j.relU == 0 {
			r.failed++
			r.flagged++
			continue
		}
		in := math.Abs(j.miss) <= 1
		if in {
			r.within++
		}
		if j.verdict >= quality.Doubtful {
			r.flagged++
		} else if in {
			r.withinGood++
		}
		r.bias, r.rms, r.u = r.bias+j.rel, r.rms+j.rel*j.rel, r.u+j.relU
	}
	k := float64(r.n - r.failed)
	r.bias, r.rms, r.u = r.bias/k, math.Sqrt(r.rms/k), r.u/k
	return r
}

func (r report) String() string {
	return fmt.Sprintf("within U %.1f %%; flagged %.1f %%; of the others within %.1f %%; bias %+.3f %%, rms %.3f %%, U %.3f %%; no window %d",
		100*float64(r.within)/float64(r.n), 100*float64(r.flagged)/float64(r.n),
		100*float64(r.withinGood)/math.Max(1, float64(r.n-r.flagged)), 100*r.bias, 100*r.rms, 100*r.u, r.failed)
}

// refereeCard returns a card of 58 W at rest whose markers step by 219 W.
func refereeCard(rise, fall referee.Response) referee.Card {
	return referee.Card{Rise: rise, Fall: fall, Idle: 58, Low: 61, High: 280, Power: 250}
}

// refereeCards have edges as recorded and as feared, see package marker's tests.
var refereeCards = map[string]referee.Card{
	"exponential": refereeCard(referee.Exponential(0.12e-3), referee.Exponential(0.3e-3)),
	"3090":        refereeCard(referee.Ramp(0.25e-3), referee.Ramp(0.9e-3)),
	"A100":        refereeCard(referee.Exponential(0.05e-3), referee.Ramp(0.32e-3)),
	"linear":      refereeCard(referee.Ramp(0.3e-3), referee.Ramp(0.9e-3)),
	"two steps": refereeCard(referee.Response{{0.05e-3, 0.6}, {0.3e-3, 0.65}, {0.35e-3, 1}},
		referee.Response{{0.1e-3, 0.4}, {0.5e-3, 0.5}, {0.6e-3, 1}}),
}

// refereeCase is a line of docs/calibration.md's table: at least Least of the recordings that are not
// flagged hold the truth; a case that is lost is flagged.
type refereeCase struct {
	bench referee.Bench
	least float64
	lost  bool
	flags bool // it may be flagged: what is odd about it is
}

func refereeCases() (out []refereeCase) {
	stated := referee.Meter{Rate: 20e3, Noise: referee.White, NoiseW: 2, UGain: 6e-3, UOffset: 1, UTick: 50e-6}
	calibrated := stated
	calibrated.UGain, calibrated.UOffset = 1e-5, 0.02
	for name, c := range refereeCards {
		for _, length := range []float64{0.5e-3, 2e-3, 20e-3} {
			// Of the shortest kernel the window's ends may be above a tenth of the energy, which is doubtful.
			out = append(out, refereeCase{least: 0.92, flags: length < 1e-3, bench: referee.Bench{
				Name: fmt.Sprintf("%s, %v ms, calibrated meter", name, length*1e3), Card: c, Meter: calibrated,
				Length: length, Delay: float64(measure.UPowerDelay),
			}})
		}
	}
	c := refereeCards["3090"]
	add := func(name string, length, least float64, lost bool, change func(*referee.Bench)) {
		b := referee.Bench{Name: name, Card: c, Meter: stated, Length: length}
		change(&b)
		out = append(out, refereeCase{bench: b, least: least, lost: lost, flags: b.Meter.Lost > 0})
	}
	add("as stated", 50e-3, 0.92, false, func(*referee.Bench) {})
	add("4.8 kS/s", 50e-3, 0.92, false, func(b *referee.Bench) { b.Meter.Rate = 4800 })
	add("work that goes on and off", 100e-3, 0.92, false, func(b *referee.Bench) { b.Card.Work = referee.Telegraph(5e-3) })
	add("2 % of scans lost, one by one", 50e-3, 0.92, false, func(b *referee.Bench) { b.Meter.Lost, b.Meter.Burst = 0.02, 1 })
	add("2 % of scans lost, in bursts", 50e-3, 0.92, false, func(b *referee.Bench) { b.Meter.Lost, b.Meter.Burst = 0.02, 40 })
	add("noise of the whole step", 50e-3, 0.92, false, func(b *referee.Bench) { b.Meter.NoiseW = 219 })
	add("a clock off by 300 ppm, stated", 50e-3, 0.92, false, func(b *referee.Bench) { b.Meter.UTick = 300e-6 })
	for name, n := range map[string]referee.Noise{
		"1/f": referee.Pink, "AR(1) 0.95": referee.AR1(0.95), "Student's of 3": referee.Student(3),
		"Student's of 2": referee.Student(2), "Cauchy's": referee.Student(1), "spikes": referee.Spiky,
	} {
		out = append(out, refereeCase{least: 0.9, flags: true, bench: referee.Bench{
			Name: name + " noise of 2 W, calibrated meter", Card: c, Meter: calibrated, Length: 50e-3,
		}})
		out[len(out)-1].bench.Meter.Noise = n
	}
	for _, jitter := range []float64{10e-6, 50e-6, 0.5e-3} {
		add(fmt.Sprintf("stamps that jitter by %v ms, calibrated meter", jitter*1e3), 50e-3, 0.92, false, func(b *referee.Bench) {
			b.Meter, b.Jitter = calibrated, jitter
		})
	}
	add("clipped by a tenth", 50e-3, 0, true, func(b *referee.Bench) { b.Meter.Clip = 16 })
	return out
}

// TestReferee measures benches of known energy that share no model with the product, edges and noise as
// recordings have them, and counts how often E ± U holds the truth. The whole table is made with the tag slow.
func TestReferee(t *testing.T) {
	seeds := 12
	if slow {
		seeds = 40
	}
	for _, c := range refereeCases() {
		t.Run(c.bench.Name, func(t *testing.T) {
			r := summarise(coverage(c.bench, seeds))
			t.Log(r)
			flagged, judged := float64(r.flagged)/float64(r.n), math.Max(1, float64(r.n-r.flagged))
			within := float64(r.withinGood) / judged
			// Shares of so few recordings scatter: two standard deviations are allowed.
			slack := func(p, n float64) float64 { return 2 * math.Sqrt(p*(1-p)/n) }
			switch {
			case c.lost && flagged < 0.99:
				t.Errorf("%.1f %% flagged, want all", 100*flagged)
			case !c.lost && (r.flagged < r.n && within < c.least-slack(c.least, judged) ||
				flagged > 0.1+slack(0.1, float64(r.n)) && !c.flags):
				t.Errorf("%.1f %% within U, %.1f %% flagged", 100*within, 100*flagged)
			}
		})
	}
}

// TestRefereeSharesNothing: the bench imports nothing of this module.
func TestRefereeSharesNothing(t *testing.T) {
	p, err := build.ImportDir("../../internal/referee", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range p.Imports {
		if strings.Contains(name, ".") {
			t.Errorf("it imports %s", name)
		}
	}
}
