/* SPDX-License-Identifier: MIT
 * Launchers of the test kernels, and of the kernels with planted faults. */
#ifndef PLEMU_TEST_KERNELS_H
#define PLEMU_TEST_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t launch_silu(const float *x, const float *y, float *out, int n, cudaStream_t s);
cudaError_t launch_axpy4(float a, const float *x, float *y, int n, cudaStream_t s);
cudaError_t launch_softmax(const float *x, float *y, int rows, int columns, cudaStream_t s);
cudaError_t launch_matmul(const float *a, const float *b, float *c, int m, int n, int k,
                          cudaStream_t s);
cudaError_t launch_histogram(const int *x, int n, int *bins, int nbins, float *sum,
                             cudaStream_t s);
cudaError_t launch_rms(const void *x, void *y, int rows, int columns, int bf16, cudaStream_t s);
cudaError_t launch_mma(const void *a, const void *b, float *c, int m, int n, int k, int bf16,
                       cudaStream_t s);
cudaError_t launch_votes(int *out, int threads, cudaStream_t s);
cudaError_t launch_early_exit(const float *x, float *out, int n, cudaStream_t s);
cudaError_t launch_fill(float *out, float v, int n, cudaStream_t s);
cudaError_t launch_add1(const float *x, float *out, int n, cudaStream_t s);
cudaError_t launch_shape(int gx, int gy, int bx, int by, int bz, size_t shared);
cudaError_t allow_shared(size_t bytes);
cudaError_t shared_allowed(int *bytes);
cudaError_t set_table(const float table[4]);
cudaError_t launch_table(float *out, cudaStream_t s);

/* Runs the kernel with the named fault on n elements of x; cudaErrorUnknown for no such name. */
cudaError_t launch_fault(const char *name, const float *x, float *out, int n, cudaStream_t s);

#ifdef __cplusplus
}
#endif
#endif
