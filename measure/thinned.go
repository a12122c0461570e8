package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
)

// ErrThinned: the samples asked for were deleted while their capture ran, and only their sums are left.
var ErrThinned = errors.New("the samples were deleted while the capture ran (run --keep), and only their sums are left")

// Thinned holds the sums of a run of deleted scans without a gap: all that an Integrator takes from them, from
// the first scan to the last. An integrator of a window that holds the run goes on behind it as if it had
// seen the scans. It is not safe for concurrent use.
type Thinned struct {
	g     *Integrator // over all time
	first [3][]Count  // the first scans, by channel
	last  []Count
	scans uint64
}

// NewThinned returns the sums of no scans. Channels that would be brought to one instant by their neighbours
// (multiplexed meters) are refused: there every scan needs those around it.
func NewThinned(s *Setup) (*Thinned, error) {
	g, err := newIntegrator(s, Seconds(math.Inf(-1)), Seconds(math.Inf(1)))
	if err != nil {
		return nil, err
	}
	if g.align != nil {
		return nil, errors.New("samples of a meter that reads a rail's channels one after another cannot be thinned to sums")
	}
	g.thins = true
	for c := range g.noise {
		for f := range g.noise[c] {
			// As many as the begin of the capture, which stays, has shown: from then on a part is enough.
			g.noise[c][f].total = noiseEnough
		}
	}
	return &Thinned{g: g}, nil
}

// Scans returns the number of scans.
func (t *Thinned) Scans() uint64 { return t.scans }

// Span returns the device time of the first and the last scan.
func (t *Thinned) Span() Window {
	tb := t.g.setup.Timebase
	return Window{From: tb.Seconds(t.g.firstTick), To: tb.Seconds(t.g.lastTick)}
}

// Add takes the scans that follow. Errors are those of Integrator.Add, and ErrOrder behind a gap.
func (t *Thinned) Add(b *Block) error {
	if t.scans > 0 && b.FirstScan != t.g.nextIn {
		return fmt.Errorf("thin: scan %d behind scan %d: %w", b.FirstScan, t.g.nextIn-1, ErrOrder)
	}
	n := b.Scans()
	if n == 0 || t.scans == 0 && n < len(t.first) {
		return fmt.Errorf("thin: a block of %d scans: %w", n, ErrShape)
	}
	if err := t.g.Add(b); err != nil {
		return err
	}
	at := func(i int) []Count { return lists.Map(b.Counts, func(col []Count) Count { return col[i] }) }
	if t.scans == 0 {
		for i := range t.first {
			t.first[i] = at(i)
		}
	}
	t.last, t.scans = at(n-1), t.scans+uint64(n)
	return nil
}

// Energy returns a rail's energy from the first scan to the last.
func (t *Thinned) Energy(r int) Joule { return t.g.sums(r).Energy(t.g.meter.rails[r].lin) }

// Steady hands on four scans in place of all, in two runs: the first and the last as they were, and next to them two of
// such powers that the trapezoid rule gives each rail's energy. They stand for the run where its course does not count.
func (t *Thinned) Steady(push func(*Powers) error) error {
	tb := t.g.setup.Timebase
	step := tb.TicksPerScan
	long := t.g.lastTick - t.g.firstTick
	runs := [2]Powers{{start: t.g.firstTick, step: step}, {start: t.g.lastTick - step, step: step}}
	for r := range t.g.meter.rails {
		m := &t.g.meter.rails[r]
		from, to := t.power(m, t.first[0]), t.power(m, t.last)
		level := (float64(t.Energy(r))*float64(tb.TickHz) - step*(from+to)/2) / (long - step)
		runs[0].Rails = append(runs[0].Rails, Columns{P: []Watt{Watt(from), Watt(level)}})
		runs[1].Rails = append(runs[1].Rails, Columns{P: []Watt{Watt(level), Watt(to)}})
	}
	return errors.Join(push(&runs[0]), push(&runs[1]))
}

