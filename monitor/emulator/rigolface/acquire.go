package rigolface

import (
	"math"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/scpiface"
)

// trigger is how it is set.
type trigger struct {
	mode, sweep, slope, coupling string
	source                       int
	level, holdoff               float64
}

// acquisition is what the memory does.
type acquisition struct {
	running   bool
	single    bool
	triggered bool
	armed     time.Duration // board time since which it waits, as far as looked
	begin     time.Duration // board time of the first point, once triggered
	held      int           // points in memory, once stopped
	rate      float64       // at which they were taken
	number    uint64        // of the acquisition: its noise
}

// run arms anew.
func (f *Face) run(single bool) {
	f.acq = acquisition{running: true, single: single, armed: f.cfg.Now(), number: f.acq.number + 1}
}

// force triggers now.
func (f *Face) force() {
	if f.acq.running && !f.acq.triggered {
		f.fire(f.cfg.Now())
	}
}

// fire is a trigger at a board time. The window lies around it as the time
// shift says.
func (f *Face) fire(at time.Duration) {
	before := f.window()/2 - f.timeShift
	f.acq.triggered, f.acq.begin = true, at-measure.Seconds(before).Duration()
	if f.cfg.TriggerOut != nil {
		f.cfg.TriggerOut.pulse(at)
	}
}

// span is the true duration of so many points.
func (f *Face) span(points int) time.Duration {
	return time.Duration(math.Round(float64(points) / f.rate() / (1 + f.cfg.Clock) * 1e9))
}

// update lets what is due happen: a trigger, the end of a single acquisition.
func (f *Face) update() {
	if !f.acq.running {
		return
	}
	now := f.cfg.Now()
	if !f.acq.triggered && (f.acq.single || f.trig.sweep != "AUTO") {
		f.look(now)
	}
	if f.acq.single && f.acq.triggered && now >= f.acq.begin+f.span(f.points()) {
		f.freeze(f.points())
	}
}

// freeze ends an acquisition.
func (f *Face) freeze(points int) {
	f.acq.running, f.acq.held, f.acq.rate = false, points, f.rate()
}

// stop is :STOP. A free-running scope holds the window that ends now; a single
// acquisition holds what it has so far.
func (f *Face) stop() {
	f.update()
	if !f.acq.running {
		return
	}
	now := f.cfg.Now()
	if f.acq.single {
		points := 0
		if f.acq.triggered {
			points = int(min(float64(f.points()), max(0, (now-f.acq.begin).Seconds()*f.rate()*(1+f.cfg.Clock)+1e-6)))
		}
		f.freeze(points)
		return
	}
	f.acq.begin, f.acq.triggered = now-f.span(f.points()), true
	f.freeze(f.points())
}

// look searches the trigger's source for an edge since it last looked.
func (f *Face) look(now time.Duration) {
	if p := f.channels[f.trig.source].probe; p.Quantity == TriggerIn {
		// A pulse far shorter than the steps below still triggers.
		at, ok := p.Line.after(f.acq.armed, now)
		if ok && f.trig.level > 0 && f.trig.level < pulseVolts && f.trig.slope != "NEG" {
			f.fire(at)
		}
		return
	}
	const most = 1 << 16
	step := max(f.window()/screenSize*1e9, 1000)
	n := int(float64(now-f.acq.armed) / step)
	if n < 2 {
		return
	}
	if n > most { // too far behind to look everywhere
		f.acq.armed, n = now-time.Duration(most*step), most
	}
	v := f.volts(f.trig.source, f.acq.armed, step, n)
	for i := 1; i < n; i++ {
		rise := v[i-1] < f.trig.level && v[i] >= f.trig.level
		fall := v[i-1] > f.trig.level && v[i] <= f.trig.level
		if rise && f.trig.slope != "NEG" || fall && f.trig.slope != "POS" {
			f.fire(f.acq.armed + time.Duration(float64(i)*step))
			return
		}
	}
	f.acq.armed += time.Duration(float64(n-1) * step)
}

// status is the answer to :TRIG:STAT?.
func (f *Face) status() string {
	f.update()
	switch {
	case !f.acq.running:
		return "STOP"
	case f.acq.triggered && f.acq.single:
		return "RUN"
	case f.acq.single, f.trig.sweep == "NORM":
		return "WAIT"
	case f.trig.sweep == "AUTO":
		return "AUTO"
	}
	return "TD"
}

// setDepth is :ACQ:MDEP, which works only while the scope runs.
func (f *Face) setDepth(c scpiface.Call) error {
	f.update()
	if !f.acq.running {
		return scpiface.ErrConflict
	}
	if len(c.Args) == 0 {
		return scpiface.ErrMissing
	}
	if w, err := c.Word(0, "AUTO"); err == nil && w == "AUTO" {
		f.depth = 0
		return nil
	}
	v, err := c.Number(0)
	if err != nil {
		return err
	}
	for _, d := range f.depths() {
		if v == float64(d) {
			f.depth = d
			return nil
		}
	}
	return scpiface.ErrValue
}

// volts are the true volts at a probe.
func (f *Face) volts(channel int, at time.Duration, step float64, n int) []float64 {
	c := &f.channels[channel]
	out := make([]float64, n)
	if c.probe.Quantity == TriggerIn {
		for i := range out {
			out[i] = c.probe.Line.volts(at + time.Duration(float64(i)*step))
		}
	}
	if c.rail < 0 {
		return out
	}
	if cap(f.power) < n {
		f.power = make([]measure.Watt, n)
	}
	p := f.power[:n]
	f.board.Trace(p, at, step)
	for i := range out {
		r := f.board.Rail(c.rail, p[i])
		switch c.probe.Quantity {
		case Load:
			out[i] = float64(r.V)
		case Source:
			out[i] = float64(r.V) + float64(r.I)*float64(c.probe.Ohm)
		case Clamp:
			out[i] = float64(r.I) * c.probe.VoltPerAmpere
		}
	}
	return out
}
