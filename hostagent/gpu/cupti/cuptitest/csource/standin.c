/* A stand-in for libcupti. The record is declared from NVIDIA's reference of its
 * fields, packed and aligned as CUPTI's records are, and not from the decoder. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct __attribute__((packed)) __attribute__((aligned(8))) {
  uint32_t kind;
  uint8_t cacheConfig;
  uint8_t sharedMemoryConfig;
  uint16_t registersPerThread;
  uint32_t partitionedGlobalCacheRequested;
  uint32_t partitionedGlobalCacheExecuted;
  uint64_t start;
  uint64_t end;
  uint64_t completed;
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  int32_t gridX;
  int32_t gridY;
  int32_t gridZ;
  int32_t blockX;
  int32_t blockY;
  int32_t blockZ;
  int32_t staticSharedMemory;
  int32_t dynamicSharedMemory;
  uint32_t localMemoryPerThread;
  uint32_t localMemoryTotal;
  uint32_t correlationId;
  int64_t gridId;
  const char *name;
  void *reserved0;
  uint64_t queued;
  uint64_t submitted;
  uint8_t launchType;
  uint8_t isSharedMemoryCarveoutRequested;
  uint8_t sharedMemoryCarveoutRequested;
  uint8_t padding;
  uint32_t sharedMemoryExecuted;
#if KERNEL >= 5
  uint64_t graphNodeId;
  uint32_t shmemLimitConfig;
  uint32_t graphId;
#endif
#if KERNEL >= 6
  void *pAccessPolicyWindow;
#endif
#if KERNEL >= 7
  uint32_t channelID;
  uint32_t channelType;
#endif
#if KERNEL >= 8
  uint32_t clusterX;
  uint32_t clusterY;
  uint32_t clusterZ;
  uint32_t clusterSchedulingPolicy;
  uint64_t localMemoryTotal_v2;
#endif
#if KERNEL >= 9
  uint32_t maxPotentialClusterSize;
  uint32_t maxActiveClusters;
#endif
#if KERNEL >= 10
  uint8_t isDeviceLaunched;
#endif
} record_t;

typedef void (*requested_t)(uint8_t **buffer, size_t *size, size_t *maxNumRecords);
typedef void (*completed_t)(void *context, uint32_t streamId, uint8_t *buffer, size_t size, size_t validSize);

static requested_t requested;
static completed_t completed;
static uint8_t *buffer;
static size_t size, valid;
static size_t dropped;
/* A call of the runtime (CUpti_ActivityAPI), where its kind (1) or the function alone (2) is enabled: each kernel is
 * of one. */
typedef struct {
  uint32_t kind, cbid;
  uint64_t start, end;
  uint32_t process, thread, correlation, returned;
} call_t;
static int calls;

static uint32_t enabled; /* 0, or the one kind of kernels: they exclude each other */
static uint64_t (*stamp)(void);

int cuptiGetVersion(uint32_t *version) {
  *version = VERSION;
  return 0;
}

int cuptiGetResultString(int result, const char **text) {
  *text = result == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_UNKNOWN";
  return 0;
}

int cuptiActivityRegisterCallbacks(requested_t r, completed_t c) {
  requested = r;
  completed = c;
  return 0;
}

int cuptiActivityEnable(uint32_t kind) {
#ifdef FAIL_ENABLE
  return 39;
#endif
  if (kind == 5) calls = 1;
  if (kind != 3 && kind != 10) return 0;
  if (enabled && enabled != kind) return 14; /* CUPTI_ERROR_NOT_COMPATIBLE */
  enabled = kind;
  return 0;
}

#if VERSION >= 24
int cuptiActivityEnableRuntimeApi(uint32_t call, uint8_t on) {
  if (call == 211 && calls != 1) calls = on ? 2 : 0;
  return 0;
}
int cuptiActivityEnableDriverApi(uint32_t call, uint8_t on) { return 0; }
#endif
int standin_calls(void) { return calls; }

int cuptiActivityDisable(uint32_t kind) {
  if (kind == enabled) enabled = 0;
  return 0;
}

int cuptiActivityRegisterTimestampCallback(uint64_t (*f)(void)) {
  size_t i;
  /* The times of what is not handed over yet are lost. */
  for (i = 0; buffer && i < valid; i += *(uint32_t *)(buffer + i) == 5 ? sizeof(call_t) : sizeof(record_t))
    if (*(uint32_t *)(buffer + i) != 5) ((record_t *)(buffer + i))->start = 0;
  stamp = f;
  return 0;
}

int cuptiFinalize(void) {
  enabled = 0;
  requested = 0;
  completed = 0;
  return 0;
}

int cuptiActivityFlushPeriod(uint32_t ms) { return 0; }