func (t *Thinned) power(m *railMeter, scan []Count) float64 {
	p := pair{x: float64(scan[m.x])}
	if m.y >= 0 {
		p.y = float64(scan[m.y])
	}
	return m.power(p)
}

// skip takes a run of deleted scans. A window that begins or ends within them, or so close to them that what
// surrounds its end is missing, is ErrThinned, as are sums under another calibration.
func (g *Integrator) skip(b *Block) error {
	t := b.thinned
	x := t.g
	for r := range g.meter.rails {
		if g.align != nil || len(x.meter.rails) != len(g.meter.rails) || g.meter.rails[r].lin != x.meter.rails[r].lin {
			return fmt.Errorf("integrate: scans %d to %d: %w: under another calibration", b.FirstScan, b.FirstScan+t.scans-1,
				ErrThinned)
		}
	}
	if g.anchored && b.FirstScan < g.nextIn {
		return fmt.Errorf("integrate: scan %d after scan %d: %w", b.FirstScan, g.nextIn-1, ErrOrder)
	}
	tb := g.setup.Timebase
	from := x.firstTick
	if !tb.Stamped { // as its neighbours are counted
		from = g.start(&Block{FirstScan: b.FirstScan, FirstTick: int64(math.Round(from))})
	}
	to := x.lastTick + from - x.firstTick
	for i := range g.ends {
		reach := float64(g.ends[i].scans) * tb.TicksPerScan
		if at := g.ends[i].at; at > from-reach && at < to+reach {
			return fmt.Errorf("integrate from %v to %v: %v to %v: %w: choose a window whose ends lie elsewhere",
				g.from, g.to, tb.Seconds(from), tb.Seconds(to), ErrThinned)
		}
	}
	g.anchored, g.nextIn = true, b.FirstScan+t.scans
	s := stretch[Count]{start: from, step: tb.TicksPerScan, n: 1, first: b.FirstScan}
	s.cols = lists.Map(t.first[0], func(v Count) []Count { return []Count{v} })
	if g.seen {
		g.plain.bridge(&s, b.FirstScan-g.next)
	} else {
		g.firstTick = from
	}
	if from >= g.lo && to <= g.hi {
		g.merge(b)
	}
	for c, v := range t.last {
		g.plain.prev[c][0] = v
	}
	g.seen, g.next, g.lastTick = true, g.nextIn, to
	return nil
}

// merge adds the sums of deleted scans within the window.
func (g *Integrator) merge(b *Block) {
	t, x := b.thinned, b.thinned.g
	if g.samples == 0 {
		g.firstSample = b.FirstScan
	}
	g.samples += t.scans
	g.one.Add(x.one.Value())
	g.one2.Add(x.one2.Value())
	var total [3]float64
	for r := range g.rails {
		to, s := &g.rails[r], &x.rails[r]
		to.take(groupSums{s.x.Value(), s.y.Value(), s.xx.Value(), s.xy.Value(), s.yy.Value(), s.pp.Value()}, 1)
		to.slope.Add(s.slope.Value())
		to.peak = max(to.peak, s.peak)
		var first [3]float64
		for i := range first {
			first[i] = t.power(&g.meter.rails[r], t.first[i])
			total[i] += first[i]
		}
		to.jumps.join(&s.jumps, first)
	}
	g.total.pp.Add(x.total.pp.Value())
	g.total.peak = max(g.total.peak, x.total.peak)
	g.total.jumps.join(&x.total.jumps, total)
	if g.folds {
		g.beats.join(&x.beats)
	}
	for c := range g.noise {
		for f := range g.noise[c] {
			to, d := &g.noise[c][f], &x.noise[c][f]
			for i, n := range d.bins {
				to.bins[i] += n
			}
			to.total += d.total - noiseEnough
		}
		g.lone[c].join(&x.lone[c])
	}
}

