package correct

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/internal/referee"
	"github.com/wattmark/wattmark/measure"
)

// A method that states a U holds the truth in 93 % of works at rest before and after, beside
// the scatter of a share, of sensors that the referee reads and whose constants are known as
// well as polls every 10 ms tell them.
func TestStatedUOfMethodsHolds(t *testing.T) {
	coverage.Long(t)
	const trials, u = 100, 0.006
	average := sensor.Profile{Model: sensor.Boxcar, Period: 0.1, Window: 1, UDelay: u, Gain: 1}
	for _, c := range []struct {
		name   string
		s      referee.Sensor
		p      sensor.Profile
		length float64
	}{
		{"low-pass", referee.Sensor{Update: 0.015, Tau: 0.3}, sensor.Profile{
			Model: sensor.FirstOrder, Period: 0.015, Tau: 0.3, Lag: 0.3075, ULag: u, Gain: 1,
		}, 5},
		{"average", referee.Sensor{Update: 0.1, Window: 1}, average, 5},
		{"average of short work", referee.Sensor{Update: 0.1, Window: 1}, average, 0.5},
	} {
		c.s.Gain, c.s.Poll, c.s.Jitter, c.s.Noise = 1, 0.01, 0.004, 0.3
		in, stated := map[string]float64{}, map[string]float64{}
		for i := range trials {
			rng := rand.New(rand.NewPCG(uint64(i), 9))
			l := referee.RandomLoad(rng, 0, c.length, 80, 400, true)
			at, w := c.s.Read(rng, l, -3, c.length+3)
			var rs []Reading
			for k := range at {
				rs = append(rs, Reading{At: measure.Seconds(at[k]), Power: measure.Watt(w[k])})
			}
			work := Span{From: 0, To: measure.Seconds(c.length)}
			for _, m := range Methods(rs, &c.p, work, []validate.Kernel{{Name: "k", Span: work}}) {
				if m.U > 0 {
					stated[m.Name]++
					if math.Abs(float64(m.Energy)-l.Energy(c.length)+l.Energy(0)) <= float64(m.U) {
						in[m.Name]++
					}
				}
			}
		}
		for name, n := range stated {
			t.Logf("%s, %s: %.0f of %.0f within U", c.name, name, in[name], n)
			if in[name]/n < 0.93-2*math.Sqrt(0.93*0.07/n) {
				t.Errorf("%s, %s: %.0f of %.0f within U", c.name, name, in[name], n)
			}
		}
		if c.p.Model == sensor.FirstOrder && stated[MethodSlope] != trials {
			t.Errorf("%s states a U in %.0f of %d", c.name, stated[MethodSlope], trials)
		}
	}
}
