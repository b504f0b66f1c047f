/* SPDX-License-Identifier: MIT
 * The runtime API as an engine uses it: streams and events, stream-ordered memory, copies,
 * capture and its rules. Everything here holds on a real device too. */
#include <pthread.h>

#include "check.h"
#include "kernels.h"

enum { N = 4096 };

static int all_equal(const float *x, float v, int n) {
  for (int i = 0; i < n; i++)
    if (x[i] != v) return 0;
  return 1;
}

static void test_streams(void) {
  cudaStream_t a = new_stream(), b = new_stream();
  cudaEvent_t event;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  float *p, *q, *h;
  OK(cudaMallocHost((void **)&h, N * sizeof(float)));
  OK(cudaMallocAsync((void **)&p, N * sizeof(float), a));
  OK(launch_fill(p, 3, N, a));
  OK(cudaEventRecord(event, a));
  OK(cudaStreamWaitEvent(b, event, 0));
  OK(cudaMallocAsync((void **)&q, N * sizeof(float), b));
  OK(launch_add1(p, q, N, b));
  OK(cudaMemcpyAsync(h, q, N * sizeof(float), cudaMemcpyDeviceToHost, b));
  OK(cudaFreeAsync(q, b));
  OK(cudaStreamSynchronize(b));
  EXPECT(all_equal(h, 4, N), "two streams joined by an event");

  /* The legacy stream waits for blocking streams, and they for it. */
  cudaStream_t blocking;
  OK(cudaStreamCreate(&blocking));
  OK(launch_fill(p, 5, N, blocking));
  OK(cudaMemcpy(h, p, N * sizeof(float), cudaMemcpyDeviceToHost));
  EXPECT(all_equal(h, 5, N), "a synchronous copy waits for blocking streams");
  OK(launch_fill(p, 6, N, 0));
  OK(cudaMemcpyAsync(h, p, N * sizeof(float), cudaMemcpyDeviceToHost, blocking));
  OK(cudaStreamSynchronize(blocking));
  EXPECT(all_equal(h, 6, N), "a blocking stream waits for the legacy stream");

  /* A destroyed stream's work still runs; the event outlives the stream. */
  OK(launch_fill(p, 7, N, a));
  OK(cudaEventRecord(event, a));
  OK(cudaStreamDestroy(a));
  OK(cudaEventSynchronize(event));
  OK(cudaMemcpy(h, p, N * sizeof(float), cudaMemcpyDeviceToHost));
  EXPECT(all_equal(h, 7, N), "work of a destroyed stream");

  OK(cudaFreeAsync(p, b));
  OK(cudaStreamSynchronize(b));
  OK(cudaFreeHost(h));
  OK(cudaStreamDestroy(b));
  OK(cudaStreamDestroy(blocking));
  OK(cudaEventDestroy(event));
}

static void CUDART_CB add_two(void *user) { *(int *)user += 2; }

static void test_progress(void) {
  cudaStream_t s = new_stream();
  cudaEvent_t from, to;
  float *p = device_floats(NULL, N), ms = -1;
  int called = 0;
  OK(cudaEventCreate(&from));
  OK(cudaEventCreate(&to));
  EXPECT_ERROR(cudaEventQuery(from), cudaSuccess);
  OK(cudaEventRecord(from, s));
  OK(launch_fill(p, 1, N, s));
  OK(cudaLaunchHostFunc(s, add_two, &called));
  OK(cudaEventRecord(to, s));
  int tries = 0;
  while (cudaEventQuery(to) == cudaErrorNotReady) tries++;
  cudaGetLastError();
  OK(cudaEventSynchronize(to));
  OK(cudaEventElapsedTime(&ms, from, to));
  EXPECT(called == 2, "host function ran %d times", called / 2);
  EXPECT(ms >= 0 && ms < 10000, "elapsed %g ms after %d queries", ms, tries);
  EXPECT_ERROR(cudaStreamQuery(s), cudaSuccess);
  OK(cudaFree(p));
  OK(cudaEventDestroy(from));
  OK(cudaEventDestroy(to));
  OK(cudaStreamDestroy(s));
}

