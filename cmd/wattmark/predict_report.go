package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"wattmark/analysis/predict"
	"wattmark/measure"
	"wattmark/store"
)

// predictionReport is a model in JSON.
type predictionReport struct {
	Database string `json:"database,omitempty"`
	Name     string `json:"name"`
	Version  int    `json:"version,omitempty"`
	Made     string `json:"made,omitempty"`
	predictionContent
	Tasks         []store.TaskID    `json:"tasks,omitempty"`
	SpeedFlops    float64           `json:"speed_flop_s"`
	FlopsPerRound float64           `json:"flops_per_round"`
	Doubts        []string          `json:"doubts,omitempty"`
	Evaluation    *evaluationReport `json:"evaluation,omitempty"`
	Picture       string            `json:"picture,omitempty"`
}

// evaluationReport is a model held against points in JSON.
type evaluationReport struct {
	Points   []scoredReport `json:"points"`
	Linear   scoreReport    `json:"linear"`
	ByRounds scoreReport    `json:"by_rounds"`
	Mixed    scoreReport    `json:"mixed"`
}

type scoreReport struct {
	Time       predict.Errors `json:"time"`
	Energy     predict.Errors `json:"energy"`
	TimeHits   int            `json:"time_in_band"`
	EnergyHits int            `json:"energy_in_band"`
}

type scoredReport struct {
	Measured predict.Point  `json:"measured"`
	Forecast forecastReport `json:"predicted"`
}

// forecastReport is one prediction in JSON; bands are half widths.
type forecastReport struct {
	Blocks   uint64     `json:"blocks"`
	Rounds   uint64     `json:"rounds"`
	Linear   bandReport `json:"linear"`
	ByRounds bandReport `json:"by_rounds"`
	Mixed    bandReport `json:"mixed"`
	Warnings []string   `json:"warnings,omitempty"`
}

type bandReport struct {
	TimeS             float64 `json:"time_s"`
	TimeConfidenceS   float64 `json:"time_confidence_s"`
	TimePredictionS   float64 `json:"time_prediction_s"`
	EnergyJ           float64 `json:"energy_j"`
	EnergyConfidenceJ float64 `json:"energy_confidence_j"`
	EnergyPredictionJ float64 `json:"energy_prediction_j"`
}

func newBandReport(f predict.Forecast) bandReport {
	return bandReport{
		float64(f.Time.Value), float64(f.Time.Confidence), float64(f.Time.Prediction),
		float64(f.Energy.Value), float64(f.Energy.Confidence), float64(f.Energy.Prediction),
	}
}

func newForecastReport(p predict.Prediction) forecastReport {
	return forecastReport{p.Blocks, p.Rounds, newBandReport(p.Linear), newBandReport(p.ByRounds), newBandReport(p.Mixed), p.Warnings}
}

func newEvaluationReport(v *predict.Evaluation) *evaluationReport {
	if v == nil {
		return nil
	}
	score := func(s predict.Score) scoreReport {
		return scoreReport{s.Time, s.Energy, s.TimeHit, s.EnergyHit}
	}
	out := &evaluationReport{Linear: score(v.Linear), ByRounds: score(v.ByRounds), Mixed: score(v.Mixed)}
	for _, p := range v.Points {
		out.Points = append(out.Points, scoredReport{p.Point, newForecastReport(p.Prediction)})
	}
	return out
}

func (p *prediction) report(db string) predictionReport {
	r := predictionReport{
		Database: db, Name: p.Name, Version: p.Version, predictionContent: p.predictionContent, Tasks: p.Tasks,
		SpeedFlops: p.Round.Speed(p.flopsPerBlock()), FlopsPerRound: p.flopsPerBlock() * float64(p.Round.Blocks),
		Doubts: p.Doubts, Evaluation: newEvaluationReport(p.evaluation),
	}
	if !p.Made.IsZero() {
		r.Made = p.Made.UTC().Format(time.RFC3339)
	}
	return r
}

// showPrediction prints a model, and draws it where svg names a file.
func (a *app) showPrediction(p *prediction, svg string) error {
	r := p.report(a.db)
	if svg != "" {
		if err := writeFile(svg, p.writeSVG); err != nil {
			return err
		}
		r.Picture = svg
	}
	if a.json {
		return a.printJSON(r)
	}
	p.render(a.out)
	p.plot(a.out)
	if svg != "" {
		fmt.Fprintln(a.out, "\nDrawn into", svg)
	}
	return nil
}

