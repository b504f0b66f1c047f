-- SPDX-License-Identifier: MIT
-- capture: a step that was recorded once and is replayed without Lua (C6). What varies from step to step lies in tensors.

local core = require "perilune.core"
local suggest = require "perilune.suggest"

local metatable = core.metatables["perilune.capture"]
local C = core.capture

---@class perilune.Step
---@field replay fun(step: perilune.Step, n?: integer) runs the step n times (once)
---@field release fun(step: perilune.Step) ends it; what was made in it lives on as results do
---@field stats fun(step: perilune.Step): table calls, pieces, storages, bytes, draws of a step, replays so far
---@field is_valid fun(step: perilune.Step): boolean neither released nor its engine closed
local methods = { replay = C.replay, release = C.release, stats = C.stats, is_valid = C.is_valid }

local public = {}
for name, fn in pairs(methods) do public[name] = fn end

-- a table, so that a replay calls no Lua
metatable.__index = setmetatable(public, {
  __index = function(_, key) error(("a captured step has no method '%s'"):format(tostring(key)) .. suggest(tostring(key), methods), 2) end,
})
metatable.__newindex = function(_, key) error(("a captured step has no field '%s' to set"):format(tostring(key)), 2) end
metatable.__tostring = function(step)
  if not C.is_valid(step) then return "captured step (ended)" end
  local s = C.stats(step)
  return ("captured step of %d calls, replayed %d times"):format(s.calls, s.replays)
end
metatable.__metatable = "perilune step"

local engine_methods = {}

--- Runs fn once, records its ops and executes none; the step that replays them, and what fn returned. Lua's numbers, shapes and control flow are
--- frozen; what varies from step to step lies in tensors. Reads, uploads, resets and scopes are errors inside.
---@type fun(engine, fn: fun(): ...): perilune.Step, ...
engine_methods.capture = C.capture

return { engine_methods = engine_methods }
