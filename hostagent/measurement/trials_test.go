package measurement

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/serving"
)

// refereeCase is a line of the table in docs/calibration.md.
type refereeCase struct {
	name   string
	bench  Bench
	window bool // the converter's averaging is stated
	expect expectation
	fast   bool // one of the short test
}

// expectation is how a case is judged: by default energies and markers hold the truth, and at most a
// tenth is flagged, doubtful or void.
type expectation uint8

const (
	holds  expectation = iota
	odd                // it may be flagged: what is odd about it is
	lost               // it must be flagged: no evaluation can have the truth
	beyond             // worse than the meter states, or hidden from it, and no trace shows it: not judged
)

func stated(rate float64) Meter {
	return Meter{Rate: rate, NoiseW: 2, UGain: 6e-3, UOffset: 1, UTick: 50e-6}
}

// calibrated is a meter whose gains hide nothing.
func calibrated(rate float64) Meter {
	return Meter{Rate: rate, NoiseW: 2, UGain: 1e-5, UOffset: 0.02, UTick: 50e-6}
}

// refereeCases are all cases. A change of the bench begins from 50 ms at 20 kS/s.
func refereeCases() (out []refereeCase) {
	add := func(name string, m Meter, e expectation, change func(*refereeCase)) {
		c := refereeCase{name: name, expect: e, bench: Bench{Meter: m, Length: 50e-3}}
		if change != nil {
			change(&c)
		}
		out = append(out, c)
	}
	meters := map[string]func(float64) Meter{"stated": stated, "calibrated": calibrated}
	names := []string{"stated", "calibrated"}
	for _, name := range names {
		for _, rate := range []float64{4800, 20e3} {
			for _, length := range []float64{0.5e-3, 2e-3, 20e-3, 50e-3, 1, 10} {
				e := holds
				if length*rate < 40 {
					e = odd // few readings, or window ends above a tenth of the energy
				}
				what := fmt.Sprintf("%s, %g kS/s, %g ms", name, rate/1e3, length*1e3)
				add(what, meters[name](rate), e, func(c *refereeCase) {
					c.bench.Length, c.fast = length, length == 2e-3 || length == 20e-3
				})
			}
		}
	}
	edgeCases(add)
	for _, name := range names {
		loadCases(name, meters[name], add)
	}
	noiseCases(add)
	meterCases(add)
	return out
}

type adder = func(name string, m Meter, e expectation, change func(*refereeCase))

func edgeCases(add adder) {
	for _, kind := range []struct {
		name  string
		edges Edges
	}{
		{"exponentials", Exponentials},
		{"A100", OfA100},
		{"3090", Of3090},
		{"ramps", Ramps},
		{"two steps", TwoSteps},
		{"S-curves", Curves},
		{"staggered", Staggered},
		{"poles", Poles},
	} {
		for _, length := range []float64{0.5e-3, 2e-3, 20e-3} {
			e := holds
			if length < 1e-3 {
				e = odd
				if kind.name == "poles" {
					continue // nearly all are flagged
				}
			}
			what := fmt.Sprintf("calibrated, edges: %s, %g ms", kind.name, length*1e3)
			add(what, calibrated(20e3), e, func(c *refereeCase) {
				c.bench.Edges, c.bench.Length = kind.edges, length
				c.fast = length == 2e-3 && kind.name != "exponentials" && kind.name != "ramps"
			})
		}
	}
	// A slow, quiet meter: the trapezoid rule's loss at the window's ends dominates U.
	for _, rate := range []float64{1e3, 2e3} {
		m := calibrated(rate)
		m.NoiseW = 0.2
		add(fmt.Sprintf("calibrated, edges: exponentials, %g kS/s, 100 ms", rate/1e3), m, holds, func(c *refereeCase) {
			c.bench.Edges, c.bench.Length = Exponentials, 100e-3
		})
		add(fmt.Sprintf("calibrated, edges: ramps, %g kS/s, 100 ms", rate/1e3), m, holds, func(c *refereeCase) {
			c.bench.Edges, c.bench.Length = Ramps, 100e-3
		})
	}
	add("calibrated, falls of 2 ms", calibrated(20e3), holds, func(c *refereeCase) { c.bench.Edges = SlowFalls })
}

