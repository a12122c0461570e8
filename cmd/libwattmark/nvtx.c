// The ranges of NVTX: a program's first call of it loads the library that NVTX_INJECTION64_PATH
// names, and takes its functions from InitializeInjectionNvtx2 (nvtxTypes.h, nvtxInit.h).
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

enum { PUSH, POP, START, END }; // as launchlog.RangeKind has them
extern void wattmark_range(int kind, uint32_t thread, int64_t at, uint64_t id, char *domain, char *name);

typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const void *message;
} attributes_t; // nvtxEventAttributes_t
enum { ASCII = 1, UNICODE = 2, REGISTERED = 3 };

static uint64_t started;
static __thread int depth;
static pid_t owner;

// tell hands an event on. The thread is in CUPTI's words: the low half of pthread_self.
static void tell(int kind, uint64_t id, const char *domain, const char *name) {
  struct timespec t;
  if (owner == 0) owner = getpid();
  if (owner != getpid()) return; // a forked child has no Go threads
  clock_gettime(CLOCK_REALTIME, &t);
  wattmark_range(kind, (uint32_t)(uintptr_t)pthread_self(), (int64_t)t.tv_sec * 1000000000 + t.tv_nsec, id, (char *)(domain ? domain : ""), (char *)name);
}

// narrow is a name of wide characters in ASCII, for as long as the thread makes no other.
static const char *narrow(const wchar_t *w) {
  static __thread char text[256];
  size_t i;
  for (i = 0; i < sizeof text - 1 && w && w[i]; i++) text[i] = w[i] < 0x80 ? (char)w[i] : '?';
  text[i] = 0;
  return text;
}

static const char *message(const attributes_t *a) {
  if (!a || a->size < sizeof *a || !a->message) return "";
  if (a->message_type == UNICODE) return narrow(a->message);
  return a->message_type == ASCII || a->message_type == REGISTERED ? a->message : "";
}

static int push(const char *domain, const char *name) {
  tell(PUSH, 0, domain, name);
  return depth++;
}
static int pop(const char *domain) {
  tell(POP, 0, domain, "");
  return depth > 0 ? --depth : -1;
}
static uint64_t start(const char *domain, const char *name) {
  uint64_t id = __atomic_add_fetch(&started, 1, __ATOMIC_RELAXED);
  tell(START, id, domain, name);
  return id;
}

static uint64_t start_ex(const attributes_t *a) { return start(0, message(a)); }
static uint64_t start_a(const char *name) { return start(0, name ? name : ""); }
static uint64_t start_w(const wchar_t *name) { return start(0, narrow(name)); }
static void end(uint64_t id) { tell(END, id, 0, ""); }
static int push_ex(const attributes_t *a) { return push(0, message(a)); }
static int push_a(const char *name) { return push(0, name ? name : ""); }
static int push_w(const wchar_t *name) { return push(0, narrow(name)); }
static int pop_core(void) { return pop(0); }
// A domain's handle, and a registered string's, is a copy of its name.
static uint64_t domain_start(const char *domain, const attributes_t *a) { return start(domain, message(a)); }
static void domain_end(const char *domain, uint64_t id) { tell(END, id, domain, ""); }
static int domain_push(const char *domain, const attributes_t *a) { return push(domain, message(a)); }
static int domain_pop(const char *domain) { return pop(domain); }
static char *domain_string(const char *domain, const char *text) { return strdup(text ? text : ""); }
static char *domain_string_w(const char *domain, const wchar_t *text) { return strdup(narrow(text)); }
static char *domain_create(const char *name) { return strdup(name ? name : ""); }
static char *domain_create_w(const wchar_t *name) { return strdup(narrow(name)); }

// For programs without NVTX, as the Python module is.
void wattmark_range_push(const char *name) { push(0, name); }
void wattmark_range_pop(void) { pop(0); }

typedef struct {
  size_t size;
  int (*table)(int module, void ****functions, unsigned *n);
} callbacks_t; // NvtxExportTableCallbacks

static void set(const callbacks_t *c, int module, unsigned at, void *function) {
  void ***functions;
  unsigned n = 0;
  if (c->table(module, &functions, &n) && at < n && functions[at]) *functions[at] = function;
}

int InitializeInjectionNvtx2(const void *(*table)(uint32_t)) {
  enum { CALLBACKS = 1, CORE = 1, CORE2 = 5 };
  static void *const core[] = {[4] = start_ex, start_a, start_w, end, push_ex, push_a, push_w, pop_core};
  static void *const core2[] = {[2] = domain_start, domain_end, domain_push, domain_pop, [10] = domain_string, domain_string_w, domain_create, domain_create_w};
  const callbacks_t *c = table(CALLBACKS);
  unsigned i;
  if (!c || c->size < sizeof *c) return 0;
  for (i = 0; i < sizeof core / sizeof *core; i++) if (core[i]) set(c, CORE, i, core[i]);
  for (i = 0; i < sizeof core2 / sizeof *core2; i++) if (core2[i]) set(c, CORE2, i, core2[i]);
  return 1;
}
