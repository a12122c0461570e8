// A libcuda.so.1 for tests: one GPU that keeps memory, streams and a clock, and
// tells an emulated board (unix socket in FAKE_BOARD) what it would draw.
//
// Kernels are known by name: wattmark's own, and any other, which computes for
// FAKE_KERNEL_MS (20). FAKE_FAIL="cuLaunchKernel=700@5,cuInit=100" makes calls
// fail with a CUresult, from the given call on (1). FAKE_UUID is its UUID in hex.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
enum { INVALID = 1, NOT_INITIALIZED = 3, NO_CONTEXT = 201, BAD_HANDLE = 400, NOT_READY = 600 };
enum { ACTIVE_IDLE = 1, SLEEP, HALF, COMPUTE, MEMORY, FULL };
#define SKEW 12345678900000ull // of the GPU's clock against the host's, ns
#define LAUNCH 60000000ull     // time to lay loads down before they are due, on a busy machine too, ns

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread uintptr_t current;
static int ready, board = -1;
static uint64_t *stopWord; // of the timed kernel that runs

typedef struct { uint64_t until; int alive; } Stream; // until: host's ns
static Stream streams[64] = {{0, 1}};                  // 0: the default one
static uintptr_t contexts[8];
static char names[64][64];
static int functions;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void rest(uint64_t until) {
  struct timespec t = {(time_t)(until / 1000000000ull), (long)(until % 1000000000ull)};
  if (until > now()) clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL);
}

// fails counts a call, and says how it is to fail.
static CUresult fails(const char *call) {
  static struct { char name[48]; int n; } seen[64];
  const char *plan = getenv("FAKE_FAIL");
  int i;
  if (plan == NULL) return 0;
  for (i = 0; i < 63 && seen[i].name[0] != 0 && strcmp(seen[i].name, call) != 0; i++) {}
  snprintf(seen[i].name, sizeof seen[i].name, "%s", call);
  seen[i].n++;
  for (const char *p = plan; p != NULL; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
    size_t len = strlen(call);
    int code = 0, from = 1;
    if (strncmp(p, call, len) != 0 || p[len] != '=') continue;
    sscanf(p + len + 1, "%d@%d", &code, &from);
    if (seen[i].n >= from) return code;
  }
  return 0;
}

#define CALL                                  \
  CUresult r;                                 \
  pthread_mutex_lock(&lock);                  \
  r = fails(__func__);                        \
  pthread_mutex_unlock(&lock);                \
  if (r != 0) return r
#define CONTEXT                               \
  CALL;                                       \
  if (current == 0) return NO_CONTEXT

// tell sends the board a line and returns the number that it answers, or at where there is no board.
static uint64_t tell(const char *text, uint64_t at) {
  char line[64];
  uint64_t answer = at;
  size_t n = 0;
  const char *path = getenv("FAKE_BOARD");
  if (path == NULL) return at;
  if (board < 0) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strncpy(a.sun_path, path, sizeof a.sun_path - 1);
    board = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(board, (struct sockaddr *)&a, sizeof a) != 0) abort();
  }
  if (write(board, text, strlen(text)) < 0) return at;
  while (n < sizeof line - 1 && read(board, line + n, 1) == 1 && line[n] != '\n') n++;
  line[n] = 0;
  sscanf(line, "%llu", (unsigned long long *)&answer);
  return answer;
}

// cancel takes back what the board is to do after a time.
static void cancel(uint64_t at) {
  char line[64];
  snprintf(line, sizeof line, "C %llu\n", (unsigned long long)at);
  tell(line, at);
}

// play lays n loads of one length down, then the idle one, all in one line: no meter reads
// between them. It returns when the first really begins.
static uint64_t play(uint64_t at, const int *loads, uint32_t n, uint64_t length) {
  static char line[64 + 32 * 257];
  int used = snprintf(line, sizeof line, "P %llu", (unsigned long long)at);
  if (n > 256) abort();
  for (uint32_t k = 0; k < n; k++)
    used += snprintf(line + used, sizeof line - (size_t)used, " %d %llu", loads[k], (unsigned long long)length);
  snprintf(line + used, sizeof line - (size_t)used, " %d 0\n", ACTIVE_IDLE);
  return tell(line, at);
}

