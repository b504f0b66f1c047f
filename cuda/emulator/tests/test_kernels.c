/* SPDX-License-Identifier: MIT
 * Kernels compute what the mathematics says: elementwise, reductions, tiles, atomics, votes,
 * 16-bit types, tensor-core fragments, constants, launch limits. */
#include <stdint.h>

#include "check.h"
#include "kernels.h"

static void test_elementwise(void) {
  enum { n = 10007, m = n / 4 * 4 };
  static float x[n], y[n];
  unsigned seed = 1;
  for (int i = 0; i < n; i++) {
    x[i] = 4 * random_float(&seed);
    y[i] = random_float(&seed);
  }
  float *dx = device_floats(x, n), *dy = device_floats(y, n), *out = device_floats(NULL, n);
  OK(launch_silu(dx, dy, out, n, 0));
  OK(launch_axpy4(2.0f, dx, dy, m, 0));
  float *silu = host_floats(out, n), *axpy = host_floats(dy, n);
  double worst = 0;
  for (int i = 0; i < n; i++)
    worst = fmax(worst, fabs(silu[i] - x[i] / (1 + exp(-(double)x[i])) * y[i]));
  EXPECT(worst < 1e-5, "silu is off by %g", worst);
  worst = 0;
  for (int i = 0; i < n; i++)
    worst = fmax(worst, fabs(axpy[i] - (i < m ? 2.0 * x[i] + y[i] : y[i])));
  EXPECT(worst < 1e-6, "axpy is off by %g", worst);
  OK(cudaFree(dx));
  OK(cudaFree(dy));
  OK(cudaFree(out));
  free(silu);
  free(axpy);
}

static void test_softmax(void) {
  enum { rows = 7, columns = 1000 };
  static float x[rows * columns];
  unsigned seed = 2;
  for (int i = 0; i < rows * columns; i++) x[i] = 10 * random_float(&seed);
  float *dx = device_floats(x, rows * columns), *dy = device_floats(NULL, rows * columns);
  OK(launch_softmax(dx, dy, rows, columns, 0));
  float *y = host_floats(dy, rows * columns);
  double worst = 0;
  for (int r = 0; r < rows; r++) {
    const float *row = x + r * columns;
    double max = -INFINITY, sum = 0;
    for (int c = 0; c < columns; c++) max = fmax(max, row[c]);
    for (int c = 0; c < columns; c++) sum += exp(row[c] - max);
    for (int c = 0; c < columns; c++)
      worst = fmax(worst, fabs(y[r * columns + c] - exp(row[c] - max) / sum));
  }
  EXPECT(worst < 1e-6, "softmax is off by %g", worst);
  OK(cudaFree(dx));
  OK(cudaFree(dy));
  free(y);
}

static void test_matmul(void) {
  enum { m = 50, n = 70, k = 33 };
  static float a[m * k], b[k * n];
  unsigned seed = 3;
  for (int i = 0; i < m * k; i++) a[i] = random_float(&seed);
  for (int i = 0; i < k * n; i++) b[i] = random_float(&seed);
  float *da = device_floats(a, m * k), *db = device_floats(b, k * n);
  float *dc = device_floats(NULL, m * n);
  OK(launch_matmul(da, db, dc, m, n, k, 0));
  float *c = host_floats(dc, m * n);
  double worst = 0;
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      double sum = 0;
      for (int t = 0; t < k; t++) sum += (double)a[i * k + t] * b[t * n + j];
      worst = fmax(worst, fabs(c[i * n + j] - sum));
    }
  EXPECT(worst < 1e-4, "matmul is off by %g", worst);
  OK(cudaFree(da));
  OK(cudaFree(db));
  OK(cudaFree(dc));
  free(c);
}

