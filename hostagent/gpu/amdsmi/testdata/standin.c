// A stand-in for libamd_smi.so: a machine with an MI300X in eight partitions, an MI210, the second die of an MI250, and a
// processor that is no GPU, with the structs that the public amdsmi.h declares for ROCM: 62, 64 or 70. The
// powers are those that ROCm/pytorch's pull request 1457 shows of an MI200 and an MI300.
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
