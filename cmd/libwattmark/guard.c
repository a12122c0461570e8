// Watches for the program's own profiler. A process has one set of CUPTI's buffer
// callbacks and one subscriber, and CUPTI does not report when they are replaced. So the
// first bytes of the functions that a profiler calls are overwritten by a jump to here:
// the first call restores them, has CUPTI given back, and goes on to CUPTI.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void wattmark_yield(int call);

enum { REGISTER, CLOCK, SUBSCRIBE, FLUSH, CALLS }; // as wattmark_yield has them
enum { LANDING = 4, JUMP = 14 }; // endbr64; jmp *0(%rip) and its address

static struct {
  uint8_t *at; // NULL where the call is not watched
  uint8_t saved[LANDING + JUMP];
} watched[CALLS];
static pthread_mutex_t restoring = PTHREAD_MUTEX_INITIALIZER;
static pid_t owner;

// write_code overwrites a function's first bytes and returns errno.
static int write_code(uint8_t *at, const uint8_t *bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at & -page;
  size_t length = (uintptr_t)at + LANDING + JUMP - from;
  if (mprotect((void *)from, length, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return errno;
  memcpy(at, bytes, LANDING + JUMP);
  return mprotect((void *)from, length, PROT_READ | PROT_EXEC) == 0 ? 0 : errno;
}

// restore reports whether the call was watched.
static int restore(int call) {
  uint8_t *at = watched[call].at;
  if (at == NULL || memcmp(at, watched[call].saved, LANDING + JUMP) == 0) return 0;
  write_code(at, watched[call].saved);
  return 1;
}

// give_back is called instead of a watched function, and returns that function. Once the
// buffers are the program's, it may flush them and set their clock.
static void *give_back(int call) {
  int first;
  pthread_mutex_lock(&restoring);
  first = restore(call);
  if (call == REGISTER || call == CLOCK) {
    restore(REGISTER);
    restore(CLOCK);
    restore(FLUSH);
  }
  if (first && getpid() == owner) wattmark_yield(call); // a forked child has no Go threads
  pthread_mutex_unlock(&restoring);
  return watched[call].at;
}

static int on_register(void *requested, void *completed) {
  return ((int (*)(void *, void *))give_back(REGISTER))(requested, completed);
}

static int on_clock(void *clock) { return ((int (*)(void *))give_back(CLOCK))(clock); }

static int on_subscribe(void *subscriber, void *callback, void *user) {
  return ((int (*)(void *, void *, void *))give_back(SUBSCRIBE))(subscriber, callback, user);
}

static int on_flush(uint32_t flag) { return ((int (*)(uint32_t))give_back(FLUSH))(flag); }

// watch returns errno: ENOTSUP on another processor, or for a function that is too short.
static int watch(int call, uintptr_t function) {
#ifdef __x86_64__
  static const uint8_t landing[LANDING] = {0xf3, 0x0f, 0x1e, 0xfa}, jump[JUMP - 8] = {0xff, 0x25, 0, 0, 0, 0};
  uint8_t code[LANDING + JUMP];
  const uintptr_t to[CALLS] = {(uintptr_t)on_register, (uintptr_t)on_clock, (uintptr_t)on_subscribe, (uintptr_t)on_flush};
  const ElfW(Sym) *symbol = NULL;
  Dl_info info;
  if (function == 0) return 0;
  if (!dladdr1((void *)function, &info, (void **)&symbol, RTLD_DL_SYMENT) || symbol == NULL || symbol->st_size < sizeof code) return ENOTSUP;
  memcpy(code, landing, LANDING);
  memcpy(code + LANDING, jump, JUMP - 8);
  memcpy(code + LANDING + JUMP - 8, &to[call], 8);
  watched[call].at = (uint8_t *)function;
  memcpy(watched[call].saved, watched[call].at, sizeof code);
  return write_code(watched[call].at, code);
#else
  return function == 0 ? 0 : ENOTSUP;
#endif
}

// wattmark_watch watches the functions at these addresses, 0 for one that is not to be.
int wattmark_watch(const uintptr_t functions[CALLS]) {
  int call, failed = 0;
  owner = getpid();
  for (call = 0; call < CALLS && failed == 0; call++) failed = watch(call, functions[call]);
  return failed;
}

void wattmark_unwatch(void) {
  int call;
  pthread_mutex_lock(&restoring);
  for (call = 0; call < CALLS; call++) restore(call);
  pthread_mutex_unlock(&restoring);
}
