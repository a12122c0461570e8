// Two kernels that run at once, then a CUDA graph of ten kernels launched a
// thousand times. Prints how many kernels that are.
#include <cstdio>

__global__ void spin(long long ns) {
  long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < ns);
}
__global__ void busy(float *x, int n) {
  float v = threadIdx.x;
  for (int i = 0; i < n; i++) v = v * 1.0001f + 0.5f;
  if (v == 42.0f) *x = v;
}

static bool ok(cudaError_t e) {
  if (e != cudaSuccess) fprintf(stderr, "%s\n", cudaGetErrorString(e));
  return e == cudaSuccess;
}

int main() {
  float *x;
  cudaStream_t a, b;
  if (!ok(cudaMalloc(&x, 4)) || !ok(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking)) || !ok(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking))) return 1;
  int kernels = 0;
  for (int i = 0; i < 20; i++, kernels += 2) {
    busy<<<64, 256, 0, a>>>(x, 20000000);
    spin<<<64, 256, 0, b>>>(20000000);
    if (!ok(cudaDeviceSynchronize())) return 1;
  }
  cudaGraph_t g;
  cudaGraphExec_t e;
  if (!ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal))) return 1;
  for (int i = 0; i < 10; i++) busy<<<132, 256, 0, a>>>(x, 20000);
  if (!ok(cudaStreamEndCapture(a, &g)) || !ok(cudaGraphInstantiate(&e, g, 0))) return 1;
  for (int i = 0; i < 1000; i++, kernels += 10)
    if (!ok(cudaGraphLaunch(e, a))) return 1;
  if (!ok(cudaDeviceSynchronize())) return 1;
  printf("{\"kernels\":%d}\n", kernels);
  return 0;
}