int cuptiActivityGetNextRecord(uint8_t *b, size_t validSize, uint8_t **record) {
  uint8_t *next = *record ? *record + (*(uint32_t *)*record == 5 ? sizeof(call_t) : sizeof(record_t)) : b;
#ifdef FAIL_RECORD
  return 999;
#endif
  if (next >= b + validSize) return 12; /* CUPTI_ERROR_MAX_LIMIT_REACHED */
  *record = next;
  return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t streamId, size_t *n) {
  *n = dropped;
  dropped = 0;
  return 0;
}

static void *deliver(void *arg) {
  completed(0, 0, buffer, size, valid);
  buffer = 0;
  return 0;
}

int cuptiActivityFlushAll(uint32_t flag) {
#ifdef FAIL_FLUSH
  return 999;
#endif
  if (buffer && completed) deliver(0);
  return 0;
}

/* stamp_times puts a record's times on the program's clock, where it set one: those of tests run
 * three times as fast as the host's. */
static void stamp_times(record_t *r) {
  struct timespec t;
  uint64_t own, host;
  if (!stamp) return;
  own = stamp();
  clock_gettime(CLOCK_REALTIME, &t);
  host = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
  r->start = own + 3 * (r->start - host);
  r->end = own + 3 * (r->end - host);
}

/* standin_kernel is a kernel that ran. Full buffers are handed over from a thread
 * of the library's own, as CUPTI does. */
void standin_kernel(const char *name, uint64_t start, uint64_t end, uint32_t device, uint32_t stream, uint32_t correlation,
                    uint32_t graph, const int32_t grid[3], const int32_t block[3]) {
  record_t r;
  if (!enabled) return;
#ifdef SMALL_BUFFERS
  if (buffer && valid + sizeof r > 64 * sizeof r) {
#else
  if (buffer && valid + sizeof r > size) {
#endif
    pthread_t t;
    pthread_create(&t, 0, deliver, 0);
    pthread_join(t, 0);
  }
  if (!buffer) {
    size_t records;
    requested(&buffer, &size, &records);
    valid = 0;
  }
  if (!buffer || size < sizeof r) {
    dropped++;
    return;
  }
  memset(&r, 0xa5, sizeof r); /* what is not set must not be read */
  r.kind = enabled;
  r.start = start;
  r.end = end;
  stamp_times(&r);
  r.deviceId = device;
  r.streamId = stream;
  r.gridX = grid[0];
  r.gridY = grid[1];
  r.gridZ = grid[2];
  r.blockX = block[0];
  r.blockY = block[1];
  r.blockZ = block[2];
  r.correlationId = correlation;
  r.name = name;
#if KERNEL >= 5
  r.graphId = graph;
#endif
  memcpy(buffer + valid, &r, sizeof r);
  valid += sizeof r;
  if (calls && size - valid >= sizeof(call_t)) {
    struct timespec t;
    call_t c = {5, 211, 0, 0, 1, (uint32_t)(uintptr_t)pthread_self(), correlation, 0};
    clock_gettime(CLOCK_REALTIME, &t);
    c.start = c.end = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    memcpy(buffer + valid, &c, sizeof c);
    valid += sizeof c;
  }
}

/* A subscriber's view of a launch, as cupti_callbacks.h has it. */
typedef struct {
  int callbackSite;
  const char *functionName;
  const void *functionParams;
  void *functionReturnValue;
  const char *symbolName;
  void *context;
  uint32_t contextUid;
  uint64_t *correlationData;
  uint32_t correlationId;
} callback_t;
typedef void (*subscriber_t)(void *user, uint32_t domain, uint32_t id, const callback_t *data);
static subscriber_t subscriber;
static void *user;
static char wanted[1024];

int cuptiSubscribe(void **handle, subscriber_t f, void *u) {
#ifdef FAIL_SUBSCRIBE
  return 39;
#endif
  if (subscriber) return 39;
  subscriber = f;
  user = u;
  *handle = &subscriber;
  return 0;
}

int cuptiUnsubscribe(void *handle) {
  if (handle != &subscriber) return 1;
  subscriber = 0;
  return 0;
}

int cuptiEnableCallback(uint32_t on, void *handle, uint32_t domain, uint32_t id) {
  if (handle != &subscriber || domain != 1 || id >= sizeof wanted) return 1;
  wanted[id] = on != 0;
  return 0;
}

/* standin_call has the subscriber called as before (site 0) or after (1) a call of
 * the driver. data is kept between the two. */
void standin_call(int site, uint32_t id, const char *function, const void *params, const char *symbol, void *context, uint64_t *data,
                  uint32_t correlation) {
  callback_t c;
  if (!subscriber || !wanted[id]) return;
  memset(&c, 0xa5, sizeof c);
  c.callbackSite = site;
  c.functionName = function;
  c.functionParams = params;
  c.symbolName = symbol;
  c.context = context;
  c.correlationData = data;
  c.correlationId = correlation;
  subscriber(user, 1, id, &c);
}

/* standin_drop makes CUPTI say that it lost records. */
void standin_drop(uint64_t n) { dropped += n; }
