# SPDX-License-Identifier: MIT
# PLN_CHECK_FLAGS(VARIABLE, FLAGS): append to VARIABLE each flag that the C compiler takes without a warning.
# PLN_REQUIRE_FLAGS(VARIABLE, FLAGS, WHY): the same for flags that the results depend on; stops where one is refused.
# Invariant: a flag reaches a compile line only after this compiler accepted it.

AC_DEFUN([PLN_TRY_FLAG], [
  pln_saved_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS -Werror $1"
  AC_MSG_CHECKING([whether $CC accepts $1])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [pln_flag_ok=yes], [pln_flag_ok=no])
  AC_MSG_RESULT([$pln_flag_ok])
  CFLAGS=$pln_saved_CFLAGS
])

AC_DEFUN([PLN_CHECK_FLAGS], [
  for pln_flag in $2; do
    PLN_TRY_FLAG([$pln_flag])
    AS_IF([test "$pln_flag_ok" = yes], [$1="${$1:+$$1 }$pln_flag"])
  done
  AC_SUBST([$1])
])

AC_DEFUN([PLN_REQUIRE_FLAGS], [
  for pln_flag in $2; do
    PLN_TRY_FLAG([$pln_flag])
    AS_IF([test "$pln_flag_ok" = yes], [$1="${$1:+$$1 }$pln_flag"],
      [AC_MSG_ERROR([$CC refuses $pln_flag: $3])])
  done
  AC_SUBST([$1])
])
