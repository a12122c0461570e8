package gpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Train is a carrier cut into slices, with a kernel launched between them. All of
// it is queued at once, so that slices and kernels follow each other as closely
// as the GPU can.
type Train struct {
	Carrier Benchmark
	// Slice is how long each slice of the carrier runs, plus up to Dither, evenly
	// distributed: launches then do not keep step with a meter's scans.
	Slice, Dither time.Duration
	Seed          uint64
	Insert        Insert
	Phases        []TrainPhase
	// Starts asks for the instant of every launch of the kernel.
	Starts bool
}

// Insert is the kernel: from a PTX file, or a built-in benchmark for a time.
type Insert struct {
	Name      string
	PTX       *PTXLaunch
	Benchmark Benchmark
	Length    time.Duration
}

// TrainPhase is a stretch of a train.
type TrainPhase struct {
	// Slices of the carrier; with Kernel, one launch follows each.
	Slices int
	Kernel bool
	// Bare launches of the kernel alone, back to back, in place of slices.
	Bare int
}

// Ran is a train as it ran, on the host's wall clock.
type Ran struct{ Phases []RanPhase }

// RanPhase is a phase as it ran. It ends where the next one begins.
type RanPhase struct {
	Span     Span
	Carrier  time.Duration // of the slices alone, without the gaps between them
	Inserted int
	Starts   []time.Time // of the launches, where they were asked for
}

// TrainRunner is a Device that can run trains.
type TrainRunner interface {
	RunTrain(ctx context.Context, t Train) (Ran, error)
}

// MaxSlices bounds the slices of a train: their time stamps are kept on the GPU.
const MaxSlices = 2_000_000

// Validate reports a train that cannot run.
func (t *Train) Validate() error {
	slices := 0
	for i, p := range t.Phases {
		if p.Slices < 0 || p.Bare < 0 || (p.Slices == 0) == (p.Bare == 0) {
			return fmt.Errorf("train: phase %d: %d slices and %d bare launches: want one of the two", i+1, p.Slices,
				p.Bare)
		}
		slices += p.Slices + p.Bare
	}
	switch {
	case slices == 0:
		return fmt.Errorf("train: nothing to run")
	case slices > MaxSlices:
		return fmt.Errorf("train: %d slices: at most %d; make them longer", slices, MaxSlices)
	case t.Slice <= 0 && slices > t.bare() || t.Dither < 0:
		return fmt.Errorf("train: slices of %v with a dither of %v: must be positive", t.Slice, t.Dither)
	case t.Insert.PTX == nil && t.Insert.Benchmark != "" && t.Insert.Length <= 0:
		return fmt.Errorf("train: kernel %s for %v: the time must be positive", t.Insert.Benchmark, t.Insert.Length)
	}
	return nil
}

// bare counts the bare launches of all phases.
func (t *Train) bare() (n int) {
	for _, p := range t.Phases {
		n += p.Bare
	}
	return n
}

// Lengths returns how long each slice runs, in the order of the phases.
func (t *Train) Lengths() []time.Duration {
	rng := rand.New(rand.NewPCG(t.Seed, 0x7472_6169))
	var out []time.Duration
	for _, p := range t.Phases {
		for range p.Slices {
			d := t.Slice
			if t.Dither > 0 {
				d += time.Duration(rng.Int64N(int64(t.Dither) + 1))
			}
			out = append(out, d)
		}
	}
	return out
}

// MixRunner is a Device that can run a kernel of a chosen arithmetic intensity.
type MixRunner interface {
	// RunMix streams memory for length and does rounds of arithmetic on each element:
	// rounds / 2 flop (single precision, a multiply-add is two) a byte.
	RunMix(ctx context.Context, rounds uint32, length time.Duration) (MixRan, error)
}

// MixRan is the work that a mix did.
type MixRan struct {
	Kernel       Kernel
	Flops, Bytes float64
}

// MixIntensity is the arithmetic intensity of so many rounds, in flop a byte.
func MixIntensity(rounds uint32) float64 { return float64(rounds) / 2 }
