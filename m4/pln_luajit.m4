# SPDX-License-Identifier: MIT
# PLN_LUAJIT: the LuaJIT headers (LUAJIT_CFLAGS) and interpreter (LUAJIT).  Nothing links libluajit: the module finds
# the Lua API in the process that loads it.
# "2.1.0-beta3" names sources from 2017 to 2023, so the age is told by what the interpreter can do: since 2020-10 a light
# userdata carries all 64 bits of a pointer; older ones refuse pointers above 2^47, which 64-bit ARM hands out.

AC_DEFUN([PLN_LUAJIT], [
  PKG_CHECK_MODULES([LUAJIT], [luajit >= 2.1],
    [], [AC_MSG_ERROR([LuaJIT 2.1 headers not found by pkg-config (Debian: libluajit-5.1-dev)])])
  AC_ARG_VAR([LUAJIT], [LuaJIT interpreter])
  AC_PATH_PROGS([LUAJIT], [luajit luajit-2.1], [no])
  AS_IF([test "$LUAJIT" = no], [AC_MSG_ERROR([no luajit program found (Debian: luajit)])])
  AC_MSG_CHECKING([whether $LUAJIT is from 2020-10 or later])
  cat > conftest.lua <<'PLN_EOF'
local ffi = require "ffi"
ffi.cdef "void *luaL_newstate(void); void lua_pushlightuserdata(void *L, void *p); void *lua_touserdata(void *L, int i);"
local L = ffi.C.luaL_newstate()
local p = ffi.cast("void *", 0x0000fffff7a00000ULL)
ffi.C.lua_pushlightuserdata(L, p)
io.write(ffi.C.lua_touserdata(L, -1) == p and "yes" or "no")
PLN_EOF
  pln_luajit_new=`$LUAJIT conftest.lua 2>/dev/null`
  AS_IF([test "$pln_luajit_new" = yes], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([$LUAJIT is too old: it refuses 64-bit pointers])])
])
