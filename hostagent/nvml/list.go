package nvml

import (
	"fmt"

	"wattmark/hostagent"
)

// Card is one GPU as NVML sees it, whatever CUDA_VISIBLE_DEVICES hides.
type Card struct {
	hostagent.Info
	// Cut says that the card is cut into MIG devices.
	Cut bool
}

// List returns all cards of the machine, by PCI bus id. It fails with
// ErrNoNVML where there is no library.
func List() ([]Card, error) {
	lib, err := load(libraries...)
	if err != nil {
		return nil, fmt.Errorf("nvml: list: %w", err)
	}
	return lib.list()
}

func (l *library) list() ([]Card, error) {
	if err := l.check("nvmlInit", l.Init()); err != nil {
		return nil, fmt.Errorf("nvml: list: %w", err)
	}
	defer l.Shutdown()
	n := new(uint32)
	if err := l.check("nvmlDeviceGetCount", l.Count(n)); err != nil {
		return nil, fmt.Errorf("nvml: list: %w", err)
	}
	out := make([]Card, *n)
	for i := range out {
		h := new(handle)
		if err := l.check("nvmlDeviceGetHandleByIndex", l.ByIndex(uint32(i), h)); err != nil {
			return nil, fmt.Errorf("nvml: list: GPU %d: %w", i, err)
		}
		d := Device{lib: l, h: *h}
		if err := d.identify(); err != nil {
			return nil, fmt.Errorf("nvml: list: GPU %d: %w", i, err)
		}
		out[i] = Card{d.info, l.cut(*h)}
	}
	return out, nil
}

// LibraryVersion is NVML's own version; empty where there is no library, or it
// does not tell.
func LibraryVersion() string {
	l, err := load(libraries...)
	if err != nil || l.NVMLVersion == nil || l.Init() != success {
		return ""
	}
	defer l.Shutdown()
	b := make([]byte, 96)
	if l.NVMLVersion(&b[0], uint32(len(b))) != success {
		return ""
	}
	return text(b)
}

// cut reports whether MIG is on. A card, or a library, that does not know of it
// is whole.
func (l *library) cut(h handle) bool {
	if l.MIGMode == nil {
		return false
	}
	now, next := new(uint32), new(uint32)
	return l.MIGMode(h, now, next) == success && *now == 1
}
