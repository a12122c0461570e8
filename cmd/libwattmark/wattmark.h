/*
 * wattmark: measures what a GPU really draws, from inside a program.
 *
 *   wm_measurement m;
 *   if (wm_begin("lab", "step", NULL, &m) != WM_OK) { puts(wm_error()); ... }
 *   kernel<<<grid, block>>>(...);
 *   wm_result r;
 *   r.size = sizeof r;
 *   if (wm_end(m, &r) == WM_OK) printf("%.3f J +- %.3f J\n", r.energy_j, r.energy_u_j);
 *
 * Link with -lwattmark. C99 and C++17. Every function may be called from any
 * thread; not in a child after fork (WM_E_FORK), where exec is needed first.
 * Where wattmark host runs, the program is measured through it: it holds the bench
 * and writes the database, and when the program dies the bench is free at once.
 * Where none runs, the library does that itself. Reference: wattmark(3), docs/c-api.md.
 */
#ifndef WATTMARK_H
#define WATTMARK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call came to. The numbers do not change. */
enum wm_code {
  WM_OK = 0,
  WM_E_ARGUMENT = 1,   /* an argument cannot be */
  WM_E_HANDLE = 2,     /* no such measurement: never begun, or ended already */
  WM_E_STATE = 3,      /* a call out of order */
  WM_E_BUSY = 4,       /* somebody else holds the bench */
  WM_E_MONITOR = 5,    /* the monitor does not answer, or lost the capture */
  WM_E_BENCH = 6,      /* the monitor cannot use its instrument, or measures another GPU */
  WM_E_GPU = 7,        /* no driver, no such GPU, or a CUDA call failed */
  WM_E_DATABASE = 8,   /* the task database cannot be used */
  WM_E_INCOMPLETE = 9, /* measured, but something is missing: see reason */
  WM_E_CANCELLED = 10, /* given up by wm_cancel */
  WM_E_FORK = 11,      /* called in a child after fork */
  WM_E_FAILED = 12,    /* anything else: see wm_error */
  WM_E_HOST = 13       /* the host daemon does not answer, or was lost */
};

/* A measurement; always above 0. */
typedef int64_t wm_measurement;

enum wm_flag {
  WM_NO_SENSOR = 1 /* do not read the GPU's own sensor beside the meter */
};

/* How to measure. Fill by wm_options_init, then change what you want. */
typedef struct wm_options {
  size_t size;           /* sizeof(wm_options) */
  const char *monitor;   /* host:port; NULL: WATTMARK_MONITOR, else the daemon's, else 127.0.0.1:7551 */
  const char *database;  /* file; NULL: WATTMARK_DB, else the daemon's, else power.db */
  const char *device;    /* index, UUID or PCI bus id, in its primary context; sim:SOCKET, a simulated GPU;
                            NULL: WATTMARK_GPU's where that is simulated, else the calling thread's current
                            context, else the first GPU */
  void *const *streams;  /* CUstream or cudaStream_t that carry the work, of the current context.
                            The first plays the markers, wm_end waits for all of them. */
  size_t stream_count;   /* 0: markers in the default stream, wm_end waits for the whole context */
  unsigned warm_up_ms;   /* load the GPU so long before the first marker; 200 */
  unsigned wait_ms;      /* queue so long for a busy bench; 0 */
  unsigned lease_ms;     /* the bench is free so long after the death of who holds it, which is the
                            daemon, or the program without one; 30000, at least 1000 */
  unsigned flags;        /* enum wm_flag */
  const char *host;      /* the daemon (wattmark host): unix:PATH, or "none" to measure without one;
                            NULL: WATTMARK_HOST, else the one at the default socket, else none */
} wm_options;

/* What was measured. Numbers that are not known are NaN. */
typedef struct wm_result {
  size_t size;         /* sizeof(wm_result), set by the caller */
  int64_t task;        /* its number in the task database; 0: there is none */
  int state;           /* 2 complete, 3 incomplete, 4 no window was found, 5 the work failed; 1 unfinished, its daemon was lost */
  double energy_j;     /* of all rails over the work */
  double energy_u_j;   /* expanded uncertainty, k = 2 */
  double seconds;      /* length of the work on the meter's clock */
  double mean_w, peak_w;
  double sensor_j;     /* by the GPU's own sensor over the same time */
  uint64_t samples;    /* scans in the window */
  uint64_t gaps, lost; /* losses in the window, and scans lost in them */
  char reason[1024];   /* remarks, and why a task is not complete */
} wm_result;

/* Set the defaults. */
void wm_options_init(wm_options *options);

/*
 * Wait for the work already queued, take the bench, play the start marker and
 * return when it has been played: what is queued from here on is measured.
 * options may be NULL; its texts are copied.
 */
int wm_begin(const char *user, const char *name, const wm_options *options, wm_measurement *measurement);

/*
 * Name what follows in a stream (NULL: the measurement's own): the work is kept
 * as parts, bounded by the GPU's clock. Does not wait. At most 4096 a measurement.
 */
int wm_marker(wm_measurement measurement, const char *label, void *stream);

/*
 * Wait for the work, play the stop marker, fetch the samples, and say what was
 * drawn. The measurement is over whatever is returned. result may be NULL.
 */
int wm_end(wm_measurement measurement, wm_result *result);

/* Give a measurement up: the task is kept, as incomplete, and the bench is free. */
int wm_cancel(wm_measurement measurement);

/* What the last failed call of this thread says, with all causes; "" for none. */
const char *wm_error(void);

/* A code in words. */
const char *wm_code_text(int code);

#ifdef __cplusplus
}
#endif
#endif