// join adds another run's steps, behind a first reading that follows this one's last: the steps at the
// first two changes depend on both.
func (j *jumps) join(x *jumps, first [3]float64) {
	j.take(first[:])
	change, next := math.Abs(first[1]-first[0]), math.Abs(first[2]-first[1])
	alone := max(change-next, 0) // as the other run took its first change
	*j = jumps{true, x.last, x.older, x.late, j.squares + max(x.squares-alone*alone, 0)}
}

// join adds the readings that another meter looked at.
func (m *loneMeter) join(x *loneMeter) {
	if m.bins == nil {
		m.bins = map[int]loneBin{}
	}
	for i, b := range x.bins {
		a := m.bins[i]
		m.bins[i] = loneBin{a.n + b.n, a.sum + b.sum, a.squares + b.squares, a.pairs + b.pairs}
	}
	m.total += x.total
}

// join adds another search's stretches, which may straddle this one's: there a sum is parted as the scans are.
func (b *beats) join(x *beats) {
	for len(b.sums) > 0 && b.per < x.per {
		b.halve()
	}
	sign := 1.0
	if len(b.sums) == 0 {
		b.first, b.per = x.first, x.per
	} else if (x.first-b.first)&1 == 1 {
		sign = -1
	}
	for i, s := range x.sums {
		n := x.per
		if i == len(x.sums)-1 && x.n > 0 {
			n = x.n
		}
		for left := n; left > 0; {
			if b.n == 0 {
				b.next()
			}
			m, last := min(b.per-b.n, left), len(b.sums)-1
			part := float64(m) / float64(n)
			b.sums[last] += part * s
			b.turns[last] += sign * part * x.turns[i]
			if b.n += m; b.n == b.per {
				b.n = 0
			}
			left -= m
		}
	}
}

// thinnedState is a Thinned as it is stored, without what follows from the setup.
type thinnedState struct {
	Scans, Next         uint64
	FirstTick, LastTick float64
	First               [3][]Count
	Last                []Count
	AnchorScan          uint64
	AnchorTick          float64
	One, One2           float64
	Rails               []thinnedRail
	Total               thinnedRail
	Noise               []map[int]uint32 // by channel and form, by bin
	Looked              []uint64         // the same: how many differences
	Lone                []map[int][4]float64
	LoneTotal           []uint64
	Sums, Turns         []float64 `json:",omitempty"`
	Per, Open           int       `json:",omitempty"`
	BeatFirst           uint64    `json:",omitempty"`
}

// thinnedRail has the power's coefficients and a rail's sums.
type thinnedRail struct {
	Linear             Linear
	X, Y, XX, XY, YY   float64
	PP, Peak, Slope    float64
	JLast, Older, Late float64
	Squares            float64
}

func (s *railSums) stored(l Linear) thinnedRail {
	return thinnedRail{
		l, s.x.Value(), s.y.Value(), s.xx.Value(), s.xy.Value(), s.yy.Value(), s.pp.Value(), s.peak, s.slope.Value(),
		s.jumps.last, s.jumps.older, s.jumps.late, s.jumps.squares,
	}
}

func (x *thinnedRail) sums() railSums {
	return railSums{
		x: Sum{s: x.X}, y: Sum{s: x.Y}, xx: Sum{s: x.XX}, xy: Sum{s: x.XY}, yy: Sum{s: x.YY}, pp: Sum{s: x.PP},
		peak: x.Peak, slope: Sum{s: x.Slope}, jumps: jumps{true, x.JLast, x.Older, x.Late, x.Squares},
	}
}

// Block returns the block of the deleted scans.
func (t *Thinned) Block(firstScan uint64, firstTick int64) Block {
	return Block{FirstScan: firstScan, FirstTick: firstTick, thinned: t}
}

