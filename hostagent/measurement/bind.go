package measurement

import (
	"errors"
	"fmt"
	"strings"

	"wattmark/hostagent"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
)

// ErrWrongGPU: the bench measures another GPU than the one that does the work,
// or does not say which.
var ErrWrongGPU = errors.New("the bench and the GPU do not belong together")

// sayGPU tells an operator how to bind a bench.
const sayGPU = "write gpu: GPU-… (nvidia-smi -L) into its bench file"

// checkGPU holds what a bench says it measures against the GPU that is to do
// the work. A bench that says nothing is believed unless others are measured too.
func checkGPU(b *monitorclient.Bench, address string, gpu hostagent.Info, mustSay bool) error {
	switch {
	case b.GPU == "" && mustSay:
		return fmt.Errorf("%w: bench %s at %s does not say which GPU it measures: %s", ErrWrongGPU, b.Name, address, sayGPU)
	case b.GPU == "" || measure.SameGPU(b.GPU, gpu.UUID):
		return nil
	}
	return fmt.Errorf("%w: bench %s at %s measures %s, and the work is for %s (%s): name that GPU, or the monitor of this one",
		ErrWrongGPU, b.Name, address, b.GPU, gpu.UUID, gpu.Name)
}

// MonitorBench is a monitor that was asked for its bench. Err is not nil where
// it did not answer.
type MonitorBench struct {
	Address string
	Bench   monitorclient.Bench
	Err     error
}

// Assignment says which monitor measures a GPU; Monitor is -1 where none does,
// and Missing then says why.
type Assignment struct {
	Monitor int
	Missing error
}

// Assign gives each GPU the monitor whose bench measures it, in the order of the
// GPUs. A bench that does not say which GPU it measures serves where there is
// one GPU and one monitor. A GPU whose monitor may be one that does not answer
// is missing; all else that does not fit is refused with ErrWrongGPU, or with
// the monitors' own errors when none answers.
func Assign(gpus []hostagent.Info, monitors []MonitorBench) ([]Assignment, error) {
	out := make([]Assignment, len(gpus))
	for i := range out {
		out[i].Monitor = -1
	}
	var silent []error
	for k, m := range monitors {
		if m.Err != nil {
			silent = append(silent, m.Err)
			continue
		}
		i, err := assign(gpus, m, len(gpus) > 1 || len(monitors) > 1)
		if err != nil {
			return nil, err
		}
		if other := out[i].Monitor; other >= 0 {
			return nil, fmt.Errorf("%w: the benches at %s and %s both say that they measure %s: leave one out of --monitor",
				ErrWrongGPU, monitors[other].Address, m.Address, gpus[i].UUID)
		}
		out[i].Monitor = k
	}
	if len(silent) == len(monitors) {
		return nil, errors.Join(silent...)
	}
	return out, unmeasured(gpus, out, silent)
}

// assign finds the GPU that a bench measures.
func assign(gpus []hostagent.Info, m MonitorBench, mustSay bool) (int, error) {
	if m.Bench.GPU == "" && mustSay {
		return 0, checkGPU(&m.Bench, m.Address, hostagent.Info{}, true)
	}
	for i, g := range gpus {
		if m.Bench.GPU == "" || measure.SameGPU(m.Bench.GPU, g.UUID) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: bench %s at %s measures %s, which is not among the GPUs to be measured (%s)",
		ErrWrongGPU, m.Bench.Name, m.Address, m.Bench.GPU, uuids(gpus))
}

// unmeasured says why GPUs are without a monitor, or refuses them.
func unmeasured(gpus []hostagent.Info, out []Assignment, silent []error) error {
	for i := range out {
		switch {
		case out[i].Monitor >= 0:
		case len(silent) == 0:
			return fmt.Errorf("%w: no bench measures %s (%s): add its monitor to --monitor, or leave the GPU out of --gpus",
				ErrWrongGPU, gpus[i].UUID, gpus[i].Name)
		default:
			out[i].Missing = fmt.Errorf("no bench that answers measures this GPU: %w", errors.Join(silent...))
		}
	}
	return nil
}

func uuids(gpus []hostagent.Info) string {
	var out []string
	for _, g := range gpus {
		out = append(out, g.UUID)
	}
	return strings.Join(out, ", ")
}
