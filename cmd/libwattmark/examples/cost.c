/*
 * What the calls cost on this machine: through wattmark host where it runs, or with
 * WATTMARK_HOST=none without. Needs no nvcc:
 *
 *   cc -O2 cost.c -lwattmark -o cost && ./cost && WATTMARK_HOST=none ./cost
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <time.h>

#include "power.h"
#include "wattmark.h"

enum { MARKS = 2000 };

static double now(void) { /* in microseconds */
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

int main(void) {
  wm_measurement m;
  double a = now(), worst = 0, b, c, d;
  int code = wm_begin(NULL, "cost", NULL, &m);
  b = now();
  if (code != WM_OK) {
    fprintf(stderr, "%s\n", wm_error());
    return code;
  }
  for (int i = 0; i < MARKS; i++) {
    double t = now();
    if ((code = wm_marker(m, "mark", NULL)) != WM_OK) fprintf(stderr, "%s\n", wm_error());
    t = now() - t;
    if (t > worst) worst = t;
  }
  c = now();
  if (P_memory_test(300) != 0) P_getError();
  d = now();
  code = wm_end(m, NULL);
  printf("wm_begin %.1f ms, wm_marker %.2f us on average and %.1f us at most, wm_end %.1f ms\n", 1e-3 * (b - a), (c - b) / MARKS, worst, 1e-3 * (now() - d));
  if (code != WM_OK) fprintf(stderr, "%s\n", wm_error());
  return code;
}