static void test_copies(void) {
  enum { rows = 5, width = 7, pitch = 16 };
  float x[rows * width], y[rows * width];
  for (int i = 0; i < rows * width; i++) x[i] = (float)i;
  float *d = device_floats(NULL, rows * pitch), *e = device_floats(NULL, rows * pitch);
  OK(cudaMemset(d, 0, rows * pitch * sizeof(float)));
  OK(cudaMemcpy2D(d, pitch * 4, x, width * 4, width * 4, rows, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(e, d, rows * pitch * 4, cudaMemcpyDeviceToDevice));
  OK(cudaMemcpy2D(y, width * 4, e, pitch * 4, width * 4, rows, cudaMemcpyDeviceToHost));
  EXPECT(!memcmp(x, y, sizeof x), "copies with a pitch");
  struct cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, d + 3));
  EXPECT(attributes.type == cudaMemoryTypeDevice, "type of an inner device pointer");
  OK(cudaPointerGetAttributes(&attributes, x));
  EXPECT(attributes.type == cudaMemoryTypeUnregistered, "type of a host pointer");
  EXPECT_ERROR(cudaFree(x), cudaErrorInvalidValue);
  OK(cudaFree(d));
  OK(cudaFree(e));
}

static void test_pool(void) {
  cudaStream_t s = new_stream();
  cudaMemPool_t pool;
  unsigned long long threshold = 0, reserved, used;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  OK(cudaDeviceSynchronize());
  void *p;
  for (int keep = 0; keep < 2; keep++) {
    threshold = keep ? ~0ull : 0;
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    OK(cudaMallocAsync(&p, 1 << 20, s));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    EXPECT(used >= 1 << 20, "used %llu", used);
    OK(cudaFreeAsync(p, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    EXPECT(keep ? reserved >= 1 << 20 : reserved == 0, "threshold %llu leaves %llu reserved",
           threshold, reserved);
  }
  OK(cudaMemPoolTrimTo(pool, 0));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  EXPECT(reserved == 0, "%llu reserved after trimming", reserved);
  threshold = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  OK(cudaStreamDestroy(s));
}

/* ---- capture ---- */

static cudaGraphExec_t captured(cudaStream_t s, float *p, float *q, cudaStream_t t) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t fork, join;
  size_t nodes = 0;
  OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  OK(launch_add1(p, q, N, s));
  OK(cudaEventRecord(fork, s));
  OK(cudaStreamWaitEvent(t, fork, 0));
  OK(launch_add1(q, p, N, t));
  OK(cudaEventRecord(join, t));
  OK(cudaStreamWaitEvent(s, join, 0));
  OK(launch_add1(p, p, N, s));
  enum cudaStreamCaptureStatus status;
  OK(cudaStreamIsCapturing(t, &status));
  EXPECT(status == cudaStreamCaptureStatusActive, "the second stream joined the capture");
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaGraphGetNodes(graph, NULL, &nodes));
  EXPECT(nodes == 3, "%zu nodes", nodes);
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  OK(cudaEventDestroy(fork));
  OK(cudaEventDestroy(join));
  return exec;
}

static void test_graph(void) {
  cudaStream_t s = new_stream(), t = new_stream();
  float *p = device_floats(NULL, N), *q = device_floats(NULL, N);
  OK(cudaMemset(p, 0, N * sizeof(float)));
  OK(cudaDeviceSynchronize());
  cudaGraphExec_t exec = captured(s, p, q, t);
  float *h = host_floats(p, N);
  EXPECT(all_equal(h, 0, N), "a capture executes nothing");
  free(h);
  for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
  h = host_floats(p, N);
  EXPECT(all_equal(h, 9, N), "three replays give %g", h[0]);
  free(h);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaFree(p));
  OK(cudaFree(q));
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
}

static void *allocate_elsewhere(void *error) {
  void *p = NULL;
  *(cudaError_t *)error = cudaMalloc(&p, 16);
  cudaFree(p);
  cudaGetLastError();
  return NULL;
}

static cudaError_t malloc_in_other_thread(void) {
  pthread_t thread;
  cudaError_t error;
  pthread_create(&thread, NULL, allocate_elsewhere, &error);
  pthread_join(thread, NULL);
  return error;
}

static void begin(cudaStream_t s, enum cudaStreamCaptureMode mode, float *p) {
  OK(cudaStreamBeginCapture(s, mode));
  OK(launch_fill(p, 1, N, s));
}

