package nvml

import (
	"errors"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/hostagent/gpu"
)

func TestList(t *testing.T) {
	l := fake()
	shut := 0
	l.Shutdown = func() result { shut++; return success }
	got, err := l.list()
	if err != nil || len(got) != 1 || got[0].Cut || got[0].UUID != "GPU-1" || got[0].Name != "Fake H200" ||
		got[0].PCIBusID != "00000000:65:00.0" {
		t.Errorf("got %+v, %v", got, err)
	}
	for want, mode := range map[bool]func(handle, *uint32, *uint32) result{
		true:  func(_ handle, now, next *uint32) result { *now = 1; return success },
		false: func(handle, *uint32, *uint32) result { return notSupported },
	} {
		l.MIGMode = mode
		if got, err := l.list(); err != nil || got[0].Cut != want {
			t.Errorf("cut %v: got %+v, %v", want, got, err)
		}
	}
	l.Count = func(n *uint32) result { *n = 2; return success }
	if _, err := l.list(); !errors.Is(err, ErrNVML) || !strings.Contains(err.Error(), "GPU 1") {
		t.Errorf("a GPU that is lost: %v", err)
	}
	if shut != 4 {
		t.Errorf("NVML was ended %d times", shut)
	}
	if _, err := open(fake(), "mig-1"); !errors.Is(err, gpu.ErrMIG) {
		t.Errorf("a MIG device: %v", err)
	}
}
