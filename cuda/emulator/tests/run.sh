#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds the emulator's tests plain (gcc, clang), with AddressSanitizer and UBSan, and with
# ThreadSanitizer; runs them in all modes, and checks that each planted fault is caught by the
# detector that claims it. Where nvcc is, the same sources must build for a device too.
# Usage: run.sh [build folder]
set -u
cd "$(dirname "$0")" || exit 2
build=${1:-$(git rev-parse --show-toplevel)/build/emulator}
mkdir -p "$build"
log=$build/log.txt
passed=0 failed=0 skipped=0
export TSAN_OPTIONS="exitcode=66" UBSAN_OPTIONS="print_stacktrace=0"

pass() { passed=$((passed + 1)); }
fail() {
  failed=$((failed + 1))
  echo "FAILED $1"
  tail -n "${2:-15}" "$log" | sed 's/^/    /'
}

# run "VARIABLE=value ..." CONFIG ARGUMENTS...: output to the log, the exit status is the program's
run() {
  local settings=$1 config=$2
  shift 2
  { (env $settings timeout 60 "$build/$config/test" "$@") >"$log" 2>&1; } 2>/dev/null
}

good() { # all tests pass and the program ends well, leak check included
  if run "$1" "$2" && grep -q '^[0-9]* passed, 0 failed$' "$log"; then pass; else fail "$2 $1"; fi
}

right() { # a correct program gives the right result and no report
  if run "$1" "$2" "$3" "$4"; then pass; else fail "$2 $3 $4 $1: reported"; fi
}

caught() { # the fault is reported with the given words
  run "$1" "$2" "$4" "$5"
  if [ $? -ne 0 ] && grep -qE "$3" "$log"; then pass; else fail "$2 $4 $5 $1: not caught"; fi
}

wrong() { # the fault gives a wrong result
  caught "$1" "$2" "^result is wrong$" "$3" "$4"
}

make_config() {
  local start=$SECONDS
  if make -s -j2 CONFIG="$1" OUT="$build" >"$log" 2>&1; then pass; else fail "build $1" 40; fi
  echo "built $1 in $((SECONDS - start)) s"
}

for config in gcc clang asan tsan ucontext; do make_config $config; done

# ---- correct programs ----
for seed in 0 1 2 3; do
  good "PLEMU_MODE=lazy PLEMU_SEED=$seed" gcc
  good "PLEMU_MODE=async PLEMU_JITTER_US=300 PLEMU_SEED=$seed" clang
done
good "PLEMU_MODE=sync" gcc
good "PLEMU_MODE=async" gcc
good "PLEMU_MODE=lazy PLEMU_GUARD=1" gcc
good "PLEMU_MODE=async PLEMU_GUARD=1" clang
good "PLEMU_DEVICE=gb10" gcc
good "PLEMU_MODE=lazy PLEMU_SEED=2" ucontext
for mode in lazy async; do
  good "PLEMU_MODE=$mode" asan
  good "PLEMU_MODE=$mode PLEMU_SEED=2" asan
  good "PLEMU_MODE=$mode" tsan
done
for config in gcc clang asan tsan; do
  for mode in lazy async sync; do right "PLEMU_MODE=$mode" $config order none; done
  if "$build/$config/test_module" "$build/$config/module.so" >"$log" 2>&1; then
    pass
  else
    fail "$config module"
  fi
done

# ---- kernels with a fault ----
asan='SUMMARY: AddressSanitizer'
caught "" asan "$asan: heap-buffer-overflow .*faults.cu" kernel past_the_end
caught "PLEMU_GUARD=1" gcc "kernel code touched byte 4096 of device allocation" kernel past_the_end
caught "" asan "faults.cu:[0-9]+.*index 64 out of bounds" kernel past_shared
caught "" asan "$asan: use-after-poison .*faults.cu" kernel past_dynamic_shared
caught "" asan "faults.cu:[0-9]+.*misaligned address" kernel misaligned
for fault in no_barrier no_second_barrier no_syncwarp plain_sum; do
  caught "" tsan "SUMMARY: ThreadSanitizer: data race .*faults.cu" kernel $fault
