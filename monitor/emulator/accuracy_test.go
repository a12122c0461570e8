package emulator_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/meter"
)

// step100 is a board of one rail whose markers step from 100 W to 200 W.
func step100(seed uint64) board.Config {
	return board.Config{
		Seed:   seed,
		Levels: board.Levels{Idle: 30, ActiveIdle: 95, Sleep: 100, Full: 200},
		Rails:  []board.RailConfig{{Name: "aux_12v_1", Role: measure.RolePSU, Open: 12, Source: 0.005, Share: 1}},
	}
}

// miss is the time error of one marker and how that compares with its own U.
type miss struct {
	t, u float64
	err  error
}

// source is a meter that tells the device time of a board instant.
type source interface {
	meter.Source
	DeviceTime(at time.Duration) measure.Seconds
}

// timing plays one start marker and returns the error of the time found.
func timing(seed uint64, b *board.Board, s source, spec marker.Spec, block int) miss {
	rng := rand.New(rand.NewPCG(seed, 0x74696d65))
	lead := 4*spec.Chip.Duration() + time.Duration(rng.Int64N(int64(spec.Chip.Duration())))
	h := &hostClock{rng: rng}
	edges, end, err := lay(b, h, spec, marker.Start, s.Elapsed()+lead)
	if err != nil {
		return miss{err: err}
	}
	truth := s.DeviceTime(measure.Seconds(edges[spec.CodeStart()].host).Duration())
	setup := s.Setup()
	d, err := marker.NewDetector(spec, &setup)
	if err != nil {
		return miss{err: err}
	}
	var blk measure.Block
	// The detector wants to see the code's sidelobes before it reports.
	for until := end + spec.Duration().Duration(); s.Elapsed() < until; {
		s.Next(&blk, block)
		if err := d.Push(&blk); err != nil {
			return miss{err: err}
		}
	}
	if err := d.Finish(); err != nil {
		return miss{err: err}
	}
	if f := d.Found(); len(f) == 1 && f[0].Kind == marker.Start {
		return miss{t: float64(f[0].T - truth), u: float64(f[0].U)}
	}
	return miss{err: fmt.Errorf("seed %d: %w: %+v", seed, errNotFound, d.Found())}
}

var errNotFound = errors.New("not exactly the one start marker was found")

// rmsOf fails the test when the rms time error is over goal, a marker was
// missed, or its stated uncertainty is too small.
func rmsOf(t *testing.T, outs []miss, goal float64) {
	t.Helper()
	var sum, bias, within float64
	for _, o := range outs {
		if o.err != nil {
			t.Error(o.err)
			continue
		}
		sum += o.t * o.t
		bias += o.t
		if math.Abs(o.t) <= 2*o.u {
			within++
		}
	}
	n := float64(len(outs))
	rms := math.Sqrt(sum / n)
	t.Logf("%.3g µs rms, %+.3g µs mean, %.0f %% within 2 u (n = %d)", rms*1e6, bias/n*1e6, 100*within/n, len(outs))
	if raceEnabled {
		return
	}
	if rms > goal {
		t.Errorf("marker time error %.3g µs rms, goal %.3g µs", rms*1e6, goal*1e6)
	}
	if within < 0.9*n {
		t.Errorf("%.0f %% within 2 u, want 90 %%", 100*within/n)
	}
}

func TestMarkerTimingOnTheBoard(t *testing.T) {
	for _, c := range []struct {
		name  string
		noise measure.Watt
		goal  float64
		seeds int
	}{{"2 W of noise", 2, 5e-6, 200}, {"100 W of noise, 0 dB", 100, 200e-6, 120}} {
		t.Run(c.name, func(t *testing.T) {
			rmsOf(t, each(c.seeds, func(seed uint64) miss {
				b, err := board.New(step100(seed))
				if err != nil {
					return miss{err: err}
				}
				s, err := meter.NewSampler(b, meter.Config{
					Seed: seed, Rate: 4800, CurrentRange: 100, Draw: true,
					Spread: meter.Spread{NoiseI: measure.Ampere(c.noise / 12), UClock: 50e-6, ClockOffsetRange: time.Millisecond},
				})
				if err != nil {
					return miss{err: err}
				}
				return timing(seed, b, s, marker.FastProfile(4800, uint32(seed)), 256)
			}), c.goal)
		})
	}
}

func TestMarkerTimingOfSlowSensors(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   meter.SlowConfig
		goal  float64
		seeds int
	}{
		{"100 ms / 25 ms", meter.NVML100of25, 1e-3, 40},
		{"20 ms / 10 ms", meter.NVML20of10, 1e-3, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			rmsOf(t, each(c.seeds, func(seed uint64) miss {
				b, err := board.New(step100(seed))
				if err != nil {
					return miss{err: err}
				}
				cfg := c.cfg
				cfg.Seed, cfg.Noise, cfg.Jitter = seed, 0.5, 2*time.Millisecond
				s, err := meter.NewSlow(b, cfg)
				if err != nil {
					return miss{err: err}
				}
				spec := marker.SensorProfile(measure.SecondsOf(cfg.Update), uint32(seed)&15)
				return timing(seed, b, s, spec, 64)
			}), c.goal)
		})
	}
}
