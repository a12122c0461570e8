package correct

import (
	"fmt"
	"math"

	"wattmark/analysis/sensor"
	"wattmark/analysis/validate"
	"wattmark/measure"
)

// The names of corrected methods, to stand behind the field's own.
const (
	MethodSlope   = "corrected"            // a lag, undone by its slope
	MethodSmooth  = "deconvolved"          // a window, undone with a smooth power
	MethodKernels = "corrected by kernels" // either, with the kernels' times known
)

// Methods returns what a sensor's readings say of the work once its profile has been
// undone, as software methods to hold against a meter: by the slope for a lag, by a
// smooth power for a window, and by the kernels where they are known. A way that
// does not lead to an energy is there with NaN, and its note says why: so does a
// window shorter than its period, which leaves time unseen and the energy to a
// bound, unless kernels are known. Readings come as polled, in order of time.
func Methods(rs []Reading, p *sensor.Profile, work Span, kernels []validate.Kernel) []validate.Method {
	rs = Tidy(rs)
	first := bySlope
	if p.Model == sensor.Boxcar {
		first = byWindow
	}
	out := []validate.Method{first(rs, p, work)}
	if len(kernels) == 0 {
		return out
	}
	l, e, err := LevelsEnergy(Renewals(rs, p.Period), p, Activities(kernels), work)
	var course []Reading
	if l != nil {
		course = l.Course()
	}
	// The fit's ± holds if every launch of a name draws one steady power. Nothing in the
	// readings of a sensor that hides single launches says whether it does: so it is no
	// uncertainty of the energy.
	note := fmt.Sprintf("a steady power for each name of kernel, which nothing confirms: its ± is not known (the fit alone ± %v)", e.U)
	e.U = 0
	return append(out, method(p, MethodKernels, course, e, note, err))
}

// method is a way with what came of it.
func method(p *sensor.Profile, name string, course []Reading, e Energy, note string, err error) validate.Method {
	m := validate.Method{Name: p.Field + " " + name, Readings: course, Energy: e.Energy, U: e.U, Note: note}
	if p.Field == "" {
		m.Name = name
	}
	if e.U > 0 {
		m.Note = fmt.Sprintf("± %v (k = 2); %s", e.U, note)
	}
	if err != nil {
		m.Energy, m.U, m.Silent, m.Note = measure.Joule(math.NaN()), 0, true, err.Error()
	}
	return m
}

func bySlope(rs []Reading, p *sensor.Profile, work Span) validate.Method {
	l, moved := FromProfile(p), shift(Collapse(rs, Near, p.Period), -p.Delay)
	e, err := l.Energy(moved, work)
	var course []Reading
	if err == nil {
		course = l.True(moved)
	}
	return method(p, MethodSlope, course, e, fmt.Sprintf("C = %v", l.C), err)
}

func byWindow(rs []Reading, p *sensor.Profile, work Span) validate.Method {
	renewals := Renewals(rs, p.Period)
	if p.Window < p.Period {
		floor, cap := extremes(rs)
		u, err := FindUnseen(renewals, p, work, floor, cap)
		if err == nil {
			err = fmt.Errorf("no number, a bound: %v", u)
		}
		return method(p, MethodSmooth, renewals, Energy{}, "", err)
	}
	s, e, err := SmoothEnergy(renewals, p, 0, work)
	var course []Reading
	if s != nil {
		course = s.Readings()
	}
	return method(p, MethodSmooth, course, e, fmt.Sprintf("mean of %v every %v", p.Window, p.Period), err)
}

// FromProfile is the lag of a first-order profile, for readings that are taken to be
// its delay older than their time stamps. Where the profile knows by how much polled
// readings lie behind in the mean, which the register's own keeping adds to, that is
// the constant.
func FromProfile(p *sensor.Profile) Lag {
	c, u := p.Tau, p.UTau
	if p.Lag > p.Delay {
		c, u = p.Lag-p.Delay, p.ULag
	}
	return Lag{C: c, U: u, Noise: p.Noise, Gain: p.Gain, UGain: p.UGain, Offset: p.Offset, UOffset: p.UOffset}
}

// Activities are kernels as activities: one that begins while another runs waits for
// it to end, since a sensor cannot part what runs at once.
func Activities(kernels []validate.Kernel) []Activity {
	var out []Activity
	end := measure.Seconds(math.Inf(-1))
	for _, k := range kernels {
		k.From = max(k.From, end)
		if k.From >= k.To {
			continue
		}
		out, end = append(out, Activity{k.Name, k.Span}), k.To
	}
	return out
}

func shift(rs []Reading, by measure.Seconds) []Reading {
	out := make([]Reading, len(rs))
	for i, r := range rs {
		out[i] = Reading{At: r.At + by, Power: r.Power}
	}
	return out
}

// extremes are the least and the greatest reading.
func extremes(rs []Reading) (low, high measure.Watt) {
	low, high = measure.Watt(math.Inf(1)), measure.Watt(math.Inf(-1))
	for _, r := range rs {
		low, high = min(low, r.Power), max(high, r.Power)
	}
	return low, high
}