func (p *prediction) render(w io.Writer) {
	title := p.Name
	if p.Version > 0 {
		title = fmt.Sprintf("%s@%d", p.Name, p.Version)
	}
	fmt.Fprintf(w, "Prediction %s", title)
	if p.GPU != "" {
		fmt.Fprintf(w, "  on %s", p.GPU)
	}
	o, q := p.Options, p.Parameters
	fmt.Fprintf(w, "\n  from     %d points of %s blocks, %s weights\n", len(p.Points), blocksText(p.Points), o.Weights)
	fmt.Fprintf(w, "  time     %v·NB + %v   (± %v, ± %v at %.3g %%)\n", q.PerBlock, q.Start, q.UPerBlock, q.UStart, 100*o.Level)
	fmt.Fprintf(w, "  energy   %v·NB + %v·T   (± %v)\n", q.Block, o.Idle, q.UBlock)
	how := ""
	if p.Fitted {
		how = ", fitted from the steps of the times"
	}
	fmt.Fprintf(w, "  rounds   of %d blocks: %d multiprocessors with %d resident%s\n", p.Round.Blocks, o.SMs, o.Resident, how)
	fmt.Fprintf(w, "           %v and %v each, at %v\n", p.Round.Time, p.Round.Energy, p.Round.Power)
	if o.Weights == predict.Stated {
		fmt.Fprintf(w, "  fit      residuals as large with a probability of %.2g (time) and %.2g (energy) under the stated uncertainties\n", q.PTime, q.PEnergy)
	}
	for _, d := range p.Doubts {
		fmt.Fprintf(w, "  note     %s\n", d)
	}
	if p.evaluation != nil {
		fmt.Fprintf(w, "\nPredicted, and not calibrated on:\n")
		renderEvaluation(w, p.evaluation)
	}
}

func renderEvaluation(w io.Writer, v *predict.Evaluation) {
	t := newTable(w)
	t.AppendHeader([]any{"blocks", "rounds", "time", "by the line", "by rounds", "energy", "by the line", "by rounds", "mixed"})
	off := func(measured, predicted float64) string {
		e := 100 * (predicted - measured) / measured
		if math.Abs(e) < 1e-9 { // rounding
			e = 0
		}
		return percent(e)
	}
	for _, p := range v.Points {
		e, s := float64(p.Energy), float64(p.Time)
		t.AppendRow([]any{
			p.Point.Blocks, p.Rounds, p.Time, off(s, float64(p.Linear.Time.Value)), off(s, float64(p.ByRounds.Time.Value)),
			p.Energy, off(e, float64(p.Linear.Energy.Value)), off(e, float64(p.ByRounds.Energy.Value)), off(e, float64(p.Mixed.Energy.Value)),
		})
	}
	t.Render()
	fmt.Fprintln(w)
	t = newTable(w)
	t.AppendHeader([]any{"error (%)", "worst", "best", "average", "mean with sign", "in the band"})
	n := len(v.Points)
	for _, r := range []struct {
		name string
		e    predict.Errors
		hits int
	}{
		{"time by the line", v.Linear.Time, v.Linear.TimeHit},
		{"time by rounds", v.ByRounds.Time, v.ByRounds.TimeHit},
		{"energy by the line", v.Linear.Energy, v.Linear.EnergyHit},
		{"energy by rounds", v.ByRounds.Energy, v.ByRounds.EnergyHit},
		{"energy, mixed", v.Mixed.Energy, v.Mixed.EnergyHit},
	} {
		f := func(v float64) string {
			if math.Abs(v) < 1e-9 {
				v = 0
			}
			return fmt.Sprintf("%.3g", v)
		}
		t.AppendRow([]any{r.name, f(r.e.Worst), f(r.e.Best), f(r.e.Average), f(r.e.Mean), fmt.Sprintf("%d of %d", r.hits, n)})
	}
	t.Render()
}

// bandText writes a value with a half width.
func bandText[T measure.Seconds | measure.Joule](b predict.Band[T]) string {
	return fmt.Sprintf("%v ± %v", b.Value, b.Prediction)
}
