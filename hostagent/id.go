package hostagent

import (
	"errors"
	"regexp"
	"strings"
)

// ErrMIG: the GPU is cut into MIG devices. Its work and its markers would load a
// part of the card, and a meter sees the whole of it.
var ErrMIG = errors.New("a MIG device is a part of a card, and a meter sees the whole card: switch MIG off (nvidia-smi -i GPU -mig 0), or measure another GPU")

// NamesMIG reports whether a selector names a MIG device (MIG-…).
func NamesMIG(selector string) bool { return strings.HasPrefix(strings.ToUpper(selector), "MIG-") }

// migName is how the CUDA driver calls a MIG device: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
var migName = regexp.MustCompile(`\bMIG \d+[gc]\.`)

// MIG reports whether CUDA calls the GPU a MIG device.
func (i Info) MIG() bool { return migName.MatchString(i.Name) }

// SameID reports whether two UUIDs, or two PCI bus ids, are the same, however
// tools write them: in any case, and with the eight digits of domain that NVML
// writes where CUDA writes four and lspci none.
func SameID(a, b string) bool { return canonical(a) == canonical(b) }

func canonical(id string) string {
	id = strings.ToLower(id)
	if domain, rest, ok := strings.Cut(id, ":"); ok && strings.Count(rest, ":") == 1 {
		return strings.TrimPrefix(strings.TrimLeft(domain, "0")+":"+rest, ":")
	}
	return id
}
