package measurement

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// ErrSelection: the selector names no GPU, or one that cannot be measured.
var ErrSelection = errors.New("no such GPUs")

// AllGPUs selects every GPU that programs see.
const AllGPUs = "all"

// LocateGPUs is FindGPUs without a call to the driver: from NVML and the environment. ok is
// false where only the driver knows which GPUs are meant.
func LocateGPUs(list string) (out []gpu.Info, ok bool, err error) {
	cards, err := nvml.List()
	if err != nil {
		return nil, false, nil // without NVML nothing is known
	}
	return locateGPUs(list, cards, os.LookupEnv)
}

// locateGPUs is LocateGPUs with the cards and the environment. An index in the list needs
// CUDA's order, which is known only where all cards are alike or the order is by bus id.
func locateGPUs(list string, cards []nvml.Card, env func(string) (string, bool)) ([]gpu.Info, bool, error) {
	seen, ordered, ok := visibleGPUs(cards, env)
	index := func(name string) bool {
		_, err := strconv.Atoi(strings.TrimSpace(name))
		return err == nil
	}
	if !ok || !ordered && slices.ContainsFunc(strings.Split(list, ","), index) {
		return nil, false, nil
	}
	out, err := SelectGPUs(list, seen, cards)
	return out, err == nil, err
}

// visibleGPUs returns the GPUs that programs see. ordered: they are in CUDA's order, which
// is by speed unless CUDA_DEVICE_ORDER is PCI_BUS_ID. ok is false where only the driver
// knows which they are.
func visibleGPUs(cards []nvml.Card, env func(string) (string, bool)) (out []gpu.Info, ordered, ok bool) {
	order, _ := env("CUDA_DEVICE_ORDER")
	ordered = order == "PCI_BUS_ID" || !slices.ContainsFunc(cards,
		func(c nvml.Card) bool { return c.Name != cards[0].Name })
	if slices.ContainsFunc(cards, func(c nvml.Card) bool { return c.Cut }) {
		return nil, false, false
	}
	named, restricted := env("CUDA_VISIBLE_DEVICES")
	if !restricted {
		return lists.Map(cards, func(c nvml.Card) gpu.Info { return c.Info }), ordered, true
	}
	// An entry that is neither an index nor the begin of a UUID here is left to the driver.
	byUUID := true
	for _, name := range strings.Split(named, ",") {
		name = strings.TrimSpace(name)
		at, err := strconv.Atoi(name)
		index := err == nil
		if !index {
			at = slices.IndexFunc(cards, func(c nvml.Card) bool {
				return name != "" && strings.HasPrefix(strings.ToUpper(c.UUID), strings.ToUpper(name))
			})
		}
		if at < 0 || at >= len(cards) || index && !ordered {
			return nil, false, false
		}
		byUUID, out = byUUID && !index, append(out, cards[at].Info)
	}
	return out, ordered || byUUID, true
}

// FindGPUs returns the GPUs of this machine that a list names: "all", or indices,
// UUIDs and PCI bus ids with commas between them. An index counts as CUDA does,
// under CUDA_VISIBLE_DEVICES.
func FindGPUs(list string) ([]gpu.Info, error) {
	visible, err := cuda.List()
	if err != nil {
		return nil, err
	}
	cards, _ := nvml.List() // without NVML less is known
	return SelectGPUs(list, visible, cards)
}

// WholeGPU refuses a GPU that NVML reports as cut into MIG devices, with gpu.ErrMIG.
func WholeGPU(card gpu.Info) error {
	cards, _ := nvml.List()
	return wholeGPU(card, cards)
}

