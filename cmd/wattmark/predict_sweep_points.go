package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"wattmark/analysis/predict"
	"wattmark/hostagent"
	"wattmark/hostagent/methods"
	"wattmark/hostagent/sweep"
	"wattmark/measure"
	"wattmark/store"
)

// sweepKernels are the launches for the task, the rests among them.
func sweepKernels(o *sweep.Outcome) (out []hostagent.Kernel) {
	if o == nil {
		return nil
	}
	for _, l := range o.Launches {
		name := fmt.Sprintf("%s,blocks=%d", o.Kernel, l.Blocks)
		if l.Blocks == 0 {
			name = "rest"
		}
		out = append(out, hostagent.Kernel{Name: name, Span: l.Span})
	}
	return out
}

// sweepPoints makes points of launches, and the idle power of the rests, with the
// standard uncertainty of their mean. It counts the launches that were too short
// for the method.
func sweepPoints(o *sweep.Outcome, method string, meter []measure.Watt) (points []predict.Point, idle [2]measure.Watt, silent int, err error) {
	var rests []float64
	for i, l := range o.Launches {
		e, ok := l.Energy[methods.Method(method)]
		if method == byMeter {
			e, ok = measure.Joule(float64(meter[i])*float64(l.Time())), !math.IsNaN(float64(meter[i]))
		}
		switch {
		case !ok:
			silent++
			continue
		case l.Blocks == 0:
			rests = append(rests, float64(e)/float64(l.Time()))
			continue
		}
		points = append(points, predict.Point{Blocks: l.Blocks, Time: l.Time(), Energy: e, From: fmt.Sprintf("pass %d, %d blocks", l.Pass+1, l.Blocks)})
	}
	if len(rests) != 2 {
		return nil, idle, silent, fmt.Errorf("%s says nothing of the GPU at rest: make --idle longer, or take another --method", method)
	}
	// Of two values half their difference is the standard deviation of the mean.
	return points, [2]measure.Watt{measure.Watt((rests[0] + rests[1]) / 2), measure.Watt(math.Abs(rests[0]-rests[1]) / 2)}, silent, nil
}

func writePoints(w io.Writer, o *sweep.Outcome, method string, points []predict.Point, idle [2]measure.Watt) error {
	_, err := fmt.Fprintf(w, "# %s on %s by %s: %d multiprocessors with %d resident blocks, %d turns a block; idle %.3f W, standard uncertainty %.3f W\nkernel,blocks,time_s,energy_j\n",
		o.Kernel, o.GPU.Name, method, o.SMs, o.Resident, o.Loops, float64(idle[0]), float64(idle[1]))
	for _, p := range points {
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s,%d,%.9g,%.9g\n", o.Kernel, p.Blocks, float64(p.Time), float64(p.Energy))
	}
	return err
}

// sweepPredict calibrates on some sizes of a sweep, and predicts the others.
func (a *app) sweepPredict(ctx context.Context, f predictSweepFlags, o *sweep.Outcome, points []predict.Point, idle [2]measure.Watt, tasks []store.TaskID) error {
	resident := f.resident
	if resident == 0 {
		resident = o.Resident
	}
	use := f.use
	if len(use) == 0 {
		r := o.SMs * resident
		use = []string{fmt.Sprint(r), fmt.Sprint(2 * r), fmt.Sprint(4 * r)}
	}
	fit, others, err := (&predictFlags{use: use}).split(points)
	if err != nil {
		return err
	}
	c := predictionContent{
		Kernel: string(o.Kernel), GPU: o.GPU.Name, Points: fit, Others: others, FlopsPerBlock: o.Kernel.Flops() * float64(o.Loops),
		Options: predict.Options{Idle: idle[0], UIdle: idle[1], SMs: o.SMs, Resident: resident},
	}
	p, err := c.model(firstOf(f.name, f.kernel))
	if err != nil {
		return err
	}
	p.Doubts = predict.Review(fit, c.Options)
	if o.GPU.Simulated {
		p.Doubts = append(p.Doubts, "the GPU is simulated: its blocks draw what they were made to draw")
	}
	if held := throttled(o); held != "" {
		p.Doubts = append(p.Doubts, held)
	}
	if err := a.storePrediction(ctx, p, tasks); err != nil {
		return err
	}
	return a.showPrediction(p, f.svg)
}

// throttled says what held the clocks down.
func throttled(o *sweep.Outcome) string {
	n, by := 0, map[string]bool{}
	for _, l := range o.Launches {
		if len(l.Throttled) > 0 {
			n++
		}
		for _, t := range l.Throttled {
			by[t] = true
		}
	}
	if n == 0 {
		return ""
	}
	var names []string
	for t := range by {
		names = append(names, t)
	}
	slices.Sort(names)
	return fmt.Sprintf("in %d launches the clocks were held down by %s", n, strings.Join(names, ", "))
}
