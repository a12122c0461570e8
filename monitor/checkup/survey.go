// Package checkup examines the samples of a bench before it is trusted: live values, noise,
// the sample rate, losses, and signs of a wrong wiring.
//
//	instrument ─▶ Survey ─▶ Result ─▶ Findings: levels, texts, remedies
//
// A Survey keeps sums only, so it may run for any time.
package checkup

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// Result is the sum of a survey.
type Result struct {
	Setup measure.Setup
	// Scans delivered, and device time from the first to the last of them.
	Scans    uint64
	Duration measure.Seconds
	// Rate is the scans a second by the host's clock, lost ones included, with its standard
	// uncertainty; zero where unknown.
	Rate, URate measure.Hertz
	// Deferred: the instrument delivered from its own memory.
	Deferred bool
	// Channels and Rails are in the setup's order.
	Channels []Channel
	Rails    []Rail
	// Losses are gaps, overflows and the like, one entry a kind.
	Losses []Losses
}

// Channel is the sum of one channel's readings, in its unit.
type Channel struct {
	Spread
	// Low and High are counts that stood at an end of the converter's range.
	Low, High uint64
	// Noise is the overlapping Allan deviation over averaging times.
	Noise []quality.AllanPoint
}

// Floor returns the channel's noise floor, in its unit; ok is false where the survey was
// too short.
func (c *Channel) Floor() (f quality.Floor, ok bool) { return quality.FloorOf(c.Noise) }

// Rail is the sum of one rail's values. Current and Voltage are empty where the rail is
// measured as power.
type Rail struct {
	Voltage Spread `json:"voltage_v,omitzero"`
	Current Spread `json:"current_a,omitzero"`
	Power   Spread `json:"power_w,omitzero"`
}

// Survey is a Sink that keeps figures instead of samples. Its memory does not
// grow with time. The instrument's goroutine fills it while others read.
type Survey struct {
	setup measure.Setup
	meter *measure.PowerMeter
	now   func() time.Time

	mu       sync.Mutex
	deferred bool
	channels []channelTally
	noise    []*quality.Allan
	rails    []railTally
	recent   []railTally // since the last Recent
	column   measure.Columns
	pace     pace
	scans    uint64
	last     float64 // device time of the last scan, in ticks
	events   map[measure.EventKind]*Losses
	done     [2]uint64 // of a delivery: done, total
}

// railTally sums one rail's values; current and voltage stay empty for a rail that is
// measured as power.
type railTally struct{ current, voltage, power tally }

// Losses sums the events of one kind.
type Losses struct {
	Kind   measure.EventKind
	Events uint64
	// Scans concerned, or lost; an estimate unless Exact.
	Scans uint64
	Exact bool
	// Detail is that of the first one.
	Detail string
}

// New returns an empty survey under a setup.
func New(s *measure.Setup) (*Survey, error) {
	m, err := measure.NewPowerMeter(s)
	if err != nil {
		return nil, fmt.Errorf("survey: %w", err)
	}
	v := &Survey{
		setup: *s, meter: m, now: time.Now, channels: make([]channelTally, len(s.Channels)),
		rails: make([]railTally, len(s.Rails)), recent: make([]railTally, len(s.Rails)),
		events: map[measure.EventKind]*Losses{},
	}
	for range s.Channels {
		v.noise = append(v.noise, quality.NewAllan(measure.Seconds(1/float64(s.Timebase.SampleRate()))))
	}
	return v, nil
}

// Sink returns the survey as an instrument's sink. It reads the whole delivery of an
// instrument that samples into its own memory.
func (v *Survey) Sink() instrument.Sink {
	return instrument.Sink{Block: v.Block, Event: v.Event, BlockAt: v.BlockAt, Armed: v.Armed, Progress: v.Progress}
}

// Block takes a block.
func (v *Survey) Block(b *measure.Block) error { return v.BlockAt(b, v.now()) }

