/* SPDX-License-Identifier: MIT
 * Without arguments runs all tests. "kernel NAME" and "order NAME" run one planted fault and say
 * whether the result is right; the exit status is 0 only then. */
#include "check.h"
#include "kernels.h"

int passed, failed;

static int judge(int right) {
  printf("result is %s\n", right ? "right" : "wrong");
  return !right;
}

/* ---- kernels with a fault: what they should have computed ---- */

static float wanted(const char *name, const float *x, int n, int i) {
  float sum = 0;
  if (!strcmp(name, "no_barrier")) return i >= 256 ? 0 : i ? x[i - 1] : 0;
  if (!strcmp(name, "no_second_barrier")) {
    for (int t = 0; t < 4 && i < 256; t++) sum += x[t * 256 + (i + 1) % 256];
    return sum;
  }
  if (!strcmp(name, "no_syncwarp")) {
    for (int t = 0; t < 32 && i == 0; t++) sum += x[t];
    return sum;
  }
  if (!strcmp(name, "plain_sum")) return i ? 0 : (float)n;
  if (!strcmp(name, "no_tail")) return x[i];
  if (!strcmp(name, "no_copy_wait")) return i < 32 ? x[i] : 0;
  if (!strcmp(name, "unset_shared")) return i < 64 ? 1 : 0;
  if (!strcmp(name, "block_order")) return x[i % 256] + (float)(i / 256);
  if (!strcmp(name, "misaligned")) return i < 128 ? x[i + 1] : 0;
  return 0;
}

static int kernel_fault(const char *name) {
  enum { n = 1024 };
  static float x[n];
  for (int i = 0; i < n; i++) x[i] = (float)(i % 97);
  float *dx = device_floats(x, n), *out = device_floats(NULL, n);
  /* no_tail leaves the end of a fresh buffer unwritten; the others start from zeros. */
  if (strcmp(name, "no_tail")) OK(cudaMemset(out, 0, n * sizeof(float)));
  if (!strcmp(name, "host_pointer"))
    OK(launch_add1(x, out, n, 0));
  else
    OK(launch_fault(name, dx, out, n, 0));
  OK(cudaDeviceSynchronize());
  float *h = host_floats(out, n);
  int right = 1;
  for (int i = 0; i < n; i++) right &= h[i] == wanted(name, x, n, i);
  return judge(right);
}

/* ---- host code with a fault in the order of its calls ---- */

enum { N = 1 << 16, BYTES = N * sizeof(float) };

/* Judges what the host saw, after all work has run: a detector may need to see both sides. */
static int judge_late(float seen) {
  OK(cudaDeviceSynchronize());
  return judge(seen == 5);
}

static int order_fault(const char *name) {
  cudaStream_t s = new_stream(), t = new_stream();
  cudaEvent_t event;
  float *p = device_floats(NULL, N), *q = device_floats(NULL, N), *h, *r;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  OK(cudaMallocHost((void **)&h, BYTES));
  memset(h, 0, BYTES);
  OK(cudaMemset(p, 0, BYTES));
  OK(cudaMemset(q, 0, BYTES));
  OK(cudaDeviceSynchronize());

  if (!strcmp(name, "none")) {
    OK(launch_fill(p, 4, N, s));
    OK(cudaEventRecord(event, s));
    OK(cudaStreamWaitEvent(t, event, 0));
    OK(launch_add1(p, q, N, t));
    OK(cudaMemcpyAsync(h, q, BYTES, cudaMemcpyDeviceToHost, t));
    OK(cudaStreamSynchronize(t));
    return judge_late(h[N - 1]);
  }
  if (!strcmp(name, "no_wait")) { /* the host reads before it waits */
    OK(launch_fill(p, 5, N, s));
    OK(cudaMemcpyAsync(h, p, BYTES, cudaMemcpyDeviceToHost, s));
    return judge_late(h[N - 1]);
  }
  if (!strcmp(name, "no_event")) { /* two streams without an event between */
    OK(launch_fill(p, 4, N, s));
    OK(launch_add1(p, q, N, t));
    OK(cudaMemcpyAsync(h, q, BYTES, cudaMemcpyDeviceToHost, t));
    OK(cudaStreamSynchronize(t));
    return judge_late(h[N - 1]);
  }
  if (!strcmp(name, "legacy_copy")) { /* a synchronous copy does not wait for this stream */
    OK(launch_fill(p, 5, N, s));
    OK(cudaMemcpy(h, p, BYTES, cudaMemcpyDeviceToHost));
    return judge_late(h[N - 1]);
  }
  if (!strcmp(name, "staging_reused")) { /* the buffer is overwritten before it was copied */
    for (int i = 0; i < N; i++) h[i] = 5;
    OK(cudaMemcpyAsync(p, h, BYTES, cudaMemcpyHostToDevice, s));
    memset(h, 0, BYTES);
    OK(cudaMemcpyAsync(h, p, BYTES, cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    return judge_late(h[N - 1]);
  }
  if (!strcmp(name, "used_after_free")) {
    OK(cudaMallocAsync((void **)&r, BYTES, s));
    OK(launch_fill(r, 4, N, s));
    OK(cudaFreeAsync(r, s));
    OK(launch_add1(r, q, N, s));
    OK(cudaMemcpyAsync(h, q, BYTES, cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    return judge_late(h[N - 1]);
  }
  if (!strcmp(name, "used_before_allocation")) { /* on another stream than it is allocated on */
    OK(cudaMallocAsync((void **)&r, BYTES, s));
    OK(launch_fill(r, 5, N, t));
    OK(cudaStreamSynchronize(t));
    OK(cudaMemcpyAsync(h, r, BYTES, cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    return judge_late(h[N - 1]);
  }
  if (!strcmp(name, "host_reads_device")) {
    OK(launch_fill(p, 5, N, s));
    OK(cudaStreamSynchronize(s));
    return judge_late(p[N - 1]);
  }
  if (!strcmp(name, "load_in_capture")) { /* no kernel was used before */
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(launch_fill(p, 5, N, s));
    OK(cudaStreamEndCapture(s, &graph));
    return judge(1);
  }
  if (!strcmp(name, "allocation_in_capture")) {
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(cudaMalloc((void **)&r, BYTES));
    OK(launch_fill(r, 5, N, s));
    OK(cudaStreamEndCapture(s, &graph));
    return judge(1);
  }
  if (!strcmp(name, "no_event_in_graph")) { /* the branches of a graph depend on each other */
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(launch_fill(p, 0, N, s));
    OK(launch_add1(p, q, N, s));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(event, s));
    OK(cudaStreamWaitEvent(t, event, 0));
    OK(launch_fill(p, 4, N, s));
    OK(launch_add1(p, q, N, t));
    OK(cudaEventRecord(event, t));
    OK(cudaStreamWaitEvent(s, event, 0));
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaMemcpyAsync(h, q, BYTES, cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    return judge_late(h[N - 1]);
  }
  printf("no fault is named %s\n", name);
  return 3;
}

int main(int count, char **arguments) {
  if (count == 3 && !strcmp(arguments[1], "kernel")) return kernel_fault(arguments[2]);
  if (count == 3 && !strcmp(arguments[1], "order")) return order_fault(arguments[2]);
  test_kernels();
  test_runtime();
#if defined(PLEMU_TEST)
  test_control();
#endif
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
