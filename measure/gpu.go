package measure

import (
	"fmt"
	"regexp"
	"strings"
)

var gpuUUID = regexp.MustCompile(`^gpu-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// ParseGPUUUID reads the UUID of a GPU as nvidia-smi -L shows it, GPU-…, in any
// case, and returns it in one form. A MIG device is refused: a meter sees the
// whole card that it is a part of.
func ParseGPUUUID(s string) (string, error) {
	low := strings.ToLower(s)
	switch {
	case strings.HasPrefix(low, "mig-"):
		return "", fmt.Errorf("%q is a MIG device, a part of a card: a meter sees the whole card; name the card (GPU-…), with MIG off (nvidia-smi -i … -mig 0)", s)
	case !gpuUUID.MatchString(low):
		return "", fmt.Errorf("%q is not the UUID of a GPU: want GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, as nvidia-smi -L shows it", s)
	}
	return "GPU-" + low[len("gpu-"):], nil
}

// SameGPU reports whether two UUIDs name one GPU, however they are written.
func SameGPU(a, b string) bool { return a != "" && strings.EqualFold(a, b) }
