-- SPDX-License-Identifier: MIT
-- perilune parity: a candidate engine against a reference under every schedule, then inputs in other layouts, destinations and poison. Exit status
-- 0 iff all of it passed.

local options = require "perilune.options"

local FREQUENT = "gc-between-ops" -- runs the first samples of each op only
local CHECKS = { "destinations", "poison" }
local LAYOUTS = { "transposed", "offset", "stepped" }

--- All runs: { name, fn(opts) }.
local function runs_of(parity, found)
  local runs = {}
  local schedules = options.list(found.schedule)
  for _, name in ipairs(schedules or parity.schedules) do
    table.insert(runs, name == FREQUENT and 1 or #runs + 1, { name = name, run = function(opts)
      opts.schedule = name
      return parity.run(opts)
    end })
  end
  if schedules then return runs end
  for _, layout in ipairs(LAYOUTS) do
    runs[#runs + 1] = { name = layout .. "-inputs", run = function(opts)
      opts.schedule, opts.layout = "reset-between-fwd-bwd", layout
      return parity.run(opts)
    end }
  end
  for _, check in ipairs(CHECKS) do runs[#runs + 1] = { name = check, run = parity[check] } end
  return runs
end

local command = {
  about = "are results the same when memory is recycled in between? A candidate engine against a reference under every schedule",
  usage = "perilune parity [OPS...] [--engine KIND] [--schedule NAMES] [--report DIR]",
  options = {
    engine = "KIND of the candidate (stress)",
    reference = "KIND of the reference (cpu)",
    arena = "SIZE of the candidate's arena",
    schedule = "NAMES separated by commas (all, and layouts, destinations, poison)",
    report = "DIR for one JSON report per run",
    about = "FILE with a JSON object that goes into each report: commit, device, driver",
    quick = "the first samples of each op only",
    list = "names the schedules, shipped ones and your own, and ends",
  },
}

function command.run(found, words)
  if found.list then
    for _, name in ipairs(require("perilune.schedule").names()) do print(name) end
    return 0
  end
  local parity = require "perilune.parity"
  local engines = {}
  for name, kind in pairs { reference = found.reference or "cpu", candidate = found.engine or "stress" } do
    local eng, message = options.engine(kind, name == "candidate" and found.arena or nil)
    if not eng then
      io.stderr:write("perilune: ", message, "\n")
      return 2
    end
    engines[name] = eng
  end
  local ops = words[1] and words or nil
  local frequent = parity.registry { ops = ops, samples = 2, large = false, dtypes = false }
  if not frequent[1] then
    io.stderr:write("perilune: no op has such a name\n")
    return 2
  end
  local status, lines = 0, {}
  local cases -- made when they are needed: collections between ops, which come first, take longer the more there is
  for _, one in ipairs(runs_of(parity, found)) do
    if one.name ~= FREQUENT then
      cases = cases or parity.registry { ops = ops, samples = found.quick and 3 or nil, large = not found.quick }
    end
    local report = one.run { reference = engines.reference, candidate = engines.candidate, log = print,
      ops = one.name == FREQUENT and frequent or cases }
    if found.report then report:write(found.report .. "/" .. one.name:gsub("[^%w%-_.]", "_") .. ".json", found.about) end
    lines[#lines + 1] = report:summary()
    if not report.pass then status = 1 end
  end
  print("\n" .. table.concat(lines, "\n"))
  return status
end

return command
