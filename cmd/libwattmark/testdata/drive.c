/* Drives the library as programs do; each case is one way to use or misuse it. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"
#include "power.h"
#include "wattmark.h"

static CUfunction kernel;
static CUcontext context;

static void need(int ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "%s: %s\n", what, wm_error());
  P_getError();
  exit(99);
}

static void gpu(void) {
  CUmodule m;
  need(cuInit(0) == 0 && cuCtxCreate(&context, 0, 0) == 0, "context");
  need(cuModuleLoadDataEx(&m, ".version 7.0", 0, NULL, NULL) == 0 && cuModuleGetFunction(&kernel, m, "user") == 0, "module");
}

static int launch(CUstream s) { return cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL); }

static void say(const char *what, int code, const wm_result *r) {
  printf("{\"what\":\"%s\",\"code\":%d,\"task\":%lld,\"state\":%d,\"energy\":%.17g,\"u\":%.17g,\"seconds\":%.17g,\"samples\":%llu}\n", what, code,
         (long long)r->task, r->state, r->energy_j, r->energy_u_j, r->seconds, (unsigned long long)r->samples);
  if (code != WM_OK) fprintf(stderr, "%s\n", wm_error());
}

static wm_options quick(void) {
  wm_options o;
  wm_options_init(&o);
  o.warm_up_ms = 10;
  o.lease_ms = getenv("LEASE_MS") ? (unsigned)atoi(getenv("LEASE_MS")) : 1000;
  return o;
}

static wm_result end(wm_measurement m, int *code) {
  wm_result r;
  memset(&r, 0, sizeof r);
  r.size = sizeof r;
  *code = wm_end(m, &r);
  return r;
}

static int plain(void) { /* kernels in the default stream */
  wm_options o = quick();
  wm_measurement m;
  int code = wm_begin("lab", "plain", &o, &m);
  if (code != WM_OK) {
    fprintf(stderr, "%s\n", wm_error());
    return code;
  }
  for (int i = 0; i < 10; i++) need(launch(NULL) == 0, "launch");
  wm_result r = end(m, &code);
  CUcontext now = NULL;
  need(cuCtxGetCurrent(&now) == 0 && now == context, "the context is not current any more");
  say("plain", code, &r);
  need(wm_end(m, &r) == WM_E_HANDLE, "a second end");
  return code;
}

static int two_streams(void) { /* one stream runs on when the other is done */
  CUstream s[2];
  void *list[2];
  wm_options o = quick();
  wm_measurement m;
  for (int i = 0; i < 2; i++) {
    need(cuStreamCreate(&s[i], 1) == 0, "stream");
    list[i] = s[i];
  }
  o.streams = list;
  o.stream_count = 2;
  need(wm_begin("lab", "two", &o, &m) == WM_OK, "begin");
  need(launch(s[0]) == 0, "launch");
  struct timespec a, b;
  double worst = 0, sum = 0;
  for (int i = 0; i < 200; i++) {
    clock_gettime(CLOCK_MONOTONIC, &a);
    need(wm_marker(m, i % 2 ? "odd" : "even", s[i % 2]) == WM_OK, "marker");
    clock_gettime(CLOCK_MONOTONIC, &b);
    double us = 1e6 * (double)(b.tv_sec - a.tv_sec) + 1e-3 * (double)(b.tv_nsec - a.tv_nsec);
    sum += us;
    if (us > worst) worst = us;
  }
  for (int i = 0; i < 5; i++) {
    if (i == 2) need(wm_marker(m, "rest", s[1]) == WM_OK, "marker");
    need(launch(s[1]) == 0, "launch");
  }
  int code;
  wm_result r = end(m, &code);
  fprintf(stderr, "wm_marker: %.1f us on average, %.1f at most\n", sum / 200, worst);
  say("two", code, &r);
  return code;
}

static void *worker(void *p) {
  wm_options o = quick();
  wm_measurement m;
  int code;
  o.wait_ms = 60000;
  need(cuCtxSetCurrent(context) == 0, "current");
  need(wm_begin("lab", p, &o, &m) == WM_OK, "begin in a thread");
  need(launch(NULL) == 0, "launch");
  wm_result r = end(m, &code);
  say(p, code, &r);
  return (void *)(intptr_t)code;
}

static int threads(void) {
  pthread_t t[3];
  static char names[3][8];
  for (int i = 0; i < 3; i++) {
    snprintf(names[i], sizeof names[i], "t%d", i);
    need(pthread_create(&t[i], NULL, worker, names[i]) == 0, "thread");
  }
  int worst = 0;
  for (int i = 0; i < 3; i++) {
    void *code;
    need(pthread_join(t[i], &code) == 0, "join");
    if ((intptr_t)code != WM_OK) worst = (int)(intptr_t)code;
  }
  return worst;
}

