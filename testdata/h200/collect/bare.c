// CUPTI's records of kernels, read by nobody: what recording costs before a recorder does anything.
// BARE=kernels records all; BARE=thread with a buffer for each thread; BARE=tenth 100 ms of each second, BARE=once the
// first 100 ms alone; BARE=finalize 100 ms of each second, between which CUPTI is taken out of the process;
// BARE=callback has no records but a callback of launches; BARE=calls records kernels and all calls, BARE=launches
// kernels and the calls that launch; BARE=off nothing.
#include <cupti.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 8 << 20 };
static void requested(uint8_t **b, size_t *size, size_t *records) {
  *b = aligned_alloc(8, SIZE), *size = SIZE, *records = 0;
}
static void completed(CUcontext c, uint32_t stream, uint8_t *b, size_t size, size_t valid) { free(b); }
static void launch(void *user, CUpti_CallbackDomain d, CUpti_CallbackId id, const void *data) {}
static void *tenth(void *once) {
  do {
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    usleep(100000);
    cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    usleep(900000);
  } while (!once);
  return once;
}
// cuptiFinalize belongs at the end of a call of the runtime, on the thread that made it.
static volatile int leave;
static void last(void *user, CUpti_CallbackDomain d, CUpti_CallbackId id, const void *data) {
  if (((const CUpti_CallbackData *)data)->callbackSite == CUPTI_API_EXIT && __sync_bool_compare_and_swap(&leave, 1, 0))
    cuptiFinalize();
}
static void *finalize(void *arg) {
  for (;;) {
    CUpti_SubscriberHandle s;
    cuptiSubscribe(&s, last, 0);
    cuptiActivityRegisterCallbacks(requested, completed);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    usleep(100000);
    cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    cuptiActivityFlushAll(1);
    leave = 1;
    cuptiEnableDomain(1, s, CUPTI_CB_DOMAIN_RUNTIME_API);
    usleep(900000);
  }
  return arg;
}
int InitializeInjection(void) {
  const char *mode = getenv("BARE");
  pthread_t t;
  if (!mode || !strcmp(mode, "off")) return 1;
  if (!strcmp(mode, "callback")) {
    CUpti_SubscriberHandle s;
    cuptiSubscribe(&s, launch, 0);
    cuptiEnableCallback(1, s, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    return 1;
  }
  cuptiActivityRegisterCallbacks(requested, completed);
  if (!strcmp(mode, "thread")) {
    uint8_t on = 1;
    size_t n = sizeof on;
    cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &n, &on);
  }
  if (!strcmp(mode, "tenth") || !strcmp(mode, "once")) pthread_create(&t, 0, tenth, strcmp(mode, "once") ? 0 : "once");
  else if (!strcmp(mode, "finalize")) pthread_create(&t, 0, finalize, 0);
  else cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  if (!strcmp(mode, "calls")) cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME), cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER);
  if (!strcmp(mode, "launches")) {
    cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, 1);
    cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, 1);
    cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 1);
    cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, 1);
  }
  if (strcmp(mode, "finalize")) cuptiActivityFlushPeriod(500);
  return 1;
}