CUresult cuInit(unsigned f) { (void)f; CALL; ready = 1; return 0; }
CUresult cuDriverGetVersion(int *v) { CALL; *v = 13000; return 0; }
CUresult cuGetErrorName(CUresult e, const char **s) {
  *s = e == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : e == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
  return 0;
}
CUresult cuGetErrorString(CUresult e, const char **s) { (void)e; *s = "as the test asked for"; return 0; }
CUresult cuDeviceGetCount(int *n) { CALL; *n = 1; return 0; }
CUresult cuDeviceGet(int *d, int i) { CALL; *d = i; return 0; }
CUresult cuDeviceGetName(char *s, int n, int d) { (void)d; CALL; snprintf(s, (size_t)n, "Stand-in GPU"); return 0; }
CUresult cuDeviceGetUuid_v2(unsigned char *u, int d) {
  const char *hex = getenv("FAKE_UUID");
  unsigned byte;
  (void)d; CALL;
  memset(u, 0x5A, 16);
  for (int i = 0; hex && i < 16 && sscanf(hex + 2 * i, "%2x", &byte) == 1; i++) u[i] = (unsigned char)byte;
  return 0;
}
CUresult cuDeviceGetPCIBusId(char *s, int n, int d) { (void)d; CALL; snprintf(s, (size_t)n, "0000:0A:00.0"); return 0; }
CUresult cuDeviceGetAttribute(int *v, int a, int d) { (void)d; CALL; *v = a == 16 ? 4 : a == 75 ? 9 : 0; return 0; }

