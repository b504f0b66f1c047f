-- SPDX-License-Identifier: MIT
-- used(): seconds that this process used of its processors; other programs that run meanwhile do not count. Only differences mean something.

local ffi = require "ffi"
require "perilune.clock" -- declares clock_gettime

local PROCESS = 2
local time = ffi.new "pln_ClockTime"

return function()
  ffi.C.clock_gettime(PROCESS, time)
  return tonumber(time.seconds) + tonumber(time.nanoseconds) * 1e-9
end