// Encode returns the stored form of one scan or more.
func (t *Thinned) Encode() ([]byte, error) {
	g := t.g
	out := thinnedState{
		Scans: t.scans, Next: g.nextIn, FirstTick: g.firstTick, LastTick: g.lastTick, First: t.first, Last: t.last,
		AnchorScan: g.anchorScan, AnchorTick: g.anchorTick, One: g.one.Value(), One2: g.one2.Value(),
		Total: g.total.stored(Linear{}), Sums: g.beats.sums, Turns: g.beats.turns, Per: g.beats.per, Open: g.beats.n,
		BeatFirst: g.beats.first,
	}
	for r := range g.rails {
		out.Rails = append(out.Rails, g.rails[r].stored(g.meter.rails[r].lin))
	}
	for c := range g.noise {
		for f := range g.noise[c] {
			bins := map[int]uint32{}
			for i, n := range g.noise[c][f].bins {
				if n > 0 {
					bins[i] = n
				}
			}
			out.Noise, out.Looked = append(out.Noise, bins), append(out.Looked, g.noise[c][f].total)
		}
		lone := map[int][4]float64{}
		for i, b := range g.lone[c].bins {
			lone[i] = [4]float64{b.n, b.sum, b.squares, b.pairs}
		}
		out.Lone, out.LoneTotal = append(out.Lone, lone), append(out.LoneTotal, g.lone[c].total)
	}
	return json.Marshal(&out)
}

// DecodeThinned reads the stored form of deleted scans that were taken under a setup. Bytes that do not fit it are
// ErrShape, those of another calibration's powers ErrThinned.
func DecodeThinned(s *Setup, data []byte) (*Thinned, error) {
	t, err := NewThinned(s)
	if err != nil {
		return nil, err
	}
	var in thinnedState
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("sums of deleted samples: %w: %w", ErrShape, err)
	}
	g, channels := t.g, len(s.Channels)
	wrong := in.Scans < uint64(len(in.First)) || in.Next < in.Scans || len(in.Last) != channels ||
		len(in.Rails) != len(g.rails) || len(in.Noise) != channels*len(forms) ||
		len(in.Looked) != len(in.Noise) || len(in.Lone) != channels ||
		len(in.LoneTotal) != channels || len(in.Sums) != len(in.Turns) || len(in.Sums) > beatBins ||
		in.Per < 0 || uint64(in.Per) > in.Scans || in.Open < 0 || in.Open > in.Per ||
		len(in.Sums) > 0 && in.Per == 0 || !(in.FirstTick < in.LastTick) ||
		slices.ContainsFunc(in.First[:], func(scan []Count) bool { return len(scan) != channels })
	if wrong {
		return nil, fmt.Errorf("sums of deleted samples: %w", ErrShape)
	}
	for r, x := range in.Rails {
		if x.Linear != g.meter.rails[r].lin {
			return nil, fmt.Errorf("rail %s: %w: they are of another calibration", s.Rails[r].Name, ErrThinned)
		}
		g.rails[r] = x.sums()
	}
	t.scans, t.first, t.last = in.Scans, in.First, in.Last
	g.anchored, g.nextIn, g.anchorScan, g.anchorTick = true, in.Next, in.AnchorScan, in.AnchorTick
	g.seen, g.next, g.samples, g.firstTick, g.lastTick = true, in.Next, in.Scans, in.FirstTick, in.LastTick
	g.one, g.one2, g.total = Sum{s: in.One}, Sum{s: in.One2}, in.Total.sums()
	g.beats = beats{in.Sums, in.Turns, in.Per, in.Open, in.BeatFirst}
	for c, v := range in.Last {
		g.plain.prev[c][0] = v
	}
	for i, bins := range in.Noise {
		d := &g.noise[i/len(forms)][i%len(forms)]
		d.total = max(in.Looked[i], noiseEnough)
		for bin, n := range bins {
			if bin < 0 || bin >= len(d.bins) {
				return nil, fmt.Errorf("sums of deleted samples: bin %d: %w", bin, ErrShape)
			}
			d.bins[bin] = n
		}
	}
	for c, bins := range in.Lone {
		g.lone[c] = loneMeter{bins: map[int]loneBin{}, total: in.LoneTotal[c]}
		for i, b := range bins {
			g.lone[c].bins[i] = loneBin{b[0], b[1], b[2], b[3]}
		}
	}
	return t, nil
}
