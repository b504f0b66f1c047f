-- SPDX-License-Identifier: MIT
-- hooks: watches the ops that a Lua program calls. While a watch is on, every way to call an op (engine method, tensor method, operator,
-- plain function) first tells the watcher; afterwards the originals are back and calls cost what they cost before.
--
-- The watcher is told before the op and the op is a tail call, so that messages name the caller's line, not this file's.

local core = require "perilune.core"

local hooks = {}

local function places()
  local perilune = require "perilune"
  return { core.ops, core.autograd, require("perilune.tensor").methods, require("perilune.engine").methods, perilune,
    core.metatables["perilune.tensor"], core.metatables["perilune.tensor.final"] }
end

--- Calls fn(...) with each op that it calls told to watch(name, ...) first; returns what fn returns, errors go through.
---@param watch fun(name: string, ...)
function hooks.watch(watch, fn, ...)
  local originals, wrapped = {}, {}
  for _, row in ipairs(core.ops.rows) do
    local op, name = core.ops[row.name], row.name
    wrapped[op] = function(...)
      watch(name, ...)
      return op(...)
    end
  end
  local save = core.autograd.save -- ctx:save keeps a tensor: reading it, too
  wrapped[save] = function(...)
    watch("save", ...)
    return save(...)
  end
  for _, place in ipairs(places()) do
    for key, value in pairs(place) do
      if wrapped[value] then originals[#originals + 1] = { place, key, value } end
    end
  end
  for _, o in ipairs(originals) do o[1][o[2]] = wrapped[o[3]] end
  local function restore(ok, ...)
    for _, o in ipairs(originals) do o[1][o[2]] = o[3] end
    if not ok then error((...), 0) end
    return ...
  end
  return restore(pcall(fn, ...))
end

return hooks