static void test_histogram(void) {
  enum { n = 5000, bins = 64 };
  static int x[n];
  int wanted[bins] = {0}, got[bins];
  double sum = 0;
  float device_sum;
  for (int i = 0; i < n; i++) {
    x[i] = i * 7919 % bins;
    wanted[x[i]]++;
    sum += x[i];
  }
  int *dx = device_bytes(x, sizeof x), *dbins = device_bytes(NULL, sizeof got);
  float *dsum = device_floats(NULL, 1);
  OK(cudaMemset(dbins, 0, sizeof got));
  OK(cudaMemset(dsum, 0, sizeof(float)));
  OK(launch_histogram(dx, n, dbins, bins, dsum, 0));
  OK(cudaMemcpy(got, dbins, sizeof got, cudaMemcpyDeviceToHost));
  OK(cudaMemcpy(&device_sum, dsum, sizeof device_sum, cudaMemcpyDeviceToHost));
  EXPECT(!memcmp(got, wanted, sizeof got), "histogram differs");
  EXPECT(device_sum == sum, "atomic float sum is %g, wanted %g", device_sum, sum);
  OK(cudaFree(dx));
  OK(cudaFree(dbins));
  OK(cudaFree(dsum));
}

/* 16-bit values that are exact in both formats: multiples of 1/8 up to 15.875. */
static uint16_t to_half(float v, int bf16) {
  uint32_t u;
  memcpy(&u, &v, 4);
  if (bf16) return (uint16_t)(u >> 16);
  if (v == 0) return 0;
  const int exponent = (int)(u >> 23 & 0xff) - 127 + 15;
  return (uint16_t)((u >> 16 & 0x8000) | (uint32_t)exponent << 10 | (u >> 13 & 0x3ff));
}

static double from_half(uint16_t h, int bf16) {
  if (bf16) {
    const uint32_t u = (uint32_t)h << 16;
    float v;
    memcpy(&v, &u, 4);
    return v;
  }
  const int exponent = h >> 10 & 31;
  const double v = exponent ? ldexp(1024 + (h & 0x3ff), exponent - 25) : ldexp(h & 0x3ff, -24);
  return h & 0x8000 ? -v : v;
}

static void test_rms(int bf16) {
  enum { rows = 3, n = 300 };
  uint16_t x[rows * n], y[rows * n];
  for (int i = 0; i < rows * n; i++) x[i] = to_half((float)(i * 37 % 255 - 127) / 8, bf16);
  void *dx = device_bytes(x, sizeof x), *dy = device_bytes(NULL, sizeof y);
  OK(launch_rms(dx, dy, rows, n, bf16, 0));
  OK(cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost));
  double worst = 0;
  for (int r = 0; r < rows; r++) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += pow(from_half(x[r * n + i], bf16), 2);
    for (int i = 0; i < n; i++) {
      const double wanted = from_half(x[r * n + i], bf16) / sqrt(sum / n + 1e-5);
      worst = fmax(worst, fabs(from_half(y[r * n + i], bf16) - wanted));
    }
  }
  EXPECT(worst < (bf16 ? 8e-3 : 1e-3), "rms with %s is off by %g", bf16 ? "bf16" : "f16", worst);
  OK(cudaFree(dx));
  OK(cudaFree(dy));
}

static void test_mma(int bf16) {
  enum { m = 32, n = 24, k = 48 };
  uint16_t a[m * k], b[k * n];
  for (int i = 0; i < m * k; i++) a[i] = to_half((float)(i * 29 % 63 - 31) / 8, bf16);
  for (int i = 0; i < k * n; i++) b[i] = to_half((float)(i * 31 % 61 - 30) / 8, bf16);
  void *da = device_bytes(a, sizeof a), *db = device_bytes(b, sizeof b);
  float *dc = device_floats(NULL, m * n);
  OK(launch_mma(da, db, dc, m, n, k, bf16, 0));
  float *c = host_floats(dc, m * n);
  int wrong = 0;
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      double sum = 0;
      for (int t = 0; t < k; t++)
        sum += from_half(a[i * k + t], bf16) * from_half(b[t * n + j], bf16);
      wrong += c[i * n + j] != sum; /* small multiples of 1/64: exact in any order */
    }
  EXPECT(wrong == 0, "mma with %s: %d wrong elements", bf16 ? "bf16" : "f16", wrong);
  OK(cudaFree(da));
  OK(cudaFree(db));
  OK(cudaFree(dc));
  free(c);
}