// BlockAt takes a block that was held back, with the time of its samples' arrival. It does
// not allocate.
func (v *Survey) BlockAt(b *measure.Block, at time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := b.Validate(v.setup.Timebase, len(v.channels)); err != nil {
		return fmt.Errorf("survey: %w", err)
	}
	n := b.Scans()
	if n == 0 {
		return nil
	}
	for c := range v.channels {
		v.channels[c].observe(v.setup.Channels[c], b.Counts[c])
		v.noise[c].Add(b.Counts[c])
	}
	for r := range v.rails {
		v.meter.Rail(r, b, &v.column)
		v.rails[r].observe(&v.column)
		v.recent[r].observe(&v.column)
	}
	v.scans += uint64(n)
	v.last = b.TickAt(v.setup.Timebase, n-1)
	v.pace.observe(at, float64(b.FirstScan)+float64(n))
	return nil
}

func (t *railTally) observe(c *measure.Columns) {
	addAll(&t.current, c.I)
	addAll(&t.voltage, c.V)
	addAll(&t.power, c.P)
}

func addAll[T ~float64](t *tally, values []T) {
	for _, v := range values {
		t.add(float64(v))
	}
}

// Event counts an event. A gap also breaks the noise's averages.
func (v *Survey) Event(e measure.Event) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.events[e.Kind]
	if l == nil {
		l = &Losses{Kind: e.Kind, Exact: true, Detail: e.Detail}
		v.events[e.Kind] = l
	}
	l.Events++
	l.Scans += e.Scans
	l.Exact = l.Exact && e.Exact
	if e.Kind == measure.EventGap {
		for _, n := range v.noise {
			n.Break()
		}
	}
	return nil
}

// Armed notes an instrument that delivers when it is stopped: its arrivals have no rate.
func (v *Survey) Armed(time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.deferred = true
	return nil
}

// Progress notes the progress of a delivery.
func (v *Survey) Progress(done, total uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done = [2]uint64{done, total}
}

// Delivery returns the scans of the instrument's memory that were read, and their total; 0
// before the delivery.
func (v *Survey) Delivery() (done, total uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.done[0], v.done[1]
}

// Result returns the sums so far.
func (v *Survey) Result() *Result {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := &Result{
		Setup: v.setup, Scans: v.scans, Duration: v.setup.Timebase.Seconds(v.last), Deferred: v.deferred,
		Rails: railValues(v.rails),
	}
	if !v.deferred {
		r.Rate, r.URate = v.pace.rate()
	}
	for i := range v.channels {
		t, c, noise := &v.channels[i], v.setup.Channels[i], v.noise[i].Deviation()
		for k := range noise {
			noise[k].Dev *= math.Abs(c.Gain) // from counts to the channel's unit
		}
		r.Channels = append(r.Channels, Channel{
			Spread: t.scaled(c.Gain, c.Offset), Low: t.low, High: t.high, Noise: noise,
		})
	}
	for _, k := range []measure.EventKind{
		measure.EventGap, measure.EventOverflow, measure.EventResync, measure.EventReopen, measure.EventNote,
	} {
		if l := v.events[k]; l != nil {
			r.Losses = append(r.Losses, *l)
		}
	}
	return r
}

// Recent returns the rails' sums since the last call, and begins anew.
func (v *Survey) Recent() []Rail {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := railValues(v.recent)
	clear(v.recent)
	return out
}

// railValues returns the spreads of rails, in W, V and A.
func railValues(rails []railTally) []Rail {
	return lists.Map(rails, func(t railTally) Rail {
		return Rail{Current: t.current.scaled(1, 0), Voltage: t.voltage.scaled(1, 0), Power: t.power.scaled(1, 0)}
	})
}

// tally sums readings of one quantity. Sums are relative to the first reading, so that a
// small scatter on a large value keeps its digits.
type tally struct {
	n           uint64
	origin      float64
	sum, square float64
	least, most float64
}

