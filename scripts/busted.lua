-- SPDX-License-Identifier: MIT
-- Runs busted in this interpreter: luajit scripts/busted.lua ARGS.  The busted program may be bound to another Lua, and
-- its own --lua switch passes arguments through a shell without quoting; a LuaJIT module loaded by another Lua crashes.

assert(jit, "the specs run under LuaJIT only")
-- A sanitizer preloaded into this process is not for the shells that specs start.
local ffi = require "ffi"
ffi.cdef "int unsetenv(const char *name);"
ffi.C.unsetenv "LD_PRELOAD"
table.insert(arg, 1, "--ignore-lua")
require "busted.runner" { standalone = false }
