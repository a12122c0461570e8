package certificate

import (
	"fmt"
	"math"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/measure"
)

// Describe sets the figures of the readings, the errors by the sensor's model and how to
// apply the profile. Sensor is set before; polls, two at least, are those that it was
// identified from, in order of time. Errors wrap sensor.ErrProfile.
func (c *Certificate) Describe(polls []sensor.Poll) error {
	x := &c.Conditions
	first, last := polls[0], polls[len(polls)-1]
	x.Readings, x.Duration, x.Coverage = len(polls), last.At-first.At, 2
	x.SamplingRate = measure.Number(float64(len(polls)-1) / float64(x.Duration))
	x.Power.Peak, x.Energy = first.Power, 0
	for i, p := range polls {
		x.Power.Peak = max(x.Power.Peak, p.Power)
		if i > 0 {
			x.Energy += measure.Joule(float64(p.Power+polls[i-1].Power) / 2 * float64(p.At-polls[i-1].At))
		}
	}
	x.Power.Mean = measure.Watt(float64(x.Energy) / float64(x.Duration))
	c.Apply = apply(&c.Sensor)
	return c.model()
}

// The periods of the square waves for which the model gives an error, in s, and how long
// each is read.
var (
	periods = []measure.Seconds{0.01, 0.1, 1}
	read    = measure.Seconds(10)
)

// model adds the errors of the mean of the readings over 10 s of a square wave that lies
// half the time 50 % above and half below its mean, at a random phase: by the sensor's
// response and noise, beside its static error; twice the standard deviation. A profile
// that does not tell its model gives none.
func (c *Certificate) model() error {
	if c.Sensor.Undecided || c.Sensor.Weak {
		return nil
	}
	for _, p := range periods {
		w := sensor.Wanted{Kernel: p, U: 1, Swing: 1, Mean: c.Conditions.Power.Mean}
		plan, err := sensor.NewPlan(&c.Sensor, w)
		if err != nil {
			return err
		}
		plan.Segments, plan.PerSegment, plan.Trials = 1, int(math.Round(float64(read/p))), 2
		plan.Recount(&c.Sensor, w)
		u := measure.Number(200 * plan.OneTrial)
		c.Errors = append(c.Errors, Error{
			fmt.Sprintf("energy of %v of work that alternates ± 50 %% every %v", read, p), Modelled, 0, -u, u, p,
		})
	}
	return nil
}

// Against adds what a meter showed of the field's method in work, with the class of the
// work's load; a method without an energy adds nothing.
func (c *Certificate) Against(r *validate.Report, method string) {
	for i := range r.Methods {
		m := &r.Methods[i]
		if m.Name != method || math.IsNaN(float64(m.ErrorPct)) {
			continue
		}
		class := "alternates within the sensor's updates"
		switch {
		case r.Swing < 0.1:
			class = "is steady"
		case r.Alternation <= 0.5:
			class = "changes more slowly than the sensor's updates"
		}
		c.Errors = append(c.Errors, Error{
			fmt.Sprintf("energy of %v of work that %s: %s", r.Duration, class, r.Name), Metered, m.ErrorPct,
			m.Interval.Lo, m.Interval.Hi, 0,
		})
	}
}

// apply describes the use of a profile in sentences.
func apply(p *sensor.Profile) []string {
	out := []string{"power_w = (reading_w - offset_w) / gain; U of it combines gain_u and offset_u_w"}
	if !p.Calibrated {
		out[0] = "gain and offset are not known, since no meter was read beside: the readings keep their static error"
	}
	out = append(out, "a polled reading is of the power lag_s ago: shift readings by it before they are held "+
		"against kernels")
	switch {
	case p.Seen < 0.95:
		out = append(out, "the sensor sees share_seen of the time: repeat work at random phases (wattmark sensor plan)")
	case p.Model == sensor.FirstOrder:
		out = append(out, "power(t) = reading(t) + tau_s * d reading/dt (wattmark correct --certificate)")
	default:
		out = append(out, "a reading is the mean over window_s: leave out the first window_s of work, or undo it "+
			"(wattmark correct --certificate)")
	}
	return out
}

// Comparison is a figure of a certificate, found again.
type Comparison struct {
	Name      string         `json:"figure"`
	Certified measure.Number `json:"certified"`
	U         measure.Number `json:"u"`
	Found     measure.Number `json:"found"`
}

// Compare holds the figures against those of p, found from the same files. Errors wrap
// ErrRefused where one lies outside of the certified uncertainty.
func (c *Certificate) Compare(p *sensor.Profile) (list []Comparison, err error) {
	s := &c.Sensor
	add := func(name string, certified, u, found float64) {
		x := Comparison{name, measure.Number(certified), measure.Number(u), measure.Number(found)}
		list = append(list, x)
		// The same program finds the same figure, of which the tenth digit may differ.
		if !(math.Abs(found-certified) <= math.Max(u, 1e-9*math.Abs(certified))) && err == nil {
			err = refuse("%s is %.6g by the recordings, not %.6g ± %.2g", name, found, certified, u)
		}
	}
	add("period_s", float64(s.Period), float64(s.UPeriod), float64(p.Period))
	if p.Model != s.Model && !s.Undecided {
		return list, refuse("by the recordings the sensor is %s, not %s", p.Model, s.Model)
	}
	if p.Model == s.Model {
		add("window_s", float64(s.Window), float64(s.UWindow), float64(p.Window))
		add("tau_s", float64(s.Tau), float64(s.UTau), float64(p.Tau))
	}
	add("lag_s", float64(s.Lag), float64(s.ULag), float64(p.Lag))
	add("share_seen", s.Seen, s.USeen, p.Seen)
	if s.Calibrated || p.Calibrated {
		add("gain", s.Gain, s.UGain, p.Gain)
		add("offset_w", float64(s.Offset), float64(s.UOffset), float64(p.Offset))
	}
	return list, err
}