// add counts a reading.
func (t *tally) add(v float64) {
	if t.n == 0 {
		t.origin, t.least, t.most = v, v, v
	}
	t.n++
	d := v - t.origin
	t.sum += d
	t.square += d * d
	t.least, t.most = min(t.least, v), max(t.most, v)
}

// scaled returns the spread of offset + gain·reading. The mean is NaN without readings, the
// standard deviation zero of a single one.
func (t *tally) scaled(gain, offset float64) Spread {
	s := Spread{
		N: t.n, Mean: math.NaN(), Least: offset + gain*t.least, Most: offset + gain*t.most,
	}
	n := float64(t.n)
	if t.n > 0 {
		s.Mean = offset + gain*(t.origin+t.sum/n)
	}
	if t.n > 1 {
		s.Deviation = math.Abs(gain) * math.Sqrt(max(t.square-t.sum*t.sum/n, 0)/(n-1))
	}
	if gain < 0 {
		s.Least, s.Most = s.Most, s.Least
	}
	return s
}

// Spread is the distribution of a quantity's readings, in the quantity's unit.
type Spread struct {
	N         uint64  `json:"-"`                  // readings
	Mean      float64 `json:"mean"`               // NaN without readings
	Deviation float64 `json:"standard_deviation"` // of the sample
	Least     float64 `json:"least"`
	Most      float64 `json:"most"`
}

// IsZero reports whether there are no readings; JSON then omits the spread.
func (s Spread) IsZero() bool { return s.N == 0 }

// channelTally sums one channel's readings, in counts.
type channelTally struct {
	tally
	low, high uint64 // counts at either end of the converter's range
}

// observe counts readings, and those at an end of the converter's range.
func (t *channelTally) observe(c measure.Channel, counts []measure.Count) {
	ranged := c.MinCount != c.MaxCount
	for _, n := range counts {
		t.add(float64(n))
		if ranged && n <= c.MinCount {
			t.low++
		}
		if ranged && n >= c.MaxCount {
			t.high++
		}
	}
}

// pace fits a straight line to arrivals: scans over the host's clock. It keeps sums only,
// relative to the first arrival.
type pace struct {
	n     float64
	begin time.Time
	first float64
	// last is the newest arrival: it counts once another comes behind it.
	last struct {
		at   time.Time
		scan float64
	}
	st, ss, stt, sts, sss float64
}

// together is the distance within which blocks are parts of one delivery: only the last of
// them has its true time.
const together = 2 * time.Millisecond

// observe takes the arrival of everything before a scan, and counts the one before in the sums of
// the line's fit where it was the last of its delivery.
func (p *pace) observe(at time.Time, scan float64) {
	if l := p.last; !l.at.IsZero() && at.Sub(l.at) > together {
		if p.n == 0 {
			p.begin, p.first = l.at, l.scan
		}
		t, s := l.at.Sub(p.begin).Seconds(), l.scan-p.first
		p.n++
		p.st += t
		p.ss += s
		p.stt += t * t
		p.sts += t * s
		p.sss += s * s
	}
	p.last.at, p.last.scan = at, scan
}

// rate returns the slope in scans a second and its standard uncertainty; zeros where there
// were too few arrivals. Residuals are correlated, since a busy host delays neighbours
// together: the uncertainty counts only one arrival in four as independent, a factor 2.
func (p *pace) rate() (rate, u measure.Hertz) {
	if p.n < 8 { // too few
		return 0, 0
	}
	tt, ts, ss := p.stt-p.st*p.st/p.n, p.sts-p.st*p.ss/p.n, p.sss-p.ss*p.ss/p.n
	if !(tt > 0) {
		return 0, 0
	}
	// Least squares with centred sums: slope = Sts/Stt, residual variance = (Sss − slope·Sts)/(n − 2).
	slope := ts / tt
	residual := max(ss-slope*ts, 0) / (p.n - 2)
	return measure.Hertz(slope), measure.Hertz(2 * math.Sqrt(residual/tt))
}
