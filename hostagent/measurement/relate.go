package measurement

import (
	"errors"
	"fmt"
	"math"
	"time"

	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/measure/marker"
	"wattmark/store"
)

// HostSeconds is an instant on the host's wall clock as a clock fit counts it:
// from the fit's origin, a whole number of seconds since 1970.
func HostSeconds(f clock.Fit, t time.Time) measure.Seconds {
	return measure.SecondsOf(t.Sub(time.Unix(int64(f.Origin), 0)))
}

// HostTime is the inverse of HostSeconds.
func HostTime(f clock.Fit, s measure.Seconds) time.Time {
	return time.Unix(int64(f.Origin), 0).Add(s.Duration())
}

// kernelDelay is the standard uncertainty of the time between a kernel's time
// stamp and the power that follows it, where the instrument samples what is there.
const kernelDelay = 20e-6

// hostRate is the relative standard uncertainty of a host's clock that nobody
// disciplines: an ordinary quartz.
const hostRate = 50e-6

// ratePrior is how far the two clocks' rates may lie apart before the markers
// are seen, as a relative standard uncertainty: a meter's statement about its
// own clock is taken with a grain of salt, twice.
func ratePrior(tb measure.Timebase) float64 { return max(clock.DefaultURate, 2*tb.UTickHz) }

// offRate says what a meter's clock that runs faster or slower than its
// uncertainty allows does to the joules; empty where it keeps to it, or where the
// fit cannot tell.
func offRate(tb measure.Timebase, f *clock.Fit) string {
	if f == nil {
		return ""
	}
	off, allowed := f.B-1, 3*math.Hypot(tb.UTickHz, hostRate)
	if math.Abs(off)-2*math.Sqrt(f.VarB) <= allowed {
		return ""
	}
	return fmt.Sprintf("the meter's clock runs %+.0f ppm off the host's, where ±%.0f ppm are stated: its joules are off by as much; correct its tick rate",
		1e6*off, 1e6*tb.UTickHz)
}

// relate fits the clocks. An instrument that averages before each new value
// does not say where the average lies before its publication: half of its
// length is left to doubt.
func relate(setup *measure.Setup, played []store.Played, found []marker.Found) (*clock.Fit, error) {
	if len(played) == 0 {
		return nil, errors.New("no marker was played to its end")
	}
	first := played[0].At
	for _, p := range played {
		if p.At.Before(first) {
			first = p.At
		}
	}
	origin := first.Truncate(time.Second)
	u := math.Hypot(kernelDelay, float64(setup.Response.Window)/2)
	fit, err := clock.FitClock(observations(pairs(markersOf(played), found), origin), clock.Prior{
		Origin: measure.Seconds(origin.Unix()), UOffset: measure.Seconds(u), URate: ratePrior(setup.Timebase),
	})
	if err != nil {
		return nil, err
	}
	return &fit, nil
}
