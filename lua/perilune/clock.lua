-- SPDX-License-Identifier: MIT
-- clock: seconds that have passed, of which only differences mean something; setting the system's time does not change it.

local ffi = require "ffi"

ffi.cdef [[
typedef struct { long seconds, nanoseconds; } pln_ClockTime;
int clock_gettime(int clock, pln_ClockTime *time);
]]

local MONOTONIC = ffi.os == "OSX" and 6 or 1
local time = ffi.new "pln_ClockTime"

--- Seconds since some time; only differences mean something.
---@return number seconds
return function()
  ffi.C.clock_gettime(MONOTONIC, time)
  return tonumber(time.seconds) + tonumber(time.nanoseconds) * 1e-9
end
