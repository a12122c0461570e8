package amdsmi

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl/dltest"
)

// standIn is a machine with an MI300X in eight partitions, an MI210, the second die of an MI250, and a
// processor that is no GPU, with the structs that the public amdsmi.h declares for ROCM: 62, 64 or 70. The
// powers are those that ROCm/pytorch's pull request 1457 shows of an MI200 and an MI300.
const standIn = `
#include <stdint.h>
#include <stddef.h>
#include <string.h>
typedef uint32_t st;
#if ROCM < 70
typedef struct { uint32_t year, major, minor, release; const char *build; } ver;
#else
typedef struct { uint32_t major, minor, release; const char *build; } ver;
#endif
#if ROCM < 64
enum { LEN = 64, NONE = 0xFFFF };
typedef struct { uint32_t current, average, gfx, soc, mem, limit, reserved[11]; } power;
#elif ROCM < 70
enum { LEN = 256, NONE = 0xFFFF };
typedef struct { uint64_t socket; uint32_t current, average, gfx, soc, mem, limit, reserved[2]; } power;
#else
enum { LEN = 256 };
#define NONE 0xFFFFFFFFu
typedef struct { uint64_t socket; uint32_t current, average; uint64_t gfx, soc, mem; uint32_t limit; uint64_t reserved[18]; } power;
#endif
typedef struct { char version[LEN], date[LEN], name[LEN]; } driver;
typedef struct { char market[256]; uint32_t vendor; char vendor_name[LEN]; uint32_t sub; uint64_t device; uint32_t rev;
	char serial[LEN]; uint32_t oam, units; uint64_t target; uint32_t reserved[22]; } asic;
static int up;
enum { SOCKETS = 4, PARTS = 8 };
static char processors[SOCKETS][PARTS]; // a handle points into it
static int socket_of(void *h) { return ((char *)h - processors[0]) / PARTS; }
static int part_of(void *h) { return ((char *)h - processors[0]) % PARTS; }
st amdsmi_init(uint64_t flags) { up = flags == 2; return up ? 0 : 1; }
st amdsmi_status_code_to_string(st s, const char **text) { *text = s == 34 ? "driver not loaded" : "?"; return 0; }
st amdsmi_get_lib_version(ver *v) {
	memset(v, 0, sizeof *v);
#if ROCM == 62
	v->year = 24; v->major = 6; v->minor = 2;
#elif ROCM == 64
	v->year = 25; v->major = 25; v->minor = 3;
#else
	v->major = 26;
#endif
	v->build = "built"; return 0;
}
st amdsmi_get_socket_handles(uint32_t *n, void **h) {
	if (!up) return 32;
	if (h) for (int i = 0; i < SOCKETS && i < *n; i++) h[i] = processors[i];
	*n = SOCKETS; return 0;
}
st amdsmi_get_processor_handles(void *s, uint32_t *n, void **h) {
	uint32_t all = socket_of(s) == 0 ? PARTS : 1;
	if (h) for (uint32_t i = 0; i < all && i < *n; i++) h[i] = (char *)s + i;
	*n = all; return 0;
}
st amdsmi_get_processor_type(void *h, uint32_t *kind) { *kind = socket_of(h) == 3 ? 2 : 1; return 0; }
st amdsmi_get_gpu_device_bdf(void *h, uint64_t *bdf) {
	*bdf = (uint64_t)1 << 16 | (0x60 + socket_of(h)) << 8 | 2 << 3 | part_of(h); return 0;
}
st amdsmi_get_gpu_device_uuid(void *h, unsigned *n, char *s) {
	if (*n < 38) return 1;
	strcpy(s, "00ff74a1-0000-1000-8000-000000000000"); s[0] += socket_of(h); *n = 36; return 0;
}
st amdsmi_get_gpu_driver_info(void *h, driver *d) { memset(d, 'x', sizeof *d); strcpy(d->version, "6.10.5"); return 0; }
st amdsmi_get_gpu_asic_info(void *h, asic *a) {
	memset(a, 'x', sizeof *a); strcpy(a->market, socket_of(h) ? "AMD Instinct MI2xx" : "AMD Instinct MI300X"); return 0;
}
static st fill(void *h, power *p) {
	memset(p, 0x11, sizeof *p);
	p->current = socket_of(h) ? NONE : 717; p->average = socket_of(h) ? socket_of(h) == 1 ? 94 : 0 : NONE;
	return 0;
}
#if ROCM == 64
st amdsmi_get_power_info(void *h, power *p) { return 34; }
st amdsmi_get_power_info_v2(void *h, uint32_t sensor, power *p) { return sensor ? 1 : fill(h, p); }
#else
st amdsmi_get_power_info(void *h, power *p) { return fill(h, p); }
#endif
st amdsmi_get_energy_count(void *h, uint64_t *n, float *unit, uint64_t *ns) {
	*n = socket_of(h) < 2 ? (uint64_t)1 << 40 : 0; *unit = 15.3f; *ns = 12345; return 0;
}
`

