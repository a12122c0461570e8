// Package gpus finds the GPUs that a measurement names.
//
//	"all", "0,2", "GPU-…,GPU-…" ─▶ Select ◀─ cuda.List: what programs see
//	                                  ▲
//	                                  └──── nvml.List: what the machine has
package gpus

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"wattmark/hostagent"
	"wattmark/hostagent/cuda"
	"wattmark/hostagent/nvml"
)

// ErrSelection: what was named is not a set of GPUs that can be measured.
var ErrSelection = errors.New("no such GPUs")

// All selects every GPU that programs see.
const All = "all"

// Locate is Find without a call to the driver: by what NVML and the environment tell. ok is
// false where only the driver can tell which GPUs are meant.
func Locate(list string) (out []hostagent.Info, ok bool, err error) {
	cards, err := nvml.List()
	if err != nil {
		return nil, false, nil // without NVML nothing is known
	}
	return locate(list, cards, os.LookupEnv)
}

func locate(list string, cards []nvml.Card, env func(string) (string, bool)) ([]hostagent.Info, bool, error) {
	seen, ordered, ok := visible(cards, env)
	index := func(name string) bool {
		_, err := strconv.Atoi(strings.TrimSpace(name))
		return err == nil
	}
	if !ok || !ordered && slices.ContainsFunc(strings.Split(list, ","), index) {
		return nil, false, nil
	}
	out, err := Select(list, seen, cards)
	return out, err == nil, err
}

// visible are the GPUs that programs see. ordered says that they are in CUDA's order,
// which is that of their speed unless CUDA_DEVICE_ORDER says otherwise; ok is false where
// it takes the driver to tell which they are.
func visible(cards []nvml.Card, env func(string) (string, bool)) (out []hostagent.Info, ordered, ok bool) {
	order, _ := env("CUDA_DEVICE_ORDER")
	ordered = order == "PCI_BUS_ID" || !slices.ContainsFunc(cards, func(c nvml.Card) bool { return c.Name != cards[0].Name })
	if slices.ContainsFunc(cards, func(c nvml.Card) bool { return c.Cut }) {
		return nil, false, false
	}
	named, restricted := env("CUDA_VISIBLE_DEVICES")
	if !restricted {
		for _, c := range cards {
			out = append(out, c.Info)
		}
		return out, ordered, true
	}
	byUUID := true
	for _, name := range strings.Split(named, ",") {
		name = strings.TrimSpace(name)
		i, err := strconv.Atoi(name)
		if err == nil {
			byUUID = false
			if !ordered || i < 0 || i >= len(cards) {
				return nil, false, false
			}
			out = append(out, cards[i].Info)
			continue
		}
		at := slices.IndexFunc(cards, func(c nvml.Card) bool {
			return name != "" && strings.HasPrefix(strings.ToUpper(c.UUID), strings.ToUpper(name))
		})
		if at < 0 {
			return nil, false, false
		}
		out = append(out, cards[at].Info)
	}
	return out, ordered || byUUID, true
}

// Find returns the GPUs of this machine that a list names: "all", or indices,
// UUIDs and PCI bus ids with commas between them. An index counts as CUDA does,
// under CUDA_VISIBLE_DEVICES.
func Find(list string) ([]hostagent.Info, error) {
	visible, err := cuda.List()
	if err != nil {
		return nil, err
	}
	cards, _ := nvml.List() // without NVML less is known
	return Select(list, visible, cards)
}

// Whole refuses a GPU that is cut into MIG devices, as far as NVML tells.
func Whole(gpu hostagent.Info) error {
	cards, _ := nvml.List()
	return whole(gpu, cards)
}

// Select picks the GPUs that a list names out of those that programs see; cards
// are all of the machine, as far as NVML tells. Errors wrap ErrSelection, or
// hostagent.ErrMIG.
func Select(list string, visible []hostagent.Info, cards []nvml.Card) ([]hostagent.Info, error) {
	out, names := []hostagent.Info{}, strings.Split(list, ",")
	by := map[string]string{} // UUID to the name that it was picked by
	for _, name := range names {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return nil, fmt.Errorf("%w: %q has an empty entry: want all, or indices, UUIDs or PCI bus ids with commas between them", ErrSelection, list)
		case strings.EqualFold(name, All) && len(names) > 1:
			return nil, fmt.Errorf("%w: %q: all stands alone", ErrSelection, list)
		case strings.EqualFold(name, All):
			out = append(out, visible...)
			continue
		}
		g, err := pick(name, visible, cards)
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
		if err := whole(g, cards); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func pick(name string, visible []hostagent.Info, cards []nvml.Card) (hostagent.Info, error) {
	if hostagent.NamesMIG(name) {
		return hostagent.Info{}, fmt.Errorf("%s: %w", name, hostagent.ErrMIG)
	}
	if i, err := strconv.Atoi(name); err == nil {
		if i < 0 || i >= len(visible) {
			return hostagent.Info{}, fmt.Errorf("%w: index %d; CUDA sees %s", ErrSelection, i, describe(visible))
		}
		return visible[i], nil
	}
	if !strings.HasPrefix(strings.ToUpper(name), "GPU-") && !strings.Contains(name, ":") {
		return hostagent.Info{}, fmt.Errorf("%w: %q: want all, an index, a UUID (GPU-…) or a PCI bus id (0000:65:00.0)", ErrSelection, name)
	}
	for _, g := range visible {
		if hostagent.SameID(name, g.UUID) || hostagent.SameID(name, g.PCIBusID) {
			return g, nil
		}
	}
	for _, c := range cards {
		if hostagent.SameID(name, c.UUID) || hostagent.SameID(name, c.PCIBusID) {
			if c.Cut {
				return hostagent.Info{}, fmt.Errorf("%s (%s): %w", c.UUID, c.Name, hostagent.ErrMIG)
			}
			return hostagent.Info{}, fmt.Errorf("%w: %s is in this machine, and hidden from programs: look at CUDA_VISIBLE_DEVICES; CUDA sees %s", ErrSelection, name, describe(visible))
		}
	}
	return hostagent.Info{}, fmt.Errorf("%w: %s; CUDA sees %s", ErrSelection, name, describe(visible))
}

// whole refuses what CUDA calls a MIG device, and a card that NVML says is cut.
func whole(g hostagent.Info, cards []nvml.Card) error {
	if g.MIG() {
		return fmt.Errorf("%s: %w", g.Name, hostagent.ErrMIG)
	}
	for _, c := range cards {
		if c.Cut && hostagent.SameID(g.PCIBusID, c.PCIBusID) {
			return fmt.Errorf("%s (%s): %w", c.UUID, c.Name, hostagent.ErrMIG)
		}
	}
	return nil
}

// describe lists GPUs for a person.
func describe(gpus []hostagent.Info) string {
	var out []string
	for i, g := range gpus {
		out = append(out, fmt.Sprintf("%d: %s %s", i, g.Name, g.UUID))
	}
	return strings.Join(out, "; ")
}