// loadCases are loads. Period and rate of scans make a load alias whatever the meter.
func loadCases(name string, meter func(float64) Meter, add adder) {
	for _, l := range []struct {
		name   string
		rate   float64
		work   Workload
		expect expectation
	}{
		{"a start code", 20e3, Codes(false, 1), holds},
		{"a stop code", 20e3, Codes(true, 1), holds},
		{"a slower code", 20e3, Codes(false, 1.3), holds},
		{"a faster stop code", 20e3, Codes(true, 0.8), holds},
		{"up and down", 20e3, UpDown, holds},
		{"telegraph of 5 ms", 20e3, Telegraph(5e-3), holds},
		{"telegraph of 0.5 ms", 20e3, Telegraph(0.5e-3), holds},
		{"slopes", 20e3, Slopes, holds},
		{"pulses at fs ± 1 %", 4800, Pulses(0.99, 1.01), beyond},
		{"pulses at fs", 4800, Pulses(1, 1), beyond},
		{"pulses at fs/2 ± 2 %", 4800, Pulses(0.49, 0.51), odd},
		{"pulses at 0.05 to 0.3 fs", 4800, Pulses(0.05, 0.3), odd},
	} {
		add(name+", work: "+l.name, meter(l.rate), l.expect, func(c *refereeCase) {
			c.bench.Work, c.bench.Length = l.work, 100e-3
		})
	}
}

func noiseCases(add adder) {
	for _, n := range []struct {
		name  string
		noise Noise
	}{
		{"Student's of 3", Student(3)},
		{"Student's of 2", Student(2)},
		{"Cauchy's", Student(1)},
		{"spikes", Spiky},
		{"1/f", Pink},
		{"AR(1) 0.95", AR1(0.95)},
	} {
		add("calibrated, noise of 2 W: "+n.name, calibrated(20e3), odd, func(c *refereeCase) {
			c.bench.Meter.Noise, c.fast = n.noise, n.name == "1/f" || n.name == "Cauchy's"
		})
	}
	noisy := func(name string, m Meter, noise Noise, w, steps float64) {
		m.Noise, m.NoiseW, m.Steps = noise, w, steps
		add(name, m, odd, nil)
	}
	noisy("calibrated, noise of 0.2 W: 1/f", calibrated(20e3), Pink, 0.2, 0)
	noisy("stated, noise of 2 W: 1/f", stated(20e3), Pink, 2, 0)
	noisy("stated, noise of 20 W: 1/f", stated(20e3), Pink, 20, 0)
	noisy("calibrated, noise of 20 W: 1/f", calibrated(20e3), Pink, 20, 0)
	for _, steps := range []float64{0.1, 0.5, 1, 1.5} {
		noisy(fmt.Sprintf("calibrated, noise of %g steps", steps), calibrated(20e3), nil, 0, steps)
	}
}

