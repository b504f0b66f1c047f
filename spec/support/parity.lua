-- SPDX-License-Identifier: MIT
-- parity: the groups in which the parity specs run the shipped schedules, a file each, so that they run side by side. What no other group
-- names is in `rest`.

local parity = require "perilune.parity"
local perilune = require "perilune"

local support = {}

local groups = {
  resets = { "no-reset", "reset-between-fwd-bwd", "reset-mid-backward", "reset-per-sample" },
  memory = { "eager-free", "gc-between-ops", "overflow", "interleaved" },
}

local function group(name)
  if groups[name] then return groups[name] end
  local taken, list = {}, {}
  for _, schedules in pairs(groups) do
    for _, s in ipairs(schedules) do taken[s] = true end
  end
  for _, s in ipairs(parity.schedules) do
    if not taken[s] then list[#list + 1] = s end
  end
  return list
end

--- The engines under test: stress with every sample, the others, which share its kernels or are slow, with the first ones of each op.
function support.candidates()
  local list = { { name = "stress", spec = { "stress" }, opts = {} },
    { name = "cpu with an arena", spec = { "cpu", arena = "64MiB", poison = true }, opts = { samples = 2, dtypes = false, large = false } } }
  for _, e in ipairs(perilune.engines()) do
    if e.available and e.kind ~= "cpu" and e.kind ~= "stress" then
      list[#list + 1] = { name = e.kind, spec = { e.kind }, opts = { samples = 2, dtypes = false, large = false } }
    end
  end
  return list
end

local FREQUENT = { samples = 2, dtypes = false, large = false } -- collections between ops take long

--- Fails with what the report says first unless it passed.
function support.passed(report, least)
  if not report.pass then error(report:summary() .. "\n" .. table.concat(report:failures(), "\n"):sub(1, 2000), 0) end
  if report.executed < least then error(("only %d comparisons"):format(report.executed), 0) end
end

--- Declares the tests of a group; the spec hands over its busted functions.
function support.declare(describe, it, name)
  for _, candidate in ipairs(support.candidates()) do
    describe("parity on " .. candidate.name .. " under", function()
      for _, schedule in ipairs(group(name)) do
        it(schedule, function()
          local ops = parity.registry(schedule == "gc-between-ops" and FREQUENT or candidate.opts)
          support.passed(parity.run { reference = "cpu", candidate = candidate.spec, schedule = schedule, ops = ops }, #ops)
        end)
      end
    end)
  end
end

return support
