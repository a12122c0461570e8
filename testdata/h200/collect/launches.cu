// What a launch costs on the host: empty kernels, five rounds, the median of them.
// Prints one JSON object; run it alone, recorded, and recorded with markers.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

__global__ void nothing() {}

int main(int argc, char **argv) {
  const int launches = argc > 1 ? atoi(argv[1]) : 100000, rounds = 5;
  double us[rounds];
  nothing<<<1, 1>>>();
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  for (double &x : us) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; i++) nothing<<<1, 1>>>();
    const auto end = std::chrono::steady_clock::now();
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    x = std::chrono::duration<double, std::micro>(end - start).count() / launches;
  }
  std::sort(us, us + rounds);
  printf("{\"kernels\":%d,\"launch_us\":%.4f,\"least_us\":%.4f,\"most_us\":%.4f}\n", rounds * launches + 1, us[rounds / 2], us[0], us[rounds - 1]);
  return 0;
}