// meterCases are meters that lose scans, clip, drift, average, and wander.
func meterCases(add adder) {
	lose := func(burst int) func(*refereeCase) {
		return meter(func(m *Meter) { m.Lost, m.Burst = 0.02, burst })
	}
	for _, name := range []string{"stated", "calibrated"} {
		m := stated(20e3)
		if name == "calibrated" {
			m = calibrated(20e3)
		}
		add(name+", 2 % lost, one by one", m, odd, lose(1))
		add(name+", 2 % lost, in bursts", m, odd, lose(40))
		add(name+", 2 % lost, in bursts, telegraph of 5 ms", m, odd, func(c *refereeCase) {
			lose(40)(c)
			c.bench.Work = Telegraph(5e-3)
		})
		add(name+", stamps off by 50 µs", m, odd, func(c *refereeCase) { c.bench.Jitter = 50e-6 })
		add(name+", stamps off by 0.5 ms", m, odd, func(c *refereeCase) { c.bench.Jitter = 0.5e-3 })
		for _, off := range []float64{2e-4, 1e-3} {
			shift := meter(func(m *Meter) { m.TickOff = off })
			ppm := fmt.Sprintf("%g ppm", 1e6*off)
			add(name+", clock off by "+ppm, m, odd, shift)
			add(name+", clock off by "+ppm+", 1 s", m, odd, func(c *refereeCase) {
				shift(c)
				c.bench.Length = 1
			})
			add(name+", clock steps by "+ppm, m, odd, func(c *refereeCase) {
				c.bench.Meter.TickStep, c.fast = off, name == "calibrated"
			})
		}
		add(name+", clock steps by 200 ppm, stated", m, odd, meter(func(m *Meter) {
			m.TickStep, m.UTick = 2e-4, 2e-4
		}))
		average := func(c *refereeCase) { c.bench.Meter.Average = [2]float64{0.1e-3, 0.4e-3} }
		e := odd
		if name == "calibrated" {
			e = beyond // a card of like rises and falls looks the same
		}
		add(name+", averages 0.1 to 0.4 ms, not stated", m, e, average)
		add(name+", averages 0.4 ms, stated", m, odd, func(c *refereeCase) {
			c.bench.Meter.Average, c.window = [2]float64{0.4e-3, 0.4e-3}, true
		})
		back := meter(func(m *Meter) { m.Backward = 0.1 })
		add(name+", negative currents, two-sided converter", m, holds, back)
	}
	rangeCases(add)
}

func meter(f func(*Meter)) func(*refereeCase) {
	return func(c *refereeCase) { f(&c.bench.Meter) }
}

// rangeCases are meters beyond their statement, and beyond their range.
func rangeCases(add adder) {
	drift := func(all, each float64) func(*refereeCase) {
		return meter(func(m *Meter) { m.Drift = [2]float64{all, each} })
	}
	add("stated, gains off by 1 u more, at random", stated(20e3), beyond, drift(0, 1))
	add("stated, all gains off by 3 u", stated(20e3), beyond, drift(3, 0))
	add("negative currents, one-sided converter", stated(20e3), lost, meter(func(m *Meter) {
		m.Backward, m.Unipolar = 0.1, true
	}))
	add("clipped work, the range ends at 0.5 to 0.95 of it", stated(20e3), lost, meter(func(m *Meter) {
		m.Clip = [2]float64{0.5, 0.95}
	}))
	add("calibrated, the range ends at 0.95 to 1.05 of the work", calibrated(20e3), odd, meter(func(m *Meter) {
		m.Clip = [2]float64{0.95, 1.05}
	}))
	add("clipped markers and work", stated(20e3), lost, meter(func(m *Meter) {
		m.ClipAll = [2]float64{0.6, 0.95}
	}))
}

var (
	refereeTrials = flag.Int("trials", 0, "recordings a case in TestReferee; 0 for 12, or 20 with the tag slow; of 12 000 windows in TestRefereesWindows")
	refereeOnly   = flag.String("cases", "", "cases of TestReferee, a regular expression; empty for all with the tag slow")
)

// TestReferee measures benches of known energy that share no model with the product, and counts how often
// E ± U and the markers' u hold the truth. The table of docs/calibration.md is made of its output with
//
//	go test -tags slow ./hostagent/measurement -run 'TestReferee$' -timeout 60m -args -trials 300
func TestReferee(t *testing.T) {
	t.Parallel()
	trials := *refereeTrials
	if trials == 0 {
		trials = 12
		if coverage.Slow {
			trials = 20
		}
	}
	only, err := regexp.Compile(*refereeOnly)
	if err != nil {
		t.Fatal(err)
	}
	var cases []refereeCase
	for _, c := range refereeCases() {
		if only.MatchString(c.name) && (c.fast || coverage.Slow || *refereeOnly != "") {
			cases = append(cases, c)
		}
	}
	lines := []string{refereeHead}
	var z2, n float64 // of markers where nothing is odd
	for i, rs := range attempts(t, cases, trials) {
		s := summarise(rs)
		lines = append(lines, s.row(&cases[i]))
		if cases[i].expect == holds {
			z2, n = z2+s.z2, n+float64(s.markers)
		}
		for _, fault := range s.faults(cases[i].expect) {
			t.Errorf("%s: %s", cases[i].name, fault)
		}
	}
	// Shapes that few cards have are in u: it may be too wide by a sixth, but for the scatter of this ratio.
	if z := math.Sqrt(z2 / max(n, 1)); n > 0 && math.Abs(z-1) > 0.16+3/math.Sqrt(2*n) {
		t.Errorf("%.0f markers' errors are %.2f u, rms", n, z)
	}
	table := strings.Join(lines, "\n")
	if *refereeTrials > 0 {
		fmt.Println(table)
	} else {
		t.Log("\n" + table)
	}
}

