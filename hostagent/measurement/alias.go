package measurement

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

const (
	// aliasNames is how many kernels' names, those of the longest time, are looked at one by one.
	aliasNames = 16
	// aliasDelays is how many delays between load and readings stand for all.
	aliasDelays = 32
	// aliasLeast is how many launches make a load that repeats.
	aliasLeast = 8
)

// aliased returns the standard uncertainty of a window's energy, in joules, by readings that keep step
// with the launches: a load that goes on and off near the scan rate, or a multiple of it, is read at much the
// same phase for long, so that the mean of the readings is not the mean of the load (Nyquist's criterion).
//
// The share of readings that fall into the pauses between launches is held against the pauses' share of the
// time. The delay of the readings behind the stamps counts as unknown; as the scans are evenly spaced, all
// delays within one scan stand for all. The root mean square over them, times the step of power that the
// markers show, is the uncertainty: a response of the card that is slower only lessens it. Launches of a name
// are looked at in the same way, with all others for a pause: kernels may differ in power. Powers beyond the
// markers' step, and loads that change within a kernel, are not in it.
//
// Where launches are not known, blind is true: the readings alone may show it.
func aliased(tb measure.Timebase, fit *clock.Fit, kernels []store.Kernel, b bounds) (u measure.Joule, blind bool) {
	if fit == nil || tb.Stamped || len(kernels) < aliasLeast || b.start == nil && b.stop == nil {
		return 0, true
	}
	var step measure.Watt
	for _, f := range []*marker.Found{b.start, b.stop} {
		if f != nil {
			step = max(step, f.Step)
		}
	}
	dt := float64(tb.Seconds(tb.TicksPerScan))
	launches := map[string][]phase{}
	times := map[string]float64{}
	var all []phase
	for _, k := range kernels {
		from, _ := fit.Meter(HostSeconds(*fit, k.Start))
		to, _ := fit.Meter(HostSeconds(*fit, k.End))
		x := phase{float64(from) / dt, float64(to) / dt}
		all = append(all, x)
		launches[k.Name] = append(launches[k.Name], x)
		times[k.Name] += x.to - x.from
	}
	worst := misread(pauses(all))
	if len(launches) > 1 {
		names := slices.SortedFunc(maps.Keys(launches), func(a, b string) int {
			return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(a, b))
		})
		for _, name := range names[:min(len(names), aliasNames)] {
			worst = max(worst, misread(pauses(launches[name])))
		}
	}
	return measure.Joule(worst * dt * float64(step)), false
}

// phase is a stretch of device time in scans.
type phase struct{ from, to float64 }

// pauses returns the stretches between launches in which none runs. It sorts the launches.
func pauses(launches []phase) (out []phase) {
	if len(launches) < aliasLeast {
		return nil
	}
	slices.SortFunc(launches, func(a, b phase) int { return cmp.Compare(a.from, b.from) })
	end := launches[0].to
	for _, x := range launches[1:] {
		if x.from > end {
			out = append(out, phase{end, x.from})
		}
		end = max(end, x.to)
	}
	return out
}

// misread returns by how many scans' time readings misjudge the pauses, rms over all delays.
func misread(pauses []phase) float64 {
	var squares float64
	for i := range aliasDelays {
		delay := (float64(i) + 0.5) / aliasDelays
		var off float64
		for _, p := range pauses {
			off += math.Ceil(p.to+delay) - math.Ceil(p.from+delay) - (p.to - p.from)
		}
		squares += off * off
	}
	return math.Sqrt(squares / aliasDelays)
}
