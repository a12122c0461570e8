package simgrid

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"

	"wattmark/measure"
)

// Source is the C++ program that runs rounds on SimGrid: rounds PLATFORM FLOPS
// ROUNDS REST. It links against libsimgrid alone.
//
//go:embed program/rounds.cpp
var Source []byte

// MostRounds bounds a simulation: SimGrid executes half a million rounds a second.
const MostRounds = 5_000_000

// Args are the program's arguments.
func Args(platform string, flops float64, rounds uint64, rest measure.Seconds) ([]string, error) {
	switch {
	case !(flops > 0) || math.IsInf(flops, 0):
		return nil, fmt.Errorf("%w: %v flop a round: they must be positive and finite", ErrPlatform, flops)
	case rounds == 0 || rounds > MostRounds:
		return nil, fmt.Errorf("%w: %d rounds: SimGrid runs 1 to %d here", ErrPlatform, rounds, MostRounds)
	case !(rest >= 0) || math.IsInf(float64(rest), 0):
		return nil, fmt.Errorf("%w: a rest of %v s: it must be finite and not negative", ErrPlatform, float64(rest))
	}
	return []string{platform, number(flops), strconv.FormatUint(rounds, 10), number(float64(rest))}, nil
}

// Outcome is what SimGrid says: time and energy when the rounds had ended, and
// after the rest.
type Outcome struct {
	Version            string
	Time, RestTime     measure.Seconds
	Energy, RestEnergy measure.Joule
}

// ParseOutcome reads what the program wrote.
func ParseOutcome(text string) (o Outcome, err error) {
	seen := 0
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[0] == "simgrid":
			o.Version = f[1]
		case len(f) == 3 && f[0] == "rounds":
			o.Time, o.Energy, err = pair(f)
		case len(f) == 3 && f[0] == "rest":
			o.RestTime, o.RestEnergy, err = pair(f)
		default:
			continue
		}
		if err != nil {
			return o, err
		}
		seen++
	}
	if seen != 3 {
		return o, fmt.Errorf("%w: the simulation wrote %q", ErrPlatform, text)
	}
	return o, nil
}

func pair(f []string) (measure.Seconds, measure.Joule, error) {
	t, err := strconv.ParseFloat(f[1], 64)
	if err == nil {
		var e float64
		if e, err = strconv.ParseFloat(f[2], 64); err == nil && !math.IsNaN(t+e) && !math.IsInf(t+e, 0) {
			return measure.Seconds(t), measure.Joule(e), nil
		}
	}
	return 0, 0, fmt.Errorf("%w: the simulation wrote %q: %v", ErrPlatform, strings.Join(f, " "), err)
}