// attempts makes the trials of all cases on all processors.
func attempts(t *testing.T, cases []refereeCase, trials int) [][]trial {
	out := make([][]trial, len(cases))
	for i := range out {
		out[i] = make([]trial, trials)
	}
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for k := range next {
				i, seed := k/trials, k%trials
				var err error
				if out[i][seed], err = cases[i].attempt(cases[i].first() + uint64(seed)); err != nil {
					t.Errorf("%s, recording %d: %v", cases[i].name, seed, err)
				}
			}
		})
	}
	for k := range len(cases) * trials {
		next <- k
	}
	close(next)
	wg.Wait()
	return out
}

// first is the seed of a case's first recording.
func (c *refereeCase) first() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.name))
	return h.Sum64()
}

// A rise behind a short low that a slow, averaged fall has not reached begins where it begins: in these recordings it
// had been placed half a millisecond early, fifty times its u.
func TestRiseBehindASlowFall(t *testing.T) {
	for _, c := range refereeCases() {
		for _, n := range []uint64{71, 251, 428} {
			if c.name != "calibrated, averages 0.4 ms, stated" {
				continue
			}
			got, err := c.attempt(c.first() + n)
			if err != nil || len(got.z) != 2 {
				t.Fatal(got, err)
			}
			if z := max(math.Abs(got.z[0]), math.Abs(got.z[1])); z > 4 {
				t.Errorf("recording %d: a marker is off by %.1f u", n, z)
			}
		}
	}
}

// summary counts the trials of a case.
type summary struct {
	n, in, bad, goodIn     int
	u                      []float64
	z2, e2                 float64 // squares of the errors of markers and of energies over their u
	goodMarkers, goodIn2u  int
	markers, false, missed int
	in2u                   int
}

func summarise(rs []trial) (s summary) {
	for _, r := range rs {
		s.n++
		within := math.Abs(r.miss) <= 1
		if within {
			s.in++
		}
		switch {
		case r.bad:
			s.bad++
		case within:
			s.goodIn++
		}
		s.false, s.missed = s.false+r.false, s.missed+r.missed
		for _, z := range r.z {
			s.markers++
			s.z2 += z * z
			hit := 0
			if math.Abs(z) <= 2 {
				hit = 1
			}
			s.in2u += hit
			if !r.bad {
				s.goodMarkers, s.goodIn2u = s.goodMarkers+1, s.goodIn2u+hit
			}
		}
		if !math.IsNaN(r.relU) {
			s.u = append(s.u, r.relU)
			s.e2 += 4 * r.miss * r.miss
		}
	}
	return s
}

const refereeHead = "|case (shares in %)|E in U|flagged|of the rest in U|U/E, median|markers in 2u|of the rest|z, rms|" +
	"false, missed|z of E, rms|\n|---|---|---|---|---|---|---|---|---|---|"

func (s *summary) row(c *refereeCase) string {
	share := func(k, n int) string {
		if n == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f", 100*float64(k)/float64(n))
	}
	return fmt.Sprintf("|%s%s|%s|%s|%s|%.2g|%s|%s|%.2f|%d, %d|%.2f|",
		c.name, c.expect.mark(), share(s.in, s.n), share(s.bad, s.n), share(s.goodIn, s.n-s.bad), 100*middle(s.u),
		share(s.in2u, s.markers), share(s.goodIn2u, s.goodMarkers), math.Sqrt(s.z2/float64(max(s.markers, 1))),
		s.false, s.missed, math.Sqrt(s.e2/float64(max(len(s.u), 1))))
}

