# SPDX-License-Identifier: MIT
# PLN_SANITIZE: --enable-asan (AddressSanitizer and UBSan) and --enable-tsan.  Substitutes SANITIZE_FLAGS for compiling
# and linking, and SANITIZE_PRELOAD: the run-time library must be the first in the process, and the process is a luajit
# that knows nothing of it.  Sets pln_sanitize for the summary.

AC_DEFUN([PLN_SANITIZE], [
  AC_ARG_ENABLE([asan], [AS_HELP_STRING([--enable-asan], [build with AddressSanitizer and UBSan])],
    [], [enable_asan=no])
  AC_ARG_ENABLE([tsan], [AS_HELP_STRING([--enable-tsan], [build with ThreadSanitizer])], [], [enable_tsan=no])
  pln_sanitize=no
  AS_CASE([$enable_asan:$enable_tsan],
    [yes:yes], [AC_MSG_ERROR([--enable-asan and --enable-tsan exclude each other])],
    [yes:*], [pln_sanitize=asan; pln_flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined"],
    [*:yes], [pln_sanitize=tsan; pln_flags="-fsanitize=thread"])
  AS_IF([test "$pln_sanitize" != no], [
    AS_IF([$CC --version 2>/dev/null | grep -q clang],
      [pln_flags="$pln_flags -shared-libsan"
       pln_names="libclang_rt.$pln_sanitize-$host_cpu.so libclang_rt.$pln_sanitize.so"],
      [pln_names="lib$pln_sanitize.so"])
    PLN_REQUIRE_FLAGS([SANITIZE_FLAGS], [$pln_flags -fno-omit-frame-pointer], [the sanitizer needs it])
    for pln_name in $pln_names; do
      SANITIZE_PRELOAD=`$CC -print-file-name=$pln_name`
      AS_CASE([$SANITIZE_PRELOAD], [/*], [break])
    done
    AC_MSG_CHECKING([whether $LUAJIT runs under $SANITIZE_PRELOAD])
    AS_IF([test "`ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$SANITIZE_PRELOAD $LUAJIT -e 'io.write "yes"' 2>&1`" = yes], [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([no shared $pln_sanitize run-time library of $CC that $LUAJIT runs under; gcc has one])])
  ])
  AC_SUBST([SANITIZE_PRELOAD])
])
