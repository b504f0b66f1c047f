-- SPDX-License-Identifier: MIT
-- parity: the groups in which the parity specs run the shipped schedules, a file each, so that they run side by side. What no other group
-- names is in `rest`. Within a file all runs share the cases and the reference, whose outcomes parity keeps; a collection between any two
-- ops takes longer the more is kept, so gc-between-ops has a file of its own.

local parity = require "perilune.parity"
local perilune = require "perilune"

local support = {}

local groups = {
  resets = { "no-reset", "reset-between-fwd-bwd", "reset-mid-backward", "reset-per-sample" },
  memory = { "eager-free", "overflow", "interleaved" },
  collector = { "gc-between-ops" },
}

--- Schedules under which large samples run, too.
local LARGE = { ["reset-between-fwd-bwd"] = true, captured = true }

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

local FEW = { samples = 2, dtypes = false, large = false }

--- The engines under test: stress with every sample and dtype, the others with every sample that is not large.
function support.candidates()
  local list = { { name = "stress", spec = { "stress" }, opts = { large = false }, large = { dtypes = false } },
    { name = "cpu with an arena", spec = { "cpu", arena = "64MiB", poison = true }, opts = { large = false, dtypes = false } } }
  for _, e in ipairs(perilune.engines()) do
    if e.available and e.kind ~= "cpu" and e.kind ~= "stress" then
      list[#list + 1] = { name = e.kind, spec = { e.kind }, opts = list[2].opts }
    end
  end
  return list
end

local registries, reference = {}, nil

--- The cases that options of parity.registry ask for, made once.
local function registry(opts)
  local key = ("%s %s %s"):format(opts.samples, opts.dtypes, opts.large)
  registries[key] = registries[key] or parity.registry(opts)
  return registries[key]
end

--- Fails with what the report says first unless it passed.
local function passed(report, least)
  if not report.pass then error(report:summary() .. "\n" .. table.concat(report:failures(), "\n"):sub(1, 2000), 0) end
  if report.executed < least then error(("only %d comparisons"):format(report.executed), 0) end
end

--- Runs fn (parity.run, parity.destinations, parity.poison) on a candidate, with more options and, where opts is given, other cases than its own.
--- `least`: comparisons, as many as there are cases by default.
function support.run(fn, candidate, more, opts, least)
  reference = reference or perilune.engine "cpu"
  local all = { reference = reference, candidate = candidate.spec, ops = registry(opts or candidate.opts) }
  for k, v in pairs(more or {}) do all[k] = v end
  passed(fn(all), least or #all.ops)
end

--- Declares the tests of a group; the spec hands over its busted functions.
function support.declare(describe, it, name)
  for _, candidate in ipairs(support.candidates()) do
    describe("parity on " .. candidate.name .. " under", function()
      for _, schedule in ipairs(group(name)) do
        it(schedule, function()
          support.run(parity.run, candidate, { schedule = schedule }, name == "collector" and FEW or nil)
        end)
        if LARGE[schedule] and candidate.large then
          it(schedule .. ", large samples", function() support.run(parity.run, candidate, { schedule = schedule }, candidate.large) end)
        end
      end
    end)
  end
end

return support