func middle(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func (e expectation) mark() string { return [...]string{"", "", " (lost)", " (beyond)"}[e] }

// faults lists where the shares of a case miss what is expected, each by three standard deviations of such a share.
func (s *summary) faults(e expectation) (out []string) {
	below := func(k, n int, p float64, what string) {
		if n > 0 && float64(k)/float64(n) < p-3*math.Sqrt(p*(1-p)/float64(n)) {
			out = append(out, fmt.Sprintf("%s: %d of %d, want %g %%", what, k, n, 100*p))
		}
	}
	rest := s.n - s.bad
	switch e {
	case lost:
		below(s.bad, s.n, 0.99, "doubtful or void")
		return out
	case beyond:
		return nil
	case holds:
		below(rest, s.n, 0.9, "not flagged")
	}
	below(s.goodIn, rest, 0.93, "E within U where nothing is flagged")
	below(s.goodIn2u, s.goodMarkers, 0.93, "markers within 2 u where nothing is flagged")
	if s.false > 0 {
		out = append(out, fmt.Sprintf("%d false markers", s.false))
	}
	return out
}

// Windows of 20 ms in a capture of minutes, with the tag slow of an hour, on meters that hide nothing, and whose rate
// wanders. Of each recording the clocks' errors are new.
func TestRefereesWindows(t *testing.T) {
	t.Parallel()
	length, trials, spans := 60.0, 3, 200
	if coverage.Slow {
		length, trials, spans = 3600, 12, 1000
		if *refereeTrials > 0 { // a recording's windows share its clocks' errors: of more recordings the share is better known
			trials, spans = *refereeTrials, 12000 / *refereeTrials
		}
	}
	var single, sums []float64
	for seed := range uint64(trials) {
		m := calibrated(2400)
		m.Walk = 3e-9 // 0.07 ppm rms about the mean of an hour
		c := refereeCase{bench: Bench{Meter: m, Length: length, Work: Telegraph(10e-3), Spans: spans}}
		z, of := c.spans(t, seed)
		single, sums = append(single, z...), append(sums, of...)
	}
	for what, z := range map[string][]float64{"windows": single, "sums of 20 windows": sums} {
		in, z2, n := 0, 0.0, float64(len(z))
		for _, z := range z {
			if z2 += 4 * z * z; math.Abs(z) <= 1 {
				in++
			}
		}
		t.Logf("%d of %.0f %s within U, errors %.2f u, rms", in, n, what, math.Sqrt(z2/n))
		if p := 0.93; float64(in) < n*p-2*math.Sqrt(n*p*(1-p)) {
			t.Errorf("%d of %.0f %s have the true energy within U", in, n, what)
		}
		if z := math.Sqrt(z2 / n); what == "windows" && z < 0.8 {
			t.Errorf("windows' errors are %.2f u, rms", z)
		}
	}
}

// Windows of 20 ms amid an hour are within U while the clocks wander by up to 1 ppm, with a mark a minute; without marks
// they are not, and of clocks at rest U is larger.
func TestRefereesMarks(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	length, trials, spans := 240.0, 1, 120
	if coverage.Slow {
		length, trials, spans = 3600, 4, 2000
	}
	for name, set := range map[string]struct {
		walk, warm, every float64
		most              float64 // of windows outside
	}{
		"a mark a minute, walking": {walk: 5e-9, every: 60, most: 0.07},
		"a mark a minute, warmed":  {walk: 1e-9, warm: 1e-6, every: 60, most: 0.07},
		"a mark a minute, at rest": {walk: 1e-10, every: 60, most: 0.07},
		"no marks, walking":        {walk: 5e-9, most: 1},
		"no marks, warmed":         {walk: 1e-9, warm: 1e-6, most: 1},
		"no marks, at rest":        {walk: 1e-10, most: 0.07},
	} {
		if !coverage.Slow && set.every == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var single []float64
			u := 0.0
			for seed := range uint64(trials) {
				m := calibrated(4800)
				m.Walk, m.Warm = set.walk, [2]float64{set.warm, 1800}
				c := refereeCase{bench: Bench{Meter: m, Length: length, Work: Telegraph(10e-3), Spans: spans, Every: set.every}}
				z, _, mean := c.spansU(t, seed)
				single, u = append(single, z...), u+mean/float64(trials)
			}
			in, z2, n := 0, 0.0, float64(len(single))
			for _, z := range single {
				if z2 += 4 * z * z; math.Abs(z) <= 1 {
					in++
				}
			}
			t.Logf("%.1f %% within U, errors %.2f u, mean U %.2f %%", 100*float64(in)/n, math.Sqrt(z2/n), 100*u)
			if out := n - float64(in); out > n*set.most+2*math.Sqrt(n*set.most*(1-set.most)) {
				t.Errorf("%.0f of %.0f windows outside U", out, n)
			}
		})
	}
}

