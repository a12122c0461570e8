package scopeface

import (
	"math"
	"time"

	"wattmark/measure"
)

// Trigger is how it is set. Words are in the face's own spelling, but for those
// that the acquisition knows: sweep AUTO, slope POS, NEG or both.
type Trigger struct {
	Mode, Sweep, Slope, Coupling string
	Source                       int
	Level, Holdoff               float64
}

// State is what the trigger and the memory do.
type State uint8

// The states.
const (
	Stopped   State = iota // memory stands
	Waiting                // for a trigger
	Sampling               // a single acquisition is triggered
	Free                   // runs by itself
	Triggered              // runs, and has just triggered
)

// acquisition is what the memory does.
type acquisition struct {
	running   bool
	single    bool
	triggered bool
	armed     time.Duration // board time since which it waits, as far as looked
	begin     time.Duration // board time of the first point, once triggered
	ended     time.Duration // board time when it stopped
	held      int           // points in memory, once stopped
	depth     int           // points that it would hold
	rate      float64       // at which they were taken
	number    uint64        // of the acquisition: its noise
}

// Power is the state after *RST and after power came: it runs freely.
func (s *Scope) Power() { s.acq = acquisition{running: true, armed: s.cfg.Now()} }

// Start arms anew.
func (s *Scope) Start(single bool) {
	s.acq = acquisition{running: true, single: single, armed: s.cfg.Now(), number: s.acq.number + 1}
}

// Single tells whether what runs, or stands in memory, is a single acquisition.
func (s *Scope) Single() bool { return s.acq.single }

// Fired tells whether what runs, or stands in memory, has triggered. A scope that
// runs freely does so all the time.
func (s *Scope) Fired() bool {
	return s.acq.triggered || s.acq.running && !s.acq.single && s.Trig.Sweep == "AUTO"
}

// Running tells whether memory changes.
func (s *Scope) Running() bool {
	s.Update()
	return s.acq.running
}

// Force triggers now.
func (s *Scope) Force() {
	s.Update()
	if s.acq.running && !s.acq.triggered {
		s.fire(s.cfg.Now())
	}
}

// fire is a trigger at a board time. The window lies around it as the time
// shift says.
func (s *Scope) fire(at time.Duration) {
	s.acq.triggered, s.acq.begin = true, at+measure.Seconds(s.geometry.Delay()).Duration()
}

// span is the true duration of so many points.
func (s *Scope) span(points int) time.Duration {
	return time.Duration(math.Round(float64(points) / s.geometry.Rate() / (1 + s.cfg.Clock) * 1e9))
}

// Update lets what is due happen: a trigger, the end of a single acquisition.
func (s *Scope) Update() {
	if !s.acq.running {
		return
	}
	now, points := s.cfg.Now(), s.geometry.Points()
	if !s.acq.triggered && (s.acq.single || s.Trig.Sweep != "AUTO") {
		s.look(now)
	}
	if s.acq.single && s.acq.triggered && now >= s.acq.begin+s.span(points) {
		s.freeze(points, s.acq.begin+s.span(points))
	}
}

// freeze ends an acquisition.
func (s *Scope) freeze(points int, at time.Duration) {
	s.acq.running, s.acq.held, s.acq.depth, s.acq.rate, s.acq.ended = false, points, s.geometry.Points(), s.geometry.Rate(), at
}

// Stop ends what runs. A free-running scope holds the window that ends now; a
// single acquisition holds what it has so far.
func (s *Scope) Stop() {
	s.Update()
	if !s.acq.running {
		return
	}
	now, points := s.cfg.Now(), s.geometry.Points()
	if !s.acq.single {
		s.acq.begin, s.acq.triggered = now-s.span(points), true
	} else if !s.acq.triggered {
		points = 0
	} else {
		points = int(min(float64(points), max(0, (now-s.acq.begin).Seconds()*s.geometry.Rate()*(1+s.cfg.Clock)+1e-6)))
	}
	s.freeze(points, now)
}

// State tells what it does now.
func (s *Scope) State() State {
	s.Update()
	switch {
	case !s.acq.running:
		return Stopped
	case s.acq.triggered && s.acq.single:
		return Sampling
	case s.acq.single, s.Trig.Sweep == "NORM":
		return Waiting
	case s.Trig.Sweep == "AUTO":
		return Free
	}
	return Triggered
}

// look searches the trigger's source for an edge since it last looked.
func (s *Scope) look(now time.Duration) {
	const most, screen = 1 << 16, 1200
	step := max(s.geometry.Window()/screen*1e9, 1000)
	n := int(float64(now-s.acq.armed) / step)
	if n < 2 {
		return
	}
	if n > most { // too far behind to look everywhere
		s.acq.armed, n = now-time.Duration(most*step), most
	}
	v, t := s.Volts(s.Trig.Source, s.acq.armed, step, n), &s.Trig
	for i := 1; i < n; i++ {
		rise := v[i-1] < t.Level && v[i] >= t.Level
		fall := v[i-1] > t.Level && v[i] <= t.Level
		if rise && t.Slope != "NEG" || fall && t.Slope != "POS" {
			s.fire(s.acq.armed + time.Duration(float64(i)*step))
			return
		}
	}
	s.acq.armed += time.Duration(float64(n-1) * step)
}