static void test_capture_rules(void) {
  const enum cudaStreamCaptureMode global = cudaStreamCaptureModeGlobal,
                                   local = cudaStreamCaptureModeThreadLocal,
                                   relaxed = cudaStreamCaptureModeRelaxed;
  cudaStream_t s = new_stream(), t = new_stream(), blocking;
  cudaEvent_t event;
  cudaGraph_t graph;
  float *p = device_floats(NULL, N), x = 0;
  void *q;
  OK(cudaStreamCreate(&blocking));
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));

  begin(s, global, p);
  EXPECT_ERROR(cudaMalloc(&q, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT_ERROR(launch_fill(p, 1, N, s), cudaErrorStreamCaptureInvalidated);
  EXPECT_ERROR(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT(graph == NULL, "a broken capture gives no graph");

  begin(s, global, p);
  EXPECT(malloc_in_other_thread() == cudaErrorStreamCaptureUnsupported,
         "global mode forbids cudaMalloc in other threads");
  EXPECT_ERROR(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);

  begin(s, local, p);
  EXPECT(malloc_in_other_thread() == cudaSuccess, "thread-local mode leaves other threads alone");
  EXPECT_ERROR(cudaMalloc(&q, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT_ERROR(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);

  begin(s, relaxed, p);
  EXPECT_ERROR(cudaMalloc(&q, 16), cudaSuccess);
  OK(cudaFree(q));
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaGraphDestroy(graph));

  begin(s, local, p);
  enum cudaStreamCaptureMode mode = relaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_ERROR(cudaMalloc(&q, 16), cudaSuccess);
  OK(cudaFree(q));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT(mode == relaxed, "the mode before");
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaGraphDestroy(graph));

  begin(s, global, p);
  EXPECT_ERROR(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
  EXPECT_ERROR(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);

  OK(cudaEventRecord(event, t));
  begin(s, global, p);
  EXPECT_ERROR(cudaStreamWaitEvent(s, event, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_ERROR(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);

  begin(s, global, p);
  OK(cudaEventRecord(event, s));
  EXPECT_ERROR(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  EXPECT_ERROR(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);

  begin(s, global, p);
  OK(cudaEventRecord(event, s));
  OK(cudaStreamWaitEvent(t, event, 0));
  OK(launch_fill(p, 2, N, t));
  EXPECT_ERROR(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureUnjoined);

  begin(blocking, relaxed, p);
  EXPECT_ERROR(launch_fill(p, 1, N, 0), cudaErrorStreamCaptureImplicit);
  EXPECT_ERROR(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);

  begin(blocking, global, p);
  EXPECT_ERROR(cudaMemcpy(&x, p, sizeof x, cudaMemcpyDeviceToHost),
               cudaErrorStreamCaptureImplicit);
  EXPECT_ERROR(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);

  EXPECT_ERROR(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);
  EXPECT_ERROR(cudaStreamBeginCapture(0, global), cudaErrorStreamCaptureUnsupported);

  OK(cudaFree(p));
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
  OK(cudaStreamDestroy(blocking));
  OK(cudaEventDestroy(event));
}

static void test_graph_memory(void) {
  cudaStream_t s = new_stream();
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  float *p, *out = device_floats(NULL, N);
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  OK(cudaMallocAsync((void **)&p, N * sizeof(float), s));
  OK(launch_fill(p, 8, N, s));
  OK(launch_add1(p, out, N, s));
  OK(cudaFreeAsync(p, s));
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 2; i++) OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
  float *h = host_floats(out, N);
  EXPECT(all_equal(h, 9, N), "memory allocated in a graph");
  free(h);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaFree(out));
  OK(cudaStreamDestroy(s));
}

/* ---- several host threads, each with a stream ---- */

static void *use_stream(void *wrong) {
  cudaStream_t s = new_stream();
  float *h;
  OK(cudaMallocHost((void **)&h, N * sizeof(float)));
  for (int i = 0; i < 20; i++) {
    float *p, *q;
    OK(cudaMallocAsync((void **)&p, N * sizeof(float), s));
    OK(cudaMallocAsync((void **)&q, N * sizeof(float), s));
    OK(launch_fill(p, (float)i, N, s));
    OK(launch_softmax(p, q, 4, N / 4, s));
    OK(launch_add1(p, q, N, s));
    OK(cudaMemcpyAsync(h, q, N * sizeof(float), cudaMemcpyDeviceToHost, s));
    OK(cudaFreeAsync(p, s));
    OK(cudaFreeAsync(q, s));
    OK(cudaStreamSynchronize(s));
    if (!all_equal(h, (float)i + 1, N)) (*(int *)wrong)++;
  }
  OK(cudaFreeHost(h));
  OK(cudaStreamDestroy(s));
  return NULL;
}

static void test_threads(void) {
  enum { threads = 4 };
  pthread_t thread[threads];
  int wrong[threads] = {0};
  for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, use_stream, &wrong[i]);
  for (int i = 0; i < threads; i++) {
    pthread_join(thread[i], NULL);
    EXPECT(wrong[i] == 0, "host thread %d: %d wrong rounds", i, wrong[i]);
  }
}

void test_runtime(void) {
  test_streams();
  test_progress();
  test_copies();
  test_pool();
  test_graph();
  test_capture_rules();
  test_graph_memory();
  test_threads();
}