// spans are the errors of a recording's spans, and of sums of 20 of them, over their U.
func (c *refereeCase) spans(t *testing.T, seed uint64) (z, sums []float64) {
	t.Helper()
	z, sums, _ = c.spansU(t, seed)
	return z, sums
}

// spansU has the mean of U over the energy too.
func (c *refereeCase) spansU(t *testing.T, seed uint64) (z, sums []float64, u float64) {
	t.Helper()
	db, rec, err := c.stored(seed)
	if err != nil {
		t.Fatal(err)
	}
	var w ServedWindows
	for _, s := range rec.Spans {
		w.Windows = append(w.Windows, serving.Window{Begin: int64(s.From * 1e9), End: int64(s.To * 1e9)})
	}
	if err := w.measure(t.Context(), db, 1); err != nil {
		t.Fatal(err)
	}
	var sum measure.Share
	truth := 0.0
	for i, s := range rec.Spans {
		e := w.Windows[i].Share
		if e == nil {
			t.Fatalf("seed %d: window %d has no energy: %v", seed, i, w.Notes)
		}
		z, u = append(z, (float64(e.Energy)-s.Energy)/float64(e.U)), u+float64(e.U)/s.Energy/float64(len(rec.Spans))
		sum.Add(e)
		if truth += s.Energy; i%20 == 19 {
			sums = append(sums, (float64(sum.Energy)-truth)/float64(sum.U))
			sum, truth = measure.Share{}, 0
		}
	}
	return z, sums, u
}

// A meter that averages over a time that is not stated gives, of a card that follows at once, the readings that one
// which does not gives of a card that climbs and sinks in that time. The energies of the same window differ: no
// evaluation of the readings can be right of both.
func TestAveragesLookLikeACard(t *testing.T) {
	const window = 0.3e-3
	edges := func(length float64) Edges {
		return func(*rand.Rand) (rise, fall Response) {
			r := Response{Line: [][2]float64{{length, 1}}}
			return r, r
		}
	}
	m := calibrated(20e3)
	play := Marker{Chips: []bool{true, false}, Chip: 5e-3}
	card := Bench{Edges: edges(window), Meter: m, Length: 50e-3}.Record(1, play, play)
	m.Average = [2]float64{window, window}
	meter := Bench{Edges: edges(1e-6), Meter: m, Length: 50e-3}.Record(1, play, play)
	step := slices.Max(card.Runs[0].Counts[1]) - slices.Min(card.Runs[0].Counts[1])
	for i, a := range card.Runs[0].Counts[1] {
		if d := a - meter.Runs[0].Counts[1][i]; max(d, -d) > step/16 { // its average has 64 parts
			t.Fatalf("scan %d: %d and %d counts", i, a, meter.Runs[0].Counts[1][i])
		}
	}
	if part := card.Energy/meter.Energy - 1; !(part < -1e-3) {
		t.Errorf("energies differ by %.2g %%", 100*part)
	}
}
