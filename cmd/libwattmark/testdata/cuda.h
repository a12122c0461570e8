/* As much of CUDA's driver API as the test programs use. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
#define cuCtxCreate cuCtxCreate_v2
#define cuCtxDestroy cuCtxDestroy_v2
int cuInit(unsigned flags);
int cuCtxCreate(CUcontext *context, unsigned flags, int device);
int cuCtxDestroy(CUcontext context);
int cuCtxSetCurrent(CUcontext context);
int cuCtxGetCurrent(CUcontext *context);
int cuCtxSynchronize(void);
int cuStreamCreate(CUstream *stream, unsigned flags);
int cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options, void **values);
int cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
int cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, CUstream stream, void **params, void **extra);
#ifdef __cplusplus
}
#endif
#endif