static CUresult newContext(uintptr_t *c) {
  for (uintptr_t i = 1; i < 8; i++)
    if (contexts[i] == 0) { contexts[i] = 1; *c = i; return 0; }
  return 2;
}
CUresult cuCtxCreate_v2(uintptr_t *c, unsigned f, int d) {
  (void)f; (void)d; CALL;
  if (!ready) return NOT_INITIALIZED;
  r = newContext(c);
  current = *c;
  return r;
}
CUresult cuCtxDestroy_v2(uintptr_t c) { CALL; contexts[c] = 0; if (current == c) current = 0; return 0; }
static uintptr_t primary;
CUresult cuDevicePrimaryCtxRetain(uintptr_t *c, int d) {
  (void)d; CALL;
  if (primary == 0 && (r = newContext(&primary)) != 0) return r;
  *c = primary;
  return 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(int d) { (void)d; CALL; return 0; }
CUresult cuCtxSetCurrent(uintptr_t c) {
  CALL;
  if (c != 0 && !contexts[c]) return NO_CONTEXT;
  current = c;
  return 0;
}
CUresult cuCtxGetCurrent(uintptr_t *c) { CALL; if (!ready) return NOT_INITIALIZED; *c = current; return 0; }
CUresult cuCtxGetDevice(int *d) { CONTEXT; *d = 0; return 0; }
CUresult cuModuleLoadDataEx(uintptr_t *m, const void *p, unsigned n, int *o, void **v) {
  (void)n; (void)o; (void)v; CONTEXT;
  *m = 1;
  return strstr(p, ".version") == NULL ? 218 : 0;
}
CUresult cuModuleUnload(uintptr_t m) { (void)m; CONTEXT; return 0; }
CUresult cuModuleGetFunction(uintptr_t *f, uintptr_t m, const char *name) {
  int i;
  (void)m; CONTEXT;
  for (i = 0; i < functions && strcmp(names[i], name) != 0; i++) {}
  if (i == functions && functions < 63) functions++;
  snprintf(names[i], sizeof names[i], "%s", name);
  *f = (uintptr_t)i + 1;
  return 0;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *b, uintptr_t f, int t, size_t s) {
  (void)f; (void)t; (void)s; CONTEXT;
  *b = 5;
  return 0;
}
CUresult cuStreamCreate(uintptr_t *s, unsigned f) {
  (void)f; CONTEXT;
  for (uintptr_t i = 3; i < 64; i++) // 1 and 2 are special handles of CUDA
    if (!streams[i].alive) { streams[i] = (Stream){0, 1}; *s = i; return 0; }
  return 2;
}
static Stream *stream(uintptr_t s) { return s < 64 && streams[s].alive ? &streams[s] : NULL; }
CUresult cuStreamDestroy_v2(uintptr_t s) { CONTEXT; if (s == 0 || !stream(s)) return BAD_HANDLE; streams[s].alive = 0; return 0; }

// obey ends a timed kernel whose stop word is up.
static void obey(void) {
  if (stopWord == NULL || *(uint32_t *)stopWord == 0) return;
  uint64_t t = now();
  for (int i = 0; i < 64; i++)
    if (streams[i].until > t) streams[i].until = t;
  cancel(t);
  play(t, NULL, 0, 0);
  stopWord = NULL;
}

CUresult cuStreamQuery(uintptr_t s) {
  CONTEXT;
  if (!stream(s)) return BAD_HANDLE;
  pthread_mutex_lock(&lock);
  obey();
  r = now() < stream(s)->until ? NOT_READY : 0;
  pthread_mutex_unlock(&lock);
  return r;
}
// Stream 66 is being captured.
CUresult cuStreamIsCapturing(uintptr_t s, int *status) { CONTEXT; *status = s == 66; return 0; }
CUresult cuStreamSynchronize(uintptr_t s) { CONTEXT; if (!stream(s)) return BAD_HANDLE; rest(stream(s)->until); return 0; }
CUresult cuCtxSynchronize(void) {
  CONTEXT;
  for (int i = 0; i < 64; i++) rest(streams[i].until);
  return 0;
}

// Device memory is the host's; what is allocated is far less than what is asked
// for, since no kernel touches the buffer that it streams.
CUresult cuMemAlloc_v2(uint64_t *p, size_t n) { CONTEXT; *p = (uint64_t)(uintptr_t)calloc(1, n > 1 << 20 ? 4096 : n); return *p ? 0 : 2; }
CUresult cuMemFree_v2(uint64_t p) { CONTEXT; free((void *)(uintptr_t)p); return 0; }
CUresult cuMemGetInfo_v2(size_t *f, size_t *t) { CONTEXT; *f = (size_t)4 << 30; *t = (size_t)8 << 30; return 0; }
CUresult cuMemsetD8Async(uint64_t p, unsigned char v, size_t n, uintptr_t s) { (void)s; CONTEXT; memset((void *)(uintptr_t)p, v, n); return 0; }
CUresult cuMemcpyHtoDAsync_v2(uint64_t d, const void *h, size_t n, uintptr_t s) { (void)s; CONTEXT; memcpy((void *)(uintptr_t)d, h, n); return 0; }
CUresult cuMemcpyDtoHAsync_v2(void *h, uint64_t d, size_t n, uintptr_t s) {
  CONTEXT;
  if (!stream(s)) return BAD_HANDLE;
  rest(stream(s)->until);
  memcpy(h, (void *)(uintptr_t)d, n);
  return 0;
}
CUresult cuMemHostAlloc(void **p, size_t n, unsigned f) { (void)f; CONTEXT; *p = calloc(1, n); return *p ? 0 : 2; }
CUresult cuMemFreeHost(void *p) { CONTEXT; free(p); return 0; }

static uint64_t arg(void **p, int i) { return *(uint64_t *)p[i]; }

static void timed(uint64_t *ctl, uint64_t begin, uint64_t end) {
  ctl[0] = begin + SKEW;
  ctl[1] = end + SKEW;
  ctl[3] = 1000;
  stopWord = ctl + 2;
}

// marker lays its chips down, writes when each begins, and returns when the last one ends.
static uint64_t marker(void **p, uint64_t begin) {
  uint64_t *ctl = (void *)(uintptr_t)arg(p, 0), *edges = (void *)(uintptr_t)arg(p, 1), chip = arg(p, 5);
  uint32_t *words = (void *)(uintptr_t)arg(p, 2), n = *(uint32_t *)p[7];
  int loads[256];
  for (uint32_t k = 0; k < n && k < 256; k++) loads[k] = words[k / 32] >> (k % 32) & 1 ? FULL : SLEEP;
  begin = play(begin + arg(p, 6), loads, n, chip);
  for (uint32_t k = 0; k <= n; k++) edges[k] = begin + k * chip + SKEW;
  timed(ctl, begin, begin + n * chip);
  return begin + n * chip;
}

CUresult cuLaunchKernel(uintptr_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, uintptr_t s, void **p, void **extra) {
  (void)gx; (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared; (void)extra;
  CONTEXT;
  if (f == 0 || f > (uintptr_t)functions || !stream(s)) return BAD_HANDLE;
  pthread_mutex_lock(&lock);
  const char *name = names[f - 1], *ms = getenv("FAKE_KERNEL_MS");
  uint64_t begin = stream(s)->until, length = (ms ? strtoull(ms, NULL, 10) : 20) * 1000000ull;
  if (begin < now()) begin = now();
  if (strcmp(name, "wm_clock") == 0) {
    *(uint64_t *)(uintptr_t)arg(p, 0) = begin + SKEW;
  } else if (strcmp(name, "wm_marker") == 0) {
    stream(s)->until = marker(p, begin + LAUNCH);
  } else if (strcmp(name, "wm_half") == 0 || strcmp(name, "wm_compute") == 0 || strcmp(name, "wm_memory") == 0) {
    int load = name[3] == 'h' ? HALF : name[3] == 'c' ? COMPUTE : MEMORY;
    begin = play(begin + LAUNCH, &load, 1, arg(p, 3));
    stream(s)->until = begin + arg(p, 3);
    timed((void *)(uintptr_t)arg(p, 0), begin, begin + arg(p, 3));
  } else if (strcmp(name, "wm_fill") != 0) { // the program's own
    if (begin > stream(s)->until) begin += LAUNCH; // of an idle stream: those behind it follow without a gap
    begin = play(begin, &(int){COMPUTE}, 1, length);
    stream(s)->until = begin + length;
  }
  pthread_mutex_unlock(&lock);
  return 0;
}
