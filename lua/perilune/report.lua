-- SPDX-License-Identifier: MIT
-- report: what the engine tells without being asked. Today that is the first overflow of an epoch (contract C7).

local core = require "perilune.core"

local report = {}

local function to_stderr(r) io.stderr:write("perilune: ", r.message, "\n") end

local listener = to_stderr

--- Sets who hears reports: a function of a table { kind, engine, message, capacity, offset, allocs, largest_alloc, resets, ... },
--- false for nobody, nil for one line on stderr. Returns who heard them before.
---@param fn? function|false
---@return function|false
function report.on_report(fn)
  if fn ~= nil and fn ~= false and type(fn) ~= "function" then
    error("on_report: a function, false or nil was expected, got " .. type(fn), 2)
  end
  if fn == nil then fn = to_stderr end
  local before = listener
  listener = fn
  return before
end

core.library.set_report(function(engine)
  if not listener then return end
  local r = core.engine.stats(engine)
  r.kind, r.engine = "overflow", engine
  r.message = ("the arena of %s is full: a block of %d bytes came from the device's pool (capacity %d, offset %d, %d allocations, "
    .. "the largest %d bytes, %d resets); reset more often or make the arena larger"):format(
    tostring(engine), r.first_overflow or 0, r.capacity, r.offset, r.allocs, r.largest_alloc, r.resets)
  listener(r)
end)

return report
