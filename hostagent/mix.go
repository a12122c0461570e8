package hostagent

import (
	"context"
	"time"
)

// MixRunner is a Device that can run a kernel of a chosen arithmetic intensity.
type MixRunner interface {
	// RunMix streams memory for length and does rounds of arithmetic on what it reads:
	// rounds / 2 flop (single precision, a multiply-add is two) a byte.
	RunMix(ctx context.Context, rounds uint32, length time.Duration) (MixRan, error)
}

// MixRan is what a mix did.
type MixRan struct {
	Kernel       Kernel
	Flops, Bytes float64
}

// MixIntensity is the arithmetic intensity of so many rounds, in flop a byte.
func MixIntensity(rounds uint32) float64 { return float64(rounds) / 2 }
