package scopeface

import (
	"math"
	"time"

	"wattmark/measure"
)

// View is the points that can be read: how many, and how far apart they lie in
// nanoseconds of the scope's own time.
type View struct {
	Points int
	Step   float64
}

// Memory is a view of deep memory: what it holds, or would hold while it runs.
func (s *Scope) Memory() View {
	if s.Running() {
		return View{s.geometry.Points(), 1e9 / s.geometry.Rate()}
	}
	return View{s.acq.held, 1e9 / s.acq.rate}
}

// Depth is how many points memory has room for, of the recording that it holds
// where it stands: what a scope tells that does not know how many it took.
func (s *Scope) Depth() int {
	if s.Running() {
		return s.geometry.Points()
	}
	return s.acq.depth
}

// Screen is a view of so many points across the window.
func (s *Scope) Screen(points int) View {
	return View{points, s.geometry.Window() / float64(points) * 1e9}
}

// Since is how long the scope has been standing; 0 while it runs.
func (s *Scope) Since() time.Duration {
	if s.Running() {
		return 0
	}
	return s.cfg.Now() - s.acq.ended
}

// Increment is volts a code of a channel.
func (s *Scope) Increment(channel int) float64 { return s.Channel[channel].Scale / s.PerDiv }

// Codes converts points of a channel and appends them to dst. Reading twice
// gives the same.
func (s *Scope) Codes(dst []int32, channel, first, n int, v View) []int32 {
	step := v.Step / (1 + s.cfg.Clock)
	begin := s.acq.begin
	if s.acq.running { // the screen of a scope that runs is what was just taken
		begin = s.cfg.Now() - time.Duration(s.geometry.Window()*1e9)
	}
	volts := s.Volts(channel, begin+time.Duration(math.Round(float64(first)*step)), step, n)
	inc, quantum, shift := s.Increment(channel), float64(max(1, s.Quantum)), s.Channel[channel].Shift
	base := s.Middle + s.cfg.Zero[channel]*s.PerDiv
	if s.WholeShift {
		base, shift = base+math.Round(shift/inc), 0
	}
	for i, x := range volts {
		code := (x*(1+s.cfg.Gain[channel])+shift)/inc + base
		code = math.Round(code/quantum+s.cfg.NoiseCodes*s.noise(channel, first+i)) * quantum
		dst = append(dst, int32(min(max(code, float64(s.Least)), float64(s.Most))))
	}
	return dst
}

// Each converts points of a channel in pieces, and hands each on: a whole deep
// memory takes no more room than a piece.
func (s *Scope) Each(channel, first, n int, v View, take func(codes []int32)) {
	const piece = 1 << 16
	for end := first + n; first < end; first += piece {
		s.codes = s.Codes(s.codes[:0], channel, first, min(piece, end-first), v)
		take(s.codes)
	}
}

// noise is the noise of one point, near to normal with a deviation of one: the
// sum of four uniform numbers out of a hash, so that memory stays what it is.
func (s *Scope) noise(channel, point int) float64 {
	x := s.cfg.Seed ^ s.acq.number<<48 ^ uint64(channel)<<40 ^ uint64(point)
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	sum := float64(x&0xffff) + float64(x>>16&0xffff) + float64(x>>32&0xffff) + float64(x>>48)
	return (sum/65535 - 2) * math.Sqrt(3)
}

// Volts are the true volts at a probe, valid until the next call.
func (s *Scope) Volts(channel int, at time.Duration, step float64, n int) []float64 {
	c := &s.Channel[channel]
	if cap(s.volts) < n {
		s.volts, s.power = make([]float64, n), make([]measure.Watt, n)
	}
	out := s.volts[:n]
	clear(out)
	if c.rail < 0 {
		return out
	}
	p := s.power[:n]
	s.board.Trace(p, at, step)
	for i := range out {
		r := s.board.Rail(c.rail, p[i])
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