done
for fault in no_barrier no_second_barrier no_syncwarp block_order; do
  wrong "PLEMU_SEED=1" gcc kernel $fault
  wrong "PLEMU_SEED=2" clang kernel $fault
done
for fault in no_tail no_copy_wait unset_shared; do
  wrong "" gcc kernel $fault
  wrong "" clang kernel $fault
done
for config in gcc clang asan tsan; do
  caught "" $config "divergent barrier in kernel .*faults.cu:[0-9]+.*faults.cu" \
    kernel divergent_barrier
  caught "" $config "deadlock in kernel partial_shuffle" kernel partial_shuffle
  caught "" $config "lane 16 calls it and is not in its mask" kernel lane_not_in_mask
  caught "" $config "argument 1: .* is no memory of the device" kernel host_pointer
done

# ---- host code with a fault in its order ----
for fault in no_wait no_event legacy_copy staging_reused; do
  wrong "PLEMU_MODE=lazy" gcc order $fault
  caught "PLEMU_MODE=lazy" tsan "SUMMARY: ThreadSanitizer: data race" order $fault
  caught "PLEMU_MODE=async" tsan "SUMMARY: ThreadSanitizer: data race" order $fault
done
for mode in lazy async; do
  caught "PLEMU_MODE=$mode" gcc "argument 1: .*(freed with cudaFreeAsync|no memory)" \
    order used_after_free
  caught "PLEMU_MODE=$mode PLEMU_STRICT=0" asan "$asan: heap-use-after-free" order used_after_free
done
wrong "PLEMU_MODE=lazy" gcc order used_before_allocation
caught "PLEMU_MODE=lazy" asan "$asan: use-after-poison" order used_before_allocation
caught "PLEMU_MODE=async" tsan "SUMMARY: ThreadSanitizer: data race" order used_before_allocation
caught "PLEMU_GUARD=1" gcc "host code touched byte [0-9]+ of device allocation #1" \
  order host_reads_device
caught "" gcc "cudaMalloc.*cudaErrorStreamCaptureUnsupported" order allocation_in_capture
caught "" gcc "launch_fill.*cudaErrorStreamCaptureUnsupported" order load_in_capture
right "PLEMU_STRICT=0" gcc order load_in_capture
wrong "PLEMU_SEED=1" gcc order no_event_in_graph

# ---- settings and injected faults from outside ----
caught "PLEMU_MODE=fast" gcc "PLEMU_MODE=fast is not understood" order none
caught "PLEMU_FAIL=cudaMalloc:2:2" gcc "cudaErrorMemoryAllocation" order none
caught "PLEMU_FAIL=kernel:1+:700" gcc "cudaErrorIllegalAddress" order none
caught "PLEMU_MEMORY=100K" gcc "cudaErrorMemoryAllocation" order none

# ---- the same sources for a device ----
cuda=${CUDA_HOME:-/usr/local/cuda}
if [ -x "$cuda/bin/nvcc" ]; then
  if make -s CONFIG=gcc OUT="$build" "$build/gcc/test_cudart" >"$log" 2>&1 &&
      "$build/gcc/test_cudart" >>"$log" 2>&1; then
    pass
  else
    fail "the emulator next to cudart" 40
  fi
  mkdir -p "$build/device"
  if "$cuda/bin/nvcc" -std=c++17 -gencode arch=compute_90,code=sm_90 \
      -gencode arch=compute_121,code=sm_121 -Werror all-warnings -Xcompiler -w \
      -o "$build/device/test" kernels.cu faults.cu main.c test_kernels.c test_runtime.c \
      -lcudart_static -lpthread >"$log" 2>&1; then
    pass
  else
    fail "nvcc" 40
  fi
  if [ -e /dev/nvidia0 ]; then
    if "$build/device/test" >"$log" 2>&1; then pass; else fail "tests on the device" 40; fi
  else
    skipped=$((skipped + 1))
    echo "skipped: the tests on a device, there is none"
  fi
else
  skipped=$((skipped + 1))
  echo "skipped: the build for a device, there is no nvcc"
fi

if [ $skipped -eq 0 ]; then
  echo "$passed passed, $failed failed"
else
  echo "$passed passed, $failed failed, $skipped skipped"
fi
[ $failed -eq 0 ]
