package serving

import (
	"math"

	"github.com/wattmark/wattmark/measure"
)

// The names by which a benchmark of a server is summed up: windows of the class WarmUp are not of it, and its tokens
// are counted under these units.
const (
	WarmUp = "warm-up"
	Input  = "prompt_tokens"
	Output = "tokens"
)

// Served is what a server did between the begin of its first window and the end of its last one. The fields are those
// of InferenceX's results (its aggregate_power.py, schema 2), beside energy_u_j.
type Served struct {
	Schema int   `json:"power_metric_schema_version"`
	Begin  int64 `json:"begin_ns"` // on the host's clock, since 1970
	End    int64 `json:"end_ns"`
	// Requests counts the requests by class and id, each window without an id as one. Input and Output are their
	// tokens.
	Requests int     `json:"completed"`
	Input    float64 `json:"total_input_tokens"`
	Output   float64 `json:"total_output_tokens"`
	// Valid is 1, or 0 for Reasons: then there is no Power.
	Valid   int      `json:"power_valid"`
	Reasons []string `json:"power_invalid_reasons,omitempty"`
	*Power
}

// Power is the card's energy over that time, idle time included, and its mean by request and token: null where there
// was none. One GPU is a task's, so both mean powers are its own.
type Power struct {
	Mean    measure.Watt  `json:"avg_power_w"`
	All     measure.Watt  `json:"avg_total_gpu_power_w"`
	Energy  measure.Joule `json:"total_gpu_energy_j"`
	U       measure.Joule `json:"energy_u_j"` // k = 2
	Request measure.Joule `json:"joules_per_successful_query"`
	Input   measure.Joule `json:"joules_per_input_token"`
	Output  measure.Joule `json:"joules_per_output_token"`
	Token   measure.Joule `json:"joules_per_total_token"`
}

// Serve sums up a server's windows, without energy, which Took sets. It is nil without windows.
func Serve(windows []Window) *Served {
	s := &Served{Schema: 2, Begin: math.MaxInt64}
	requests := map[[2]string]bool{}
	for i := range windows {
		w := &windows[i]
		if w.Class == WarmUp {
			continue
		}
		s.Begin, s.End = min(s.Begin, w.Begin), max(s.End, w.End)
		s.Input += w.Counts[Input]
		s.Output += w.Counts[Output]
		if w.ID == "" {
			s.Requests++
			continue
		}
		requests[[2]string{w.Class, w.ID}] = true
	}
	if s.Requests += len(requests); s.Requests == 0 {
		return nil
	}
	return s
}

// Took sets the energy, its U and the means; where there are reasons against it, only these.
func (s *Served) Took(e measure.Estimate, reasons ...string) {
	if s.Reasons = reasons; len(reasons) > 0 {
		return
	}
	mean := measure.Watt(float64(e.Energy) / (float64(s.End-s.Begin) * 1e-9))
	by := func(n float64) measure.Joule {
		if n == 0 {
			return measure.Joule(math.NaN())
		}
		return e.Energy / measure.Joule(n)
	}
	s.Valid, s.Power = 1, &Power{
		mean, mean, e.Energy, e.U, by(float64(s.Requests)), by(s.Input), by(s.Output), by(s.Input + s.Output),
	}
}
