// Stands between the program and CUPTI. A process has one set of CUPTI's buffer callbacks and
// one subscriber, and CUPTI does not report when they are replaced. So the functions by which a
// profiler takes them begin with a jump to here, and Go decides what CUPTI is asked; the bytes
// under the jump are kept as a way into the function itself.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern uint32_t wattmark_cupti(int call, uintptr_t a, uintptr_t b, uintptr_t c);

enum { REGISTER, CLOCK, ENABLE, DISABLE, FLUSH, SUBSCRIBE, FINALIZE, CALLS }; // as cupti.Calls has them
enum { NEAR = 5, FAR = 14, SLOT = 64, PAGE = 4096 };                          // jmp rel32; jmp *0(%rip) and its address

typedef uint32_t (*function_t)(uintptr_t, uintptr_t, uintptr_t);
static function_t original[CALLS];
static pid_t owner; // 0 once the log is closed

// A forked child has no Go threads: its calls go to CUPTI at once.
static uint32_t on(int call, uintptr_t a, uintptr_t b, uintptr_t c) {
  return owner == getpid() ? wattmark_cupti(call, a, b, c) : original[call](a, b, c);
}

#define HOOK(CALL) \
  static uint32_t on_##CALL(uintptr_t a, uintptr_t b, uintptr_t c) { return on(CALL, a, b, c); }
HOOK(REGISTER) HOOK(CLOCK) HOOK(ENABLE) HOOK(DISABLE) HOOK(FLUSH) HOOK(SUBSCRIBE) HOOK(FINALIZE)

#ifdef __x86_64__
static const function_t hooks[CALLS] = {on_REGISTER, on_CLOCK, on_ENABLE, on_DISABLE, on_FLUSH, on_SUBSCRIBE, on_FINALIZE};

// length is that of an instruction; 0 for a jump and for one that is not known here: compilers begin
// functions with few. relative is where in it a distance from its place stands, 0 for none.
static int length(const uint8_t *p, int *relative) {
  static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
  const uint8_t *from = p;
  int immediate = 0, mod, rm;
  *relative = 0;
  if (memcmp(p, endbr64, sizeof endbr64) == 0) return sizeof endbr64;
  if (p[0] == 0x66 && p[1] == 0x0f) p++;
  if ((*p & 0xf0) == 0x40) p++; // REX
  if (*p >= 0x50 && *p <= 0x57) return (int)(p + 1 - from); // push
  if (*p >= 0xb8 && *p <= 0xbf && p == from) return 5;      // mov $imm32
  switch (*p++) {
  case 0x0f:
    if (*p++ != 0xef) return 0; // pxor
  case 0x29: case 0x31: case 0x33: case 0x39: case 0x85: case 0x89: case 0x8b: case 0x8d:
    break; // sub, xor, cmp, test, mov, lea
  case 0x83: immediate = 1; break;
  case 0x81: case 0xc7: immediate = 4; break;
  default: return 0;
  }
  mod = *p >> 6;
  rm = *p++ & 7;
  if (mod == 0 && rm == 5) {
    *relative = (int)(p - from);
    mod = 2; // four bytes, too
  }
  if (mod != 3 && rm == 4) {
    if (mod == 0 && (*p & 7) == 5) return 0;
    p++;
  }
  return (int)(p - from) + (mod == 1 ? 1 : mod == 2 ? 4 : 0) + immediate;
}

static void jump(uint8_t *at, const void *to) {
  static const uint8_t code[] = {0xff, 0x25, 0, 0, 0, 0};
  memcpy(at, code, sizeof code);
  memcpy(at + sizeof code, &to, sizeof to);
}

// near maps a page that a jump from the function reaches.
static uint8_t *near(uintptr_t function) {
  uintptr_t step, base = function & -(uintptr_t)PAGE;
  for (step = 1 << 20; step < 0x70000000; step += 1 << 20) {
    for (int up = 0; up < 2; up++) {
      void *at = (void *)(up ? base + step : base - step);
      void *p = mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      if (p == at) return p;
      if (p != MAP_FAILED) munmap(p, PAGE);
    }
  }
  return NULL;
}

// lay fills a slot: the function's first instructions and a jump behind them, then a jump to the
// hook. It returns errno.
static int lay(uint8_t *slot, int call, const uint8_t *function) {
  int n = 0, one, relative;
  while (n < NEAR) {
    if ((one = length(function + n, &relative)) == 0) return ENOTSUP;
    memcpy(slot + n, function + n, one);
    if (relative != 0) {
      int32_t distance;
      memcpy(&distance, slot + n + relative, sizeof distance);
      distance += (int32_t)(function - slot); // the page is near
      memcpy(slot + n + relative, &distance, sizeof distance);
    }
    n += one;
  }
  jump(slot + n, function + n);
  jump(slot + SLOT - FAR, hooks[call]);
  original[call] = (function_t)slot;
  return 0;
}

// divert has the function begin with a jump to its hook: written at once, as other threads may
// be calling it.
static void divert(const uint8_t *slot, uint8_t *function) {
  int32_t to = (int32_t)(slot + SLOT - FAR - (function + NEAR));
  uint64_t code;
  memcpy(&code, function, sizeof code);
  memcpy((uint8_t *)&code + 1, &to, sizeof to);
  *(uint8_t *)&code = 0xe9;
  if ((uintptr_t)function % sizeof code == 0) {
    __atomic_store_n((uint64_t *)function, code, __ATOMIC_SEQ_CST);
  } else {
    memcpy(function, &code, NEAR);
  }
}

// unprotect makes the pages of a function's begin writable, or not so again.
static int unprotect(uintptr_t function, int write) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = function & -page;
  return mprotect((void *)from, function + 2 * FAR - from, PROT_READ | PROT_EXEC | (write ? PROT_WRITE : 0)) == 0 ? 0 : errno;
}
#endif

// wattmark_watch puts the hooks before the functions at these addresses, 0 for one that is not
// there, and fills in the ways into the functions themselves. It returns errno: ENOTSUP on another
// processor, or for a function that begins in an unknown way.
int wattmark_watch(const uintptr_t functions[CALLS], uintptr_t originals[CALLS]) {
#ifdef __x86_64__
  uint8_t *page = near(functions[REGISTER]);
  int call, failed = page ? 0 : ENOMEM;
  for (call = 0; call < CALLS; call++) original[call] = (function_t)functions[call];
  for (call = 0; call < CALLS && failed == 0; call++) {
    if (functions[call] != 0) failed = lay(page + call * SLOT, call, (uint8_t *)functions[call]);
  }
  if (failed == 0 && mprotect(page, PAGE, PROT_READ | PROT_EXEC) != 0) failed = errno;
  owner = getpid();
  for (call = 0; call < CALLS && failed == 0; call++) {
    if (functions[call] == 0 || (failed = unprotect(functions[call], 1)) != 0) continue;
    divert(page + call * SLOT, (uint8_t *)functions[call]);
    unprotect(functions[call], 0);
  }
  for (call = 0; call < CALLS; call++) originals[call] = (uintptr_t)original[call];
  return failed;
#else
  return ENOTSUP;
#endif
}

void wattmark_unwatch(void) { owner = 0; }
