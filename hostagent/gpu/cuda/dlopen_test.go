package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl/dltest"
)

// A libcuda in C that sees one GPU and then refuses to make a context.
const tinyCUDA = `
#include <string.h>
int cuInit(unsigned f) { return f; }
int cuGetErrorName(int r, const char **s) { *s = r == 801 ? "CUDA_ERROR_NOT_SUPPORTED" : 0; return *s ? 0 : 1; }
int cuGetErrorString(int r, const char **s) { *s = r == 801 ? "operation not supported" : 0; return *s ? 0 : 1; }
int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "Tiny GPU", n); return 0; }
int cuDeviceGetUuid_v2(unsigned char *u, int d) { memset(u, 0x11, 16); return 0; }
int cuDeviceGetPCIBusId(char *s, int n, int d) { strncpy(s, "0000:0A:00.0", n); return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 16 ? 3 : 9; return 0; }
`

func TestRealDlopen(t *testing.T) {
	drv, err := load(dltest.Build(t, "libcuda.so.1", tinyCUDA+dltest.Stubs(driver{}, tinyCUDA, "801")))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := drv.list(); err != nil || len(all) != 1 ||
		all[0].UUID != "GPU-11111111-1111-1111-1111-111111111111" {
		t.Errorf("listed %+v, %v", all, err)
	}
	d := &Device{drv: drv, w: newWorker(), fns: map[string]function{}}
	defer d.w.close()
	err = d.w.do(func() error { return d.setUp() })
	want := "cuDevicePrimaryCtxRetain: CUDA_ERROR_NOT_SUPPORTED (801): operation not supported"
	if !errors.Is(err, ErrCUDA) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	if i := d.info; i.Name != "Tiny GPU" || i.UUID != "GPU-11111111-1111-1111-1111-111111111111" ||
		i.PCIBusID != "0000:0a:00.0" || i.Driver != "CUDA 12.4" || d.sms != 3 {
		t.Errorf("got %+v, %d SMs", i, d.sms)
	}
}

func TestNoDriverSaysWhatToDo(t *testing.T) {
	_, err := load("libcuda-that-is-not-there.so.1")
	if !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "nvidia-smi") {
		t.Errorf("got %v", err)
	}
	_, err = load(dltest.Build(t, "libcuda.so.1", "int cuInit(unsigned f) { return 0; }"))
	if !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "cuDriverGetVersion") {
		t.Errorf("a driver without functions: got %v", err)
	}
}
