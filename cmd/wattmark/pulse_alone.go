package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"gonum.org/v1/plot/plotter"

	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/methods"
	"wattmark/measure"
	"wattmark/store"
)

// pulseReport is what pulse prints where there is no meter.
type pulseReport struct {
	GPU       string         `json:"gpu"`
	Driver    string         `json:"driver,omitempty"`
	OnS       float64        `json:"on_s"`
	OffS      float64        `json:"off_s"`
	DurationS float64        `json:"duration_s"`
	Pulses    int            `json:"pulses"`
	Truth     string         `json:"truth"`
	TruthW    *float64       `json:"truth_w,omitempty"`
	Methods   []methodReport `json:"methods"`
	Picture   string         `json:"picture,omitempty"`
}

// settleAlone is how long the methods read before and after the work, for the plot
// and for the counter's next update.
const settleAlone = 300 * time.Millisecond

// pulseAlone measures without a meter: the truth is the energy counter.
func (a *app) pulseAlone(ctx context.Context, f pulseFlags, why string, gpu *foundGPU, work measurement.Work) error {
	if err := gpu.open(ctx); err != nil {
		return err
	}
	s, err := gpu.openSensor()
	if err != nil {
		return err
	}
	defer s.Close()
	if f.warmUp > 0 {
		if err := gpu.WarmUp(ctx, f.warmUp); err != nil {
			return err
		}
	}
	w := methods.New(s, f.options())
	kernels, err := watchWork(ctx, w, work)
	if err != nil {
		return err
	}
	of := hostagent.Span{Start: kernels[0].Span.Start, End: kernels[len(kernels)-1].Span.End}
	info := gpu.Info()
	r := &pulseReport{
		GPU: info.Name, Driver: info.Driver, OnS: f.on.Seconds(), OffS: f.off.Seconds(), DurationS: of.End.Sub(of.Start).Seconds(),
		Pulses: len(kernels), Truth: "the GPU's own energy counter over the whole time (" + why + ")",
	}
	results := w.Results(of)
	truth := counterTruth(results)
	if truth == nil {
		r.Truth = "none: the energy counter was not read or tells nothing, and no meter (" + why + ")"
	} else {
		r.TruthW = number(float64(truth.mean))
	}
	r.Methods = newMethodReports(results, truth)
	for i := range r.Methods {
		if m := &r.Methods[i]; truth != nil && m.Method == string(methods.Counter) {
			m.ErrorPct, m.Note = nil, joinNonEmpty("; ", "taken as the truth", m.Note)
		}
	}
	r.Picture = firstOf(f.svg, "pulse-"+of.Start.Local().Format("20060102-150405")+".svg")
	p := alonePicture(r, w.Traces(), of, truth)
	if err := writeFile(r.Picture, p.writeSVG); err != nil {
		return err
	}
	return a.printPulse(r)
}

// watchWork does the work under a watcher.
func watchWork(ctx context.Context, w *methods.Watcher, work measurement.Work) ([]hostagent.Kernel, error) {
	side, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(side)
	}()
	defer func() {
		cancel()
		<-done
	}()
	if err := pauseUntil(ctx, time.Now().Add(settleAlone)); err != nil {
		return nil, err
	}
	w.Begin()
	kernels, err := work(ctx)
	w.End()
	if err == nil && len(kernels) == 0 {
		err = errors.New("no kernel ran")
	}
	if err != nil {
		return nil, err
	}
	return kernels, pauseUntil(ctx, time.Now().Add(settleAlone))
}

// counterTruth is the counter's mean power; its uncertainty is not known.
func counterTruth(results []store.MethodResult) *truthful {
	for _, m := range results {
		if m.Method == string(methods.Counter) && !math.IsNaN(float64(m.Mean)) {
			return &truthful{mean: m.Mean, meter: measure.Estimate{U: measure.Joule(math.NaN())}, other: func(*store.MethodResult) string { return "" }}
		}
	}
	return nil
}

func alonePicture(r *pulseReport, traces []methods.Trace, of hostagent.Span, truth *truthful) *picture {
	p := &picture{
		title:  fmt.Sprintf("%g ms on, %g ms off on %s: power by software, no meter", 1e3*r.OnS, 1e3*r.OffS, r.GPU),
		length: measure.SecondsOf(of.End.Sub(of.Start)),
	}
	if truth != nil {
		mean := float64(truth.mean)
		p.lines = append(p.lines, pictureLine{"counter's mean", looks["truth"], plotter.XYs{{X: 0, Y: mean}, {X: float64(p.length), Y: mean}}})
	}
	p.addTraces(traces, func(pt methods.Point) measure.Seconds { return measure.SecondsOf(pt.At.Sub(of.Start)) })
	return p
}

func (a *app) printPulse(r *pulseReport) error {
	if a.json {
		return a.printJSON(r)
	}
	fmt.Fprintf(a.out, "%d pulses of %g ms, %g ms apart, on %s\n", r.Pulses, 1e3*r.OnS, 1e3*r.OffS, joinNonEmpty(", driver ", r.GPU, r.Driver))
	fmt.Fprintf(a.out, "  truth    %s\n", r.Truth)
	if r.TruthW != nil {
		fmt.Fprintf(a.out, "           %.1f W; what it is worth only a meter tells\n", *r.TruthW)
	}
	against := "the energy counter"
	if r.TruthW == nil {
		against = "nothing"
	}
	renderMethods(a.out, r.Methods, against)
	fmt.Fprintln(a.out, "\nDrawn into", r.Picture)
	return nil
}