// SelectGPUs returns the GPUs that a list names among those that programs see; cards are
// those of the machine, as far as NVML knows them. Errors wrap ErrSelection or gpu.ErrMIG.
func SelectGPUs(list string, visible []gpu.Info, cards []nvml.Card) ([]gpu.Info, error) {
	out, names := []gpu.Info{}, strings.Split(list, ",")
	// A GPU may be named once only, by whichever of its names.
	by := map[string]string{} // UUID to the name that it was picked by
	for _, name := range names {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return nil, fmt.Errorf("%w: %q has an empty entry: want all, or indices, UUIDs or PCI bus ids with commas "+
				"between them", ErrSelection, list)
		case strings.EqualFold(name, AllGPUs) && len(names) > 1:
			return nil, fmt.Errorf("%w: %q: all stands alone", ErrSelection, list)
		case strings.EqualFold(name, AllGPUs):
			out = append(out, visible...)
			continue
		}
		g, err := pickGPU(name, visible, cards)
		if err != nil {
			return nil, err
		}
		if first, twice := by[g.UUID]; twice {
			return nil, fmt.Errorf("%w: %s and %s are one GPU (%s): name it once", ErrSelection, first, name, g.UUID)
		}
		by[g.UUID] = name
		out = append(out, g)
	}
	for _, g := range out {
		if err := wholeGPU(g, cards); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pickGPU returns the GPU of one entry of a list: an index among the visible ones, a UUID or
// a PCI bus id. The error distinguishes a GPU that CUDA_VISIBLE_DEVICES hides.
func pickGPU(name string, visible []gpu.Info, cards []nvml.Card) (gpu.Info, error) {
	if gpu.NamesMIG(name) {
		return gpu.Info{}, fmt.Errorf("%s: %w", name, gpu.ErrMIG)
	}
	if i, err := strconv.Atoi(name); err == nil {
		if i < 0 || i >= len(visible) {
			return gpu.Info{}, fmt.Errorf("%w: index %d; CUDA sees %s", ErrSelection, i, describeGPUs(visible))
		}
		return visible[i], nil
	}
	if !strings.HasPrefix(strings.ToUpper(name), "GPU-") && !strings.Contains(name, ":") {
		return gpu.Info{}, fmt.Errorf("%w: %q: want all, an index, a UUID (GPU-…) or a PCI bus id (0000:65:00.0)",
			ErrSelection, name)
	}
	for _, g := range visible {
		if gpu.SameID(name, g.UUID) || gpu.SameID(name, g.PCIBusID) {
			return g, nil
		}
	}
	for _, c := range cards {
		if gpu.SameID(name, c.UUID) || gpu.SameID(name, c.PCIBusID) {
			if c.Cut {
				return gpu.Info{}, fmt.Errorf("%s (%s): %w", c.UUID, c.Name, gpu.ErrMIG)
			}
			return gpu.Info{}, fmt.Errorf("%w: %s is in this machine, and hidden from programs: look at "+
				"CUDA_VISIBLE_DEVICES; CUDA sees %s", ErrSelection, name, describeGPUs(visible))
		}
	}
	return gpu.Info{}, fmt.Errorf("%w: %s; CUDA sees %s", ErrSelection, name, describeGPUs(visible))
}

// wholeGPU refuses a MIG device of CUDA, and a card that NVML reports as cut.
func wholeGPU(g gpu.Info, cards []nvml.Card) error {
	if g.MIG() {
		return fmt.Errorf("%s: %w", g.Name, gpu.ErrMIG)
	}
	for _, c := range cards {
		if c.Cut && gpu.SameID(g.PCIBusID, c.PCIBusID) {
			return fmt.Errorf("%s (%s): %w", c.UUID, c.Name, gpu.ErrMIG)
		}
	}
	return nil
}

// describeGPUs lists GPUs for a person.
func describeGPUs(gpus []gpu.Info) string {
	var out []string
	for i, g := range gpus {
		out = append(out, fmt.Sprintf("%d: %s %s", i, g.Name, g.UUID))
	}
	return strings.Join(out, "; ")
}

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
// markers show, is the uncertainty of sudden steps; package measure lessens it for smoother ones. Launches of a name
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
