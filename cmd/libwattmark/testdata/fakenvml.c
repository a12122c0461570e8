// A libnvidia-ml.so.1 for tests: one GPU that always says 123.456 W.
#include <stdio.h>
#include <string.h>

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } Pci;

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int r) { return r == 3 ? "Not Supported" : "Not Found"; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { snprintf(s, n, "600.1"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)1; return i == 0 ? 0 : 6; }
int nvmlDeviceGetHandleByUUID(const char *s, void **h) { (void)s; *h = (void *)1; return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *s, void **h) { *h = (void *)1; return strcmp(s, "0000:0a:00.0") == 0 ? 0 : 6; }
int nvmlDeviceGetName(void *h, char *s, unsigned n) { (void)h; snprintf(s, n, "Stand-in GPU"); return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned n) { (void)h; snprintf(s, n, "GPU-5a"); return 0; }
int nvmlDeviceGetPciInfo_v3(void *h, Pci *p) { (void)h; memset(p, 0, sizeof *p); strcpy(p->busId, "00000000:0A:00.0"); return 0; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *mw) { (void)h; *mw = 123456; return 0; }
int nvmlDeviceGetClockInfo(void *h, unsigned c, unsigned *mhz) { (void)h; *mhz = c == 1 ? 1980 : 2600; return 0; }
int nvmlDeviceGetTemperature(void *h, unsigned s, unsigned *t) { (void)h; (void)s; *t = 40; return 0; }