static int misuse(void) {
  int daemonThere = strncmp(getenv("WATTMARK_HOST"), "unix:", 5) == 0;
  wm_options o = quick(), bad;
  wm_measurement m, other;
  need(wm_end(42, NULL) == WM_E_HANDLE, "end before begin");
  need(wm_marker(42, "x", NULL) == WM_E_HANDLE, "marker before begin");
  need(wm_cancel(0) == WM_E_HANDLE, "cancel before begin");
  need(wm_begin("lab", NULL, &o, &m) == WM_E_ARGUMENT && m == 0, "no name");
  need(wm_begin("lab", "a\033b", &o, &m) == WM_E_ARGUMENT, "a name that a terminal obeys");
  need(wm_begin("lab", "x", &o, NULL) == WM_E_ARGUMENT, "no place");
  bad = o;
  bad.size = 3;
  need(wm_begin("lab", "x", &bad, &m) == WM_E_ARGUMENT, "size");
  bad = o;
  bad.lease_ms = 10;
  need(wm_begin("lab", "x", &bad, &m) == WM_E_ARGUMENT, "lease");
  bad = o;
  bad.stream_count = 1;
  need(wm_begin("lab", "x", &bad, &m) == WM_E_ARGUMENT, "streams");
  void *perThread[1] = {(void *)2};
  bad.streams = perThread;
  need(wm_begin("lab", "x", &bad, &m) == WM_E_GPU && strstr(wm_error(), "per-thread"), "per-thread stream");
  bad = o;
  bad.database = "/";
  need(wm_begin("lab", "x", &bad, &m) == (daemonThere ? WM_E_ARGUMENT : WM_E_DATABASE), "database");
  bad = o;
  bad.monitor = "127.0.0.1:1";
  int code = wm_begin("lab", "x", &bad, &m);
  if (daemonThere)
    need(code == WM_E_ARGUMENT && strstr(wm_error(), "WATTMARK_HOST=none"), "another monitor than the daemon's");
  else
    need(code == WM_E_MONITOR && strstr(wm_error(), "is wattmark monitor running there"), "monitor");
  bad = o;
  bad.host = "unix:/no/such/socket";
  need(wm_begin("lab", "x", &bad, &m) == WM_E_HOST && strstr(wm_error(), "is wattmark host running there"), "host");
  bad.host = "tcp:1";
  need(wm_begin("lab", "x", &bad, &m) == WM_E_ARGUMENT && strstr(wm_error(), "unix:PATH"), "no place of a host");
  bad.size = offsetof(wm_options, host);
  need(wm_begin("lab", "x", &bad, &m) == WM_E_ARGUMENT && strstr(wm_error(), "bytes"), "shorter options");
  bad = o;
  bad.device = "7";
  need(wm_begin("lab", "x", &bad, &m) == WM_E_GPU, "device");
  need(wm_begin("lab", "first", &o, &m) == WM_OK, "begin");
  need(wm_begin("lab", "second", &o, &other) == WM_E_BUSY && strstr(wm_error(), "lab@"), "two begins");
  need(wm_marker(m, "", NULL) == WM_E_ARGUMENT, "no label");
  need(wm_marker(m, "x", (void *)63) == WM_E_GPU, "no such stream");
  pid_t child = fork();
  if (child == 0) {
    int refused = wm_begin("lab", "x", &o, &m) == WM_E_FORK && wm_end(m, NULL) == WM_E_FORK && strstr(wm_error(), "fork") &&
                  P_marker() == -1 && P_getError() == WM_E_FORK;
    exit(refused ? 0 : 1);
  }
  int status;
  need(waitpid(child, &status, 0) == child && status == 0, "fork");
  need(wm_cancel(m) == WM_OK, "cancel");
  return 0;
}

