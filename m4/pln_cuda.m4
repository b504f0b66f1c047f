# SPDX-License-Identifier: MIT
# PLN_CUDA: decides which GPU modules are built: cuda.so (nvcc; cudart is linked statically and libcuda not at all, so that it loads on a machine
# without a driver and says so) and cuda_emu.so (the C++ compiler and CUDA's headers; the emulator of cuda/emulator).  Sets pln_cuda, pln_emu
# (yes/no) and pln_cuda_why, pln_emu_why; substitutes NVCC, NVCCFLAGS, NVCC_GENCODE, CUDA_LIBS and CUDA_INCLUDE.

AC_DEFUN([PLN_CUDA], [
  AC_ARG_VAR([NVCC], [CUDA compiler])
  AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags])
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [build the CUDA device; without the option only its emulator, where the headers of CUDA are])],
    [], [with_cuda=check])
  AC_ARG_WITH([cuda-arch],
    [AS_HELP_STRING([--with-cuda-arch=LIST],
      [compute capabilities, "N" for machine code, "N+ptx" for PTX too (default: "90 121+ptx", without 121 where nvcc is too old)])],
    [], [with_cuda_arch=])

  pln_cuda=no
  pln_cuda_why=
  pln_cuda_path=$PATH:/usr/local/cuda/bin
  AS_CASE([$with_cuda],
    [no], [pln_cuda_why="switched off by --without-cuda"],
    [check], [pln_cuda_why="--with-cuda builds it; that takes minutes"],
    [yes], [],
    [pln_cuda_path=$with_cuda/bin])
  AS_IF([test -z "$pln_cuda_why"], [
    AS_IF([ls "$srcdir"/cuda/*.cu >/dev/null 2>&1], [],
      [pln_cuda_why="these sources have no CUDA kernels"])])
  AS_IF([test -z "$pln_cuda_why"], [
    AC_PATH_PROG([NVCC], [nvcc], [no], [$pln_cuda_path])
    AS_IF([test "$NVCC" = no], [pln_cuda_why="no nvcc found"])])
  AS_IF([test -z "$pln_cuda_why"], [
    : ${NVCCFLAGS="-O3"}
    AS_IF([test -z "$with_cuda_arch"], [
      AS_IF([$NVCC --list-gpu-code 2>/dev/null | grep -q sm_121], [with_cuda_arch="90 121+ptx"], [with_cuda_arch="90+ptx"])])
    NVCC_GENCODE=
    for pln_arch in $with_cuda_arch; do
      pln_sm=${pln_arch%+ptx}
      NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$pln_sm,code=sm_$pln_sm"
      AS_CASE([$pln_arch], [*+ptx],
        [NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$pln_sm,code=compute_$pln_sm"])
    done
    # The libraries lie beside the nvcc that was found, or where the linker looks anyway.
    pln_cuda_dir=`dirname "$NVCC"`
    pln_cuda_dir=`cd "$pln_cuda_dir/.." && pwd`
    for pln_dir in lib64 targets/x86_64-linux/lib targets/sbsa-linux/lib lib; do
      AS_IF([test -f "$pln_cuda_dir/$pln_dir/libcudart_static.a"],
        [CUDA_LIBS="-L$pln_cuda_dir/$pln_dir"; break])
    done
    CUDA_LIBS="$CUDA_LIBS -lcudart_static -lrt -lpthread -ldl"
    AC_MSG_CHECKING([whether $NVCC compiles a kernel for $with_cuda_arch])
    cat > conftest.cu <<'PLN_EOF'
#include <cuda_runtime.h>
__global__ void fill(float *x) { x[[threadIdx.x]] = 1; }
extern "C" int main(void) { fill<<<1, 1>>>(0); return 0; }
PLN_EOF
    AS_IF([$NVCC $NVCC_GENCODE $NVCCFLAGS -Xcompiler -fPIC -c -o conftest.o conftest.cu >&AS_MESSAGE_LOG_FD 2>&1],
      [AC_MSG_RESULT([yes])
       AC_MSG_CHECKING([whether $CXX links it with $CUDA_LIBS])
       AS_IF([$CXX $CXXFLAGS -o conftest conftest.o $CUDA_LIBS >&AS_MESSAGE_LOG_FD 2>&1],
         [AC_MSG_RESULT([yes]); pln_cuda=yes],
         [AC_MSG_RESULT([no]); pln_cuda_why="cannot link the static CUDA run-time library"])],
      [AC_MSG_RESULT([no]); pln_cuda_why="$NVCC does not compile for $with_cuda_arch, see config.log"])
    rm -f conftest conftest.*])
  AS_CASE([$with_cuda], [no|check], [],
    [AS_IF([test "$pln_cuda" = no], [AC_MSG_ERROR([--with-cuda: $pln_cuda_why])])])

  # The emulator needs the headers only.
  pln_emu=no
  pln_emu_why=
  AS_CASE([$with_cuda], [no], [pln_emu_why="switched off by --without-cuda"], [
    AC_MSG_CHECKING([for CUDA's headers])
    pln_emu_why="no cuda_runtime_api.h found"
    for pln_dir in "$with_cuda/include" "$pln_cuda_dir/include" /usr/local/cuda/include /usr/include; do
      AS_IF([test -f "$pln_dir/cuda_runtime_api.h"], [CUDA_INCLUDE=$pln_dir; pln_emu=yes; pln_emu_why=; break])
    done
    AC_MSG_RESULT([${CUDA_INCLUDE:-no}])
    AS_IF([test "$pln_emu" = yes], [
      AC_MSG_CHECKING([whether $CXX compiles C++17])
      echo 'template <int n> int f() { if constexpr (n > 1) return n; return 0; } int main() { return f<0>(); }' > conftest.cpp
      AS_IF([$CXX -std=c++17 -o conftest conftest.cpp >&AS_MESSAGE_LOG_FD 2>&1], [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no]); pln_emu=no; pln_emu_why="$CXX does not compile C++17"])
      rm -f conftest conftest.cpp])])
  AC_SUBST([CUDA_INCLUDE])
  AC_SUBST([NVCC_GENCODE])
  AC_SUBST([CUDA_LIBS])
])
