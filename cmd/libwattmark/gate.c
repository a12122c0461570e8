// What C programs call. Go cannot run in a child after fork, so every call
// passes here first; and errors belong to the calling thread.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "_cgo_export.h"
#include "power.h"
#include "wattmark.h"

enum { TEXT = 8192 };

static pid_t owner; // the process in which Go runs
static pthread_once_t leaving = PTHREAD_ONCE_INIT;

__attribute__((constructor)) static void loaded(void) { owner = getpid(); }

// A thread's text is on the heap: Go's library has its thread-local storage in
// the little that the loader keeps for libraries loaded late.
static pthread_key_t texts;
static pthread_once_t keyed = PTHREAD_ONCE_INIT;
static char none[TEXT]; // where there is no memory

static void makeKey(void) { pthread_key_create(&texts, free); }

static char *text(void) {
  char *p;
  pthread_once(&keyed, makeKey);
  p = pthread_getspecific(texts);
  if (p == NULL && (p = calloc(1, TEXT)) != NULL) pthread_setspecific(texts, p);
  return p == NULL ? none : p;
}

static int forked(void) {
  if (getpid() == owner) return 0;
  snprintf(text(), TEXT, "wattmark cannot be used in a child after fork: call exec first, or measure in the parent");
  return 1;
}

static void atExit(void) {
  if (getpid() == owner) wmgo_exit();
}

static void watchExit(void) { atexit(atExit); }

void wm_options_init(wm_options *o) {
  if (o == NULL) return;
  memset(o, 0, sizeof *o);
  o->size = sizeof *o;
  o->warm_up_ms = 200;
  o->lease_ms = 30000;
}

int wm_begin(const char *user, const char *name, const wm_options *options, wm_measurement *m) {
  wm_options defaults;
  if (forked()) return WM_E_FORK;
  pthread_once(&leaving, watchExit);
  if (options == NULL) {
    wm_options_init(&defaults);
    options = &defaults;
  }
  return wmgo_begin((char *)user, (char *)name, (wm_options *)options, m, text(), TEXT);
}

int wm_marker(wm_measurement m, const char *label, void *stream) {
  if (forked()) return WM_E_FORK;
  return wmgo_marker(m, (char *)label, (uintptr_t)stream, text(), TEXT);
}

int wm_end(wm_measurement m, wm_result *result) {
  if (forked()) return WM_E_FORK;
  return wmgo_end(m, result, text(), TEXT);
}

int wm_cancel(wm_measurement m) {
  if (forked()) return WM_E_FORK;
  return wmgo_cancel(m, text(), TEXT);
}

const char *wm_error(void) { return text(); }

static const char *const words[] = {
    "no error", "an argument cannot be", "no such measurement", "call out of order", "the bench is busy",
    "the monitor does not answer", "the bench cannot measure now", "the GPU or its driver failed",
    "the task database cannot be used", "measured, but incomplete", "given up",
    "not in a child after fork", "failed", "the host daemon does not answer, or was lost"};

const char *wm_code_text(int code) {
  return code >= 0 && code < (int)(sizeof words / sizeof *words) ? words[code] : "unknown code";
}

// The paper's functions keep their errors in one buffer for the process.
static pthread_mutex_t sharing = PTHREAD_MUTEX_INITIALIZER;
static char shared[TEXT];
static int sharedCode;

static int keep(int code) {
  pthread_mutex_lock(&sharing);
  memcpy(shared, text(), sizeof shared);
  sharedCode = code;
  pthread_mutex_unlock(&sharing);
  return -1;
}

// A call returns what it is asked for, or minus its error code. With a remark
// in text a number is returned all the same.
static int paper(int n) {
  if (n < 0) return keep(-n);
  if (text()[0] != '\0') keep(WM_E_INCOMPLETE);
  return n;
}

#define ENTER                           \
  do {                                  \
    if (forked()) return keep(WM_E_FORK); \
    text()[0] = '\0';                   \
    fflush(stdout);                     \
  } while (0)

int P_startMonitor(void) {
  ENTER;
  pthread_once(&leaving, watchExit);
  return paper(wmgo_p_start(text(), TEXT));
}
int P_marker(void) { ENTER; return paper(wmgo_p_marker(text(), TEXT)); }
int P_stopMonitor(void) { ENTER; return paper(wmgo_p_stop(text(), TEXT)); }
int P_waitData(void) { ENTER; return paper(wmgo_p_wait(text(), TEXT)); }
int P_receiveData(int fd, struct record *rec) { ENTER; return paper(wmgo_p_receive(fd, rec, text(), TEXT)); }
int P_storeData(struct record *rec) { ENTER; return paper(wmgo_p_store(rec, text(), TEXT)); }
int P_half_test(int ms) { ENTER; return paper(wmgo_p_test("half", ms, text(), TEXT)); }
int P_compute_test(int ms) { ENTER; return paper(wmgo_p_test("compute", ms, text(), TEXT)); }
int P_memory_test(int ms) { ENTER; return paper(wmgo_p_test("memory", ms, text(), TEXT)); }

int P_getError(void) {
  int code;
  pthread_mutex_lock(&sharing);
  code = sharedCode;
  if (code != 0) fprintf(stderr, "%s\n", shared);
  sharedCode = 0;
  pthread_mutex_unlock(&sharing);
  return code;
}

int dbOpen(char *name) { ENTER; return paper(wmgo_db_open(name, text(), TEXT)); }
int dbReadByID(int id) { ENTER; return paper(wmgo_db_read(id, NULL, text(), TEXT)); }
int dbReadByTaskName(char *name) {
  ENTER;
  return paper(wmgo_db_read(0, name == NULL ? "" : name, text(), TEXT));
}
int dbGetUser(void) { ENTER; return paper(wmgo_db_users(text(), TEXT)); }
int dbGetTaskByUser(char *user) { ENTER; return paper(wmgo_db_tasks(user, text(), TEXT)); }
int dbDeleteByID(int id) { ENTER; return paper(wmgo_db_delete(0, id, NULL, text(), TEXT)); }
int dbDeleteByTaskName(char *name) { ENTER; return paper(wmgo_db_delete(1, 0, name, text(), TEXT)); }
int dbDeleteByUser(char *user) { ENTER; return paper(wmgo_db_delete(2, 0, user, text(), TEXT)); }
int dbClose(void) { ENTER; return paper(wmgo_db_close(text(), TEXT)); }
