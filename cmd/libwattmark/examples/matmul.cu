// The paper's experiment: a 256x256 matrix product on 16 warps a block, through
// the paper's own interface.
//
//   nvcc matmul.cu -lwattmark -o matmul && ./matmul
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "power.h"

constexpr int N = 256, TILE = 16, ROWS = 2; // 16 x 16 x 2 threads: 16 warps

__global__ void product(const float *a, const float *b, float *c) {
  __shared__ float sa[ROWS * TILE][TILE], sb[TILE][TILE];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * ROWS * TILE + y, col = blockIdx.x * TILE + x;
  float sum = 0;
  for (int k = 0; k < N; k += TILE) {
    sa[y][x] = a[row * N + k + x];
    if (y < TILE) sb[y][x] = b[(k + y) * N + col];
    __syncthreads();
    for (int i = 0; i < TILE; i++) sum += sa[y][i] * sb[i][x];
    __syncthreads();
  }
  c[row * N + col] = sum;
}

static void need(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "%s failed\n", what);
  P_getError();
  exit(1);
}

int main(int argc, char **argv) {
  const int repeat = argc > 1 ? atoi(argv[1]) : 100000; // one takes microseconds
  std::vector<float> a(N * N), b(N * N), c(N * N);
  for (int i = 0; i < N * N; i++) a[i] = float(i % 7), b[i] = float(i % 5);
  float *da, *db, *dc;
  need(cudaMalloc(&da, a.size() * 4) == cudaSuccess && cudaMalloc(&db, b.size() * 4) == cudaSuccess && cudaMalloc(&dc, c.size() * 4) == cudaSuccess, "cudaMalloc");
  cudaMemcpy(da, a.data(), a.size() * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(db, b.data(), b.size() * 4, cudaMemcpyHostToDevice);

  need(P_startMonitor() == 0, "P_startMonitor");
  need(P_marker() == 0, "P_marker");
  for (int i = 0; i < repeat; i++) product<<<dim3(N / TILE, N / (ROWS * TILE)), dim3(TILE, ROWS * TILE)>>>(da, db, dc);
  need(P_marker() == 0, "P_marker");
  need(P_stopMonitor() == 0, "P_stopMonitor");
  const int data = P_waitData();
  need(data > 0, "P_waitData");
  const int n = P_receiveData(data, nullptr);
  need(n > 0, "P_receiveData");
  std::vector<record> rec(n);
  need(P_receiveData(data, rec.data()) == n && P_storeData(rec.data()) == 0, "P_storeData");

  cudaMemcpy(c.data(), dc, c.size() * 4, cudaMemcpyDeviceToHost);
  float want = 0;
  for (int k = 0; k < N; k++) want += a[3 * N + k] * b[k * N + 5];
  need(c[3 * N + 5] == want, "the product");
  double sum = 0;
  for (const record &r : rec) sum += r.power;
  printf("task %d: %d samples, %.2f W on average, %d products\n", rec[0].taskID, n, sum / n, repeat);
  return 0;
}
