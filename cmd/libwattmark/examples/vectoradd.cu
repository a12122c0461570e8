// A vector sum, in the default stream.
//
//   nvcc vectoradd.cu -lwattmark -o vectoradd && ./vectoradd
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "wattmark.h"

__global__ void add(const float *a, const float *b, float *c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

static void need(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "%s: %s\n", what, wm_error());
  exit(1);
}

int main() {
  const int n = 1 << 26;
  float *a, *b, *c;
  need(cudaMalloc(&a, 4l * n) == cudaSuccess && cudaMalloc(&b, 4l * n) == cudaSuccess && cudaMalloc(&c, 4l * n) == cudaSuccess, "cudaMalloc");
  cudaMemset(a, 0, 4l * n);
  cudaMemset(b, 0, 4l * n);
  wm_measurement m;
  need(wm_begin(nullptr, "vectoradd", nullptr, &m) == WM_OK, "wm_begin");
  for (int i = 0; i < 1000; i++) add<<<n / 256, 256>>>(a, b, c, n);

  // What a mark costs this program, beside the kernels that are on their way.
  timespec t0, t1;
  clock_gettime(CLOCK_MONOTONIC, &t0);
  for (int i = 0; i < 100; i++) need(wm_marker(m, "rest", nullptr) == WM_OK, "wm_marker");
  clock_gettime(CLOCK_MONOTONIC, &t1);
  for (int i = 0; i < 1000; i++) add<<<n / 256, 256>>>(a, b, c, n);

  wm_result r;
  r.size = sizeof r;
  need(wm_end(m, &r) == WM_OK, "wm_end");
  printf("task %lld: %.3f J +- %.3f J in %.4f s; the GPU's own sensor says %.3f J; wm_marker %.1f us\n", (long long)r.task, r.energy_j,
         r.energy_u_j, r.seconds, r.sensor_j, (1e6 * double(t1.tv_sec - t0.tv_sec) + 1e-3 * double(t1.tv_nsec - t0.tv_nsec)) / 100);
  return 0;
}