func built(t *testing.T, rocm int) *library {
	t.Helper()
	l, err := load(dltest.Build(t, "libamd_smi.so", fmt.Sprintf("#define ROCM %d\n", rocm)+standIn))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestReleases reads the stand-in with the structs of three releases.
func TestReleases(t *testing.T) {
	for rocm, version := range map[int]string{62: "24.6.2", 64: "25.3.0", 70: "26.0.0"} {
		l := built(t, rocm)
		if l.name != version {
			t.Errorf("ROCm %d: version %s, want %s", rocm, l.name, version)
		}
		cards, err := l.list()
		if err != nil || len(cards) != 3 || cards[0].Partitions != 8 || cards[1].Partitions != 1 {
			t.Fatalf("ROCm %d: %+v, %v", rocm, cards, err)
		}
		if want := (gpu.Info{
			Name: "AMD Instinct MI300X", UUID: "00ff74a1-0000-1000-8000-000000000000", PCIBusID: "0001:60:02.0",
			Driver: "6.10.5",
		}); cards[0].Info != want {
			t.Errorf("ROCm %d: %+v", rocm, cards[0].Info)
		}
		for _, tc := range []struct {
			selector         string
			instant, average float64
		}{{"", 717, math.NaN()}, {"1", math.NaN(), 94}, {"0001:61:02.0", math.NaN(), 94}, {cards[0].UUID, 717, math.NaN()}} {
			c, err := l.open(tc.selector)
			if err != nil {
				t.Errorf("ROCm %d: %q: %v", rocm, tc.selector, err)
				continue
			}
			r, err := c.Read()
			got := fmt.Sprint(float64(r.Instant), float64(r.Average), float64(r.Usage), float64(r.Energy))
			if want := fmt.Sprint(tc.instant, tc.average, math.NaN(), math.NaN()); err != nil || got != want {
				t.Errorf("ROCm %d: %q: %s, want %s; %v", rocm, tc.selector, got, want, err)
			}
			// 2^40 counts of 15.3 µJ; the unit has the precision of a float.
			if e, err := c.ReadEnergy(); err != nil || math.Abs(float64(e)/(1<<40*15.3e-6)-1) > 1e-7 {
				t.Errorf("ROCm %d: %v, %v", rocm, e, err)
			}
		}
		if e, err := cards[2].ReadEnergy(); err != nil || !math.IsNaN(float64(e)) {
			t.Errorf("the second die: %v, %v", e, err)
		}
		for selector, want := range map[string]string{"2": "reports no power", "7": "AMD SMI lists 3", "0001:60:02.1": "no such"} {
			if _, err := l.open(selector); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", selector, err)
			}
		}
	}
}

func TestFailures(t *testing.T) {
	l := built(t, 70)
	c, err := l.open("1")
	if err != nil {
		t.Fatal(err)
	}
	l.Power = func(handle, *powerInfo) status { return 34 }
	if _, err := c.Read(); !errors.Is(err, ErrCall) || !strings.Contains(err.Error(), "driver not loaded (34)") {
		t.Errorf("a driver that went: %v", err)
	}
	l.Energy = func(handle, *uint64, *float32, *uint64) status { return notSupported }
	if e, err := c.ReadEnergy(); err != nil || !math.IsNaN(float64(e)) {
		t.Errorf("no counter: %v, %v", e, err)
	}
	l.Sockets = func(n *uint32, _ *handle) status { *n = 0; return success }
	if _, err := l.open("0"); !errors.Is(err, ErrNoDevice) {
		t.Errorf("no card: %v", err)
	}
	if _, err := load("libamd_smi-not-there.so"); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("got %v", err)
	}
}

// TestVersions: a library is read only where its structs are known.
func TestVersions(t *testing.T) {
	v2 := func(handle, uint32, *powerInfo) status { return success }
	for _, tc := range []struct {
		numbers [4]uint32
		v2      bool
		at      int
	}{
		{[4]uint32{24, 5, 1}, false, 0},   // ROCm 6.1
		{[4]uint32{24, 7, 1}, false, 0},   // 6.3
		{[4]uint32{25, 1}, false, 0},      // 6.3.3
		{[4]uint32{25, 25, 4}, true, 2},   // 6.4
		{[4]uint32{26, 1}, false, 2},      // 7.1
		{[4]uint32{23, 4}, false, -1},     // 6.0
		{[4]uint32{25, 2}, false, -1},     // none that was released
		{[4]uint32{25, 25}, false, -1},    // nor this
		{[4]uint32{27}, false, -1},        // one to come
		{[4]uint32{0, 0, 0, 9}, true, -1}, // rubbish
	} {
		l := &library{at: -1}
		if tc.v2 {
			l.PowerOf = v2
		}
		if err := l.layout(tc.numbers); l.at != tc.at || errors.Is(err, ErrVersion) != (tc.at < 0) {
			t.Errorf("%v: place %d, want %d; %v", tc.numbers, l.at, tc.at, err)
		}
	}
}
