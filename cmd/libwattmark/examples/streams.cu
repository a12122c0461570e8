// Work in two streams: the markers are played in the first, wm_end waits for
// both, and marks name the parts.
//
//   nvcc streams.cu -lwattmark -o streams && ./streams
#include <cstdio>
#include <cstdlib>

#include "wattmark.h"

__global__ void spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

static void need(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "%s: %s\n", what, wm_error());
  exit(1);
}

int main() {
  cudaStream_t s[2];
  for (cudaStream_t &x : s) need(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking) == cudaSuccess, "cudaStreamCreate");
  void *streams[] = {s[0], s[1]};
  wm_options o;
  wm_options_init(&o);
  o.streams = streams;
  o.stream_count = 2;
  wm_measurement m;
  need(wm_begin(nullptr, "both", &o, &m) == WM_OK, "wm_begin");
  spin<<<64, 64, 0, s[0]>>>(200000000);
  spin<<<64, 64, 0, s[1]>>>(200000000);
  need(wm_marker(m, "second alone", s[0]) == WM_OK, "wm_marker");
  spin<<<64, 64, 0, s[1]>>>(400000000);
  wm_result r;
  r.size = sizeof r;
  need(wm_end(m, &r) == WM_OK, "wm_end");
  printf("task %lld: %.3f J +- %.3f J in %.4f s\n", (long long)r.task, r.energy_j, r.energy_u_j, r.seconds);
  return 0;
}