static int paper(void) {
  need(P_marker() == -1 && P_getError() == WM_E_STATE, "marker before start");
  need(P_stopMonitor() == -1 && P_waitData() == -1 && P_receiveData(1, NULL) == -1 && P_storeData(NULL) == -1, "stop before start");
  need(dbGetUser() == -1 && P_getError() == WM_E_STATE, "database before dbOpen");
  need(dbOpen(getenv("WATTMARK_DB")) == 0, "dbOpen");
  need(dbOpen("x") == -1 && P_getError() == WM_E_STATE, "two dbOpen");
  need(P_compute_test(5) == 0 && P_half_test(5) == 0 && P_memory_test(0) == -1, "tests without a measurement");
  for (int i = 0; i < 3; i++) { /* the first is not stored, the last two are */
    need(P_startMonitor() == 0, "start");
    need(P_startMonitor() == -1 && P_getError() == WM_E_STATE, "two starts");
    need(P_marker() == 0, "start marker");
    need(launch(NULL) == 0 && P_memory_test(30) == 0, "work");
    need(P_marker() == 0, "stop marker");
    need(P_marker() == -1, "a third marker");
    need(P_waitData() == -1, "wait before stop");
    need(P_stopMonitor() == 0, "stop");
    need(P_stopMonitor() == -1, "two stops");
    int fd = P_waitData();
    need(fd > 0, "wait");
    int n = P_receiveData(fd, NULL);
    struct record *rec = calloc((size_t)n, sizeof *rec);
    need(n > 100 && P_receiveData(fd + 1, rec) == -1 && P_receiveData(fd, rec) == n, "receive");
    double sum = 0;
    for (int k = 0; k < n; k++) sum += rec[k].power;
    printf("records %d of %s by %s task %d mean %.3f seq %d\n", n, rec[0].taskName, rec[0].user, rec[0].taskID, sum / n, rec[n - 1].seqNum);
    if (i > 0) need(P_storeData(rec) == 0, "store");
    if (i == 2) need(dbReadByID(rec[0].taskID) == n, "dbReadByID");
    free(rec);
  }
  need(P_startMonitor() == 0 && P_marker() == 0, "start once more");
  need(P_stopMonitor() == -1 && P_getError() == WM_E_STATE, "stop between markers");
  need(dbReadByID(99) == -1 && P_getError() == WM_E_DATABASE, "no such task");
  need(dbGetUser() == 1 && dbGetTaskByUser("lab") == 3, "users and tasks");
  need(dbReadByTaskName("no such") == 0 && dbReadByTaskName("p") > 0, "by name");
  need(dbDeleteByID(2) == 1 && dbDeleteByID(2) == -1, "delete by id");
  need(dbDeleteByTaskName("p") == 2 && dbDeleteByUser("lab") == 0, "delete by name, by user");
  need(dbClose() == 0 && dbClose() == -1, "dbClose");
  return 0;
}

static int hang(void) { /* is killed between its markers */
  wm_options o = quick();
  sigset_t none;
  wm_measurement m;
  need(wm_begin("lab", "hang", &o, &m) == WM_OK, "begin");
  puts("measuring");
  fflush(stdout);
  sigemptyset(&none);
  return sigsuspend(&none); /* a signal that is not handled ends the program */
}

static int outlive(void) { /* its daemon dies amid the work, as a line on the standard input tells */
  wm_options o = quick();
  wm_measurement m;
  wm_result r;
  int code;
  need(wm_begin("lab", "outlive", &o, &m) == WM_OK, "begin");
  need(launch(NULL) == 0, "launch");
  puts("measuring");
  fflush(stdout);
  need(getchar() == '\n', "a line");
  while (wm_marker(m, "on", NULL) == WM_OK) nanosleep(&(struct timespec){0, 1000000}, NULL);
  fprintf(stderr, "%s\n", wm_error());
  r = end(m, &code);
  printf("{\"code\":%d,\"task\":%lld,\"state\":%d}\n", code, (long long)r.task, r.state);
  fprintf(stderr, "%s\n%s\n", wm_error(), wm_code_text(code));
  need(wm_end(m, &r) == WM_E_HANDLE, "a second end");
  return code;
}

static int leave(void) { /* forgets to end */
  wm_options o = quick();
  wm_measurement m;
  o.lease_ms = 30000;
  need(wm_begin("lab", "leave", &o, &m) == WM_OK, "begin");
  return 0;
}

static int overrun(void) { /* claims more room for a result than there is */
  wm_options o = quick();
  wm_measurement m;
  wm_result *r = malloc(sizeof *r - 64);
  need(wm_begin("lab", "overrun", &o, &m) == WM_OK, "begin");
  r->size = sizeof *r;
  wm_end(m, r);
  return 0;
}

int main(int argc, char **argv) {
  static const struct { const char *name; int (*run)(void); } cases[] = {
      {"plain", plain}, {"two", two_streams}, {"threads", threads}, {"misuse", misuse}, {"paper", paper}, {"hang", hang}, {"outlive", outlive}, {"leave", leave},
      {"overrun", overrun}};
  for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(cases[i].name, argv[1]) == 0) {
      gpu();
      return cases[i].run();
    }
  return 2;
}
