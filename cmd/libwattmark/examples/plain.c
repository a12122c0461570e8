/*
 * Measures what a program asks the GPU to do, without CUDA of its own: a
 * built-in kernel between two markers. Needs no nvcc:
 *
 *   cc plain.c -lwattmark -o plain && ./plain
 */
#include <stdio.h>

#include "power.h"
#include "wattmark.h"

int main(void) {
  wm_measurement m;
  wm_result r;
  int code = wm_begin(NULL, "plain", NULL, &m);
  if (code != WM_OK) {
    fprintf(stderr, "%s\n", wm_error());
    return code;
  }
  if (P_memory_test(300) != 0) P_getError();
  r.size = sizeof r;
  code = wm_end(m, &r);
  if (code != WM_OK) fprintf(stderr, "%s\n", wm_error());
  if (r.task != 0) printf("task %lld: %.3f J +- %.3f J in %.3f s\n", (long long)r.task, r.energy_j, r.energy_u_j, r.seconds);
  return code;
}