static void test_votes(int threads) {
  int *out = malloc((size_t)threads * 8 * sizeof(int));
  int *device = device_bytes(NULL, (size_t)threads * 8 * sizeof(int));
  OK(launch_votes(device, threads, 0));
  OK(cudaMemcpy(out, device, (size_t)threads * 8 * sizeof(int), cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int t = 0; t < threads; t++) {
    const int first = t / 32 * 32, lanes = threads - first < 32 ? threads - first : 32;
    const unsigned all = 0xffffffffu >> (32 - lanes);
    unsigned group = 0, sum = 0;
    for (int l = 0; l < lanes; l++) {
      sum += (unsigned)(first + l);
      if ((first + l) / 8 == t / 8) group |= 1u << l;
    }
    const int wanted[8] = {
        (int)(0xaaaaaaaau & all),    (first == 0) | 2,
        (int)group,                  (int)sum,
        threads / 2,                 1 | (threads > 40) << 1,
        first + (t & 1 ? 1 : 2),     t % 8 < 4 ? t : t - 4};
    for (int i = 0; i < 8; i++)
      if (out[8 * t + i] != wanted[i] && wrong++ < 3)
        printf("thread %d of %d, vote %d: %d, wanted %d\n", t, threads, i, out[8 * t + i],
               wanted[i]);
  }
  EXPECT(wrong == 0, "%d wrong votes among %d threads", wrong, threads);
  OK(cudaFree(device));
  free(out);
}

static void test_early_exit(void) {
  float x[256];
  for (int i = 0; i < 256; i++) x[i] = (float)i;
  float *dx = device_floats(x, 256), *out = device_floats(NULL, 256);
  OK(launch_early_exit(dx, out, 100, 0));
  float *y = host_floats(out, 100);
  EXPECT(y[0] == 99 && y[99] == 0, "a barrier after early exits");
  OK(cudaFree(dx));
  OK(cudaFree(out));
  free(y);
}

static void test_constant(void) {
  const float values[4] = {1, 2, 3, 4};
  float *out = device_floats(NULL, 8);
  OK(set_table(values));
  OK(launch_table(out, 0));
  float *y = host_floats(out, 8);
  EXPECT(y[0] == 1 && y[5] == 2 && y[7] == 4, "__constant__ table");
  OK(cudaFree(out));
  free(y);
}

static void test_limits(void) {
  struct cudaDeviceProp p;
  int allowed;
  OK(cudaGetDeviceProperties(&p, 0));
  EXPECT_ERROR(launch_shape(1, 1, 1024, 1, 1, 0), cudaSuccess);
  EXPECT_ERROR(launch_shape(1, 1, 1025, 1, 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_ERROR(launch_shape(1, 1, 32, 33, 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_ERROR(launch_shape(1, 1, 1, 1, 65, 0), cudaErrorInvalidConfiguration);
  EXPECT_ERROR(launch_shape(0, 1, 32, 1, 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_ERROR(launch_shape(1, 65536, 32, 1, 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_ERROR(launch_shape(1, 1, 32, 1, 1, 48 << 10), cudaSuccess);
  EXPECT_ERROR(launch_shape(1, 1, 32, 1, 1, (48 << 10) + 4), cudaErrorInvalidValue);
  EXPECT_ERROR(allow_shared(p.sharedMemPerBlockOptin), cudaSuccess);
  EXPECT_ERROR(launch_shape(1, 1, 32, 1, 1, p.sharedMemPerBlockOptin), cudaSuccess);
  EXPECT_ERROR(launch_shape(1, 1, 32, 1, 1, p.sharedMemPerBlockOptin + 4), cudaErrorInvalidValue);
  EXPECT_ERROR(allow_shared(p.sharedMemPerBlockOptin + 4), cudaErrorInvalidValue);
  OK(shared_allowed(&allowed));
  EXPECT(allowed == (int)p.sharedMemPerBlockOptin, "%d bytes of shared memory are allowed", allowed);
  OK(cudaDeviceSynchronize());
}

void test_kernels(void) {
  test_elementwise();
  test_softmax();
  test_matmul();
  test_histogram();
  test_rms(0);
  test_rms(1);
  test_mma(0);
  test_mma(1);
  test_votes(64);
  test_votes(78);
  test_early_exit();
  test_constant();
  test_limits();
}
