// What wm_marker costs the host, in microseconds: a thousand calls within a
// measurement, each behind a kernel in the same stream.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "wattmark.h"

__global__ void nothing() {}

int main() {
  const int n = 1000;
  static double us[n];
  wm_measurement m;
  nothing<<<1, 1>>>();
  cudaDeviceSynchronize();
  if (wm_begin("lab", "cost of a mark", nullptr, &m) != WM_OK) return fprintf(stderr, "%s\n", wm_error()), 1;
  for (double &x : us) {
    nothing<<<1, 1>>>();
    const auto start = std::chrono::steady_clock::now();
    if (wm_marker(m, "mark", nullptr) != WM_OK) return fprintf(stderr, "%s\n", wm_error()), 1;
    x = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }
  wm_result r;
  r.size = sizeof r;
  const int code = wm_end(m, &r);
  std::sort(us, us + n);
  printf("{\"marker_us\":%.2f,\"p99_us\":%.2f,\"most_us\":%.2f,\"code\":%d,\"energy_j\":%.3f,\"u_j\":%.3f}\n", us[n / 2], us[n * 99 / 100], us[n - 1], code, r.energy_j, r.energy_u_j);
  return 0;
}
