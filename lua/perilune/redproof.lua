-- SPDX-License-Identifier: MIT
-- redproof: shows that the harnesses can fail. Each planted fault is switched on alone; the harness that must catch it runs twice, with the
-- fault off, when it must pass, and on, when it must fail and say what faults.lua expects, of which op, under which schedule and where in Lua. A
-- fault that stays green, or is blamed on something else, is a failure.

local core = require "perilune.core"
local cases = require "perilune.cases"
local engine = require "perilune.engine"
local faults = require "perilune.faults"
local gradcheck = require "perilune.gradcheck"
local oracle = require "perilune.oracle"
local parity = require "perilune.parity"
local tally = require "perilune.tally"

local redproof = {}

local HARNESSES = {
  parity = function(opts) return parity.run(opts) end,
  destinations = function(opts) return parity.destinations(opts) end,
  poison = function(opts) return parity.poison(opts) end,
  gradcheck = function(opts) return gradcheck.run { ops = opts.ops, engine = opts.candidate } end,
  oracle = function(opts) return oracle.compare { ops = opts.names, engine = opts.candidate } end,
}

local function planted_case(entry, faulty)
  local fn = entry.plant(faulty)
  return { op = "redproof." .. entry.name, name = "redproof." .. entry.name, rtol = 1e-6, grad_rtol = 1e-5, inputs = faults.inputs(entry),
    run = function(_, ...) return fn(...) end, place = cases.place_of(entry.plant) }
end

local function cases_of(entry, faulty)
  if entry.plant then
    local case = planted_case(entry, faulty)
    if faulty then case.truth = planted_case(entry, false) end
    return { case }
  end
  if entry.harness == "oracle" then return {} end
  local source = entry.harness == "gradcheck" and gradcheck.registry or parity.registry
  local list = {}
  for _, case in ipairs(source { ops = entry.ops, samples = entry.samples or 4, large = false, dtypes = false }) do
    if not case.large then list[#list + 1] = case end
  end
  return list
end

local function schedule_name(entry)
  local plan = entry.schedule
  return plan and (type(plan) == "table" and plan.name or plan) or nil
end

local function what_of(entry) return entry.what or core.library.fault()[entry.point] end

local function by_of(entry) return entry.harness .. (schedule_name(entry) and ", " .. schedule_name(entry) or "") end

--- An entry's row in the table of docs/harnesses.md.
function redproof.row(entry) return ("| `%s` | %s | %s |"):format(entry.name, what_of(entry), by_of(entry)) end

local function run(entry, list, kind, reference)
  local spec = { kind, places = true }
  for k, v in pairs(entry.engine or {}) do spec[k] = v end
  local candidate = engine.open(spec)
  local ok, report = pcall(HARNESSES[entry.harness],
    { reference = reference, candidate = candidate, ops = list, schedule = entry.schedule, names = entry.ops })
  pcall(candidate.close, candidate)
  return ok, report
end

--- What a message says about op, schedule and place; nil unless it says all three, and what faults.lua expects. An op written in Lua has its
--- place in the catalogue's own file, a composite in composites.lua; an op of the table has none but the table.
local function attribution(entry, report, message)
  if not message:find(entry.expect, 1, true) and not (entry.otherwise and message:find(entry.otherwise, 1, true)) then return nil end
  local op
  for _, name in ipairs(report.names) do
    for _, sample in ipairs(report.ops[name].samples) do
      if sample.message == message then op = name end
    end
  end
  local schedule = schedule_name(entry) or entry.harness
  local said = entry.harness == "oracle" and " against PyTorch" or " under " .. schedule
  if not op or not message:find(op, 1, true) or not message:find(said, 1, true) then return nil end
  local place = entry.plant and message:match "faults%.lua:%d+" or not entry.plant and message:match "%(([^()]+)%)$" or nil
  place = place and place:match "[^/]+$"
  if op:find "^composite" and not (place or ""):find "^composites%.lua:" then return nil end
  return place and { op = op, schedule = schedule, place = place, message = message }
end

---@class perilune.Proof
---@field name string
---@field caught boolean
---@field by string harness and schedule
---@field op? string to which it was attributed
---@field schedule? string under which
---@field place? string in Lua, or the op table
---@field attributed? string the message that says so
---@field why? string what went wrong with the proof

--- Proves one entry on an engine of the kind.
---@return perilune.Proof
function redproof.prove(entry, kind)
  local proof = { name = entry.name, what = what_of(entry), caught = false, by = by_of(entry) }
  local reference = engine.open "cpu"
  local sound, faulty = cases_of(entry, false), nil
  faulty = entry.plant and cases_of(entry, true) or sound
  local ok, report = run(entry, sound, kind, reference)
  if not ok then
    proof.why = "without the fault: " .. tostring(report)
  elseif not report.pass then
    proof.why = "without the fault: " .. (report:failures()[1] or report:summary())
  else
    if entry.point then core.library.fault(entry.point, true) end
    ok, report = run(entry, faulty, kind, reference)
    if entry.point then core.library.fault(entry.point, false) end
    if not ok then
      proof.why = "the harness itself failed: " .. tostring(report)
    else
      for _, message in ipairs(report:failures()) do
        local found = not proof.attributed and attribution(entry, report, message)
        if found then proof.op, proof.schedule, proof.place, proof.attributed = found.op, found.schedule, found.place, found.message end
      end
      proof.caught = proof.attributed ~= nil
      proof.why = not proof.caught and (report.pass and "it stayed green"
        or ("caught, but nothing says %q with op, schedule and place: %s"):format(entry.expect, report:failures()[1] or report:summary())) or nil
    end
  end
  reference:close()
  collectgarbage()
  return proof
end

local function short(text)
  text = text:gsub("%s+", " "):gsub("/%S*/", "")
  return #text > 120 and text:sub(1, 117) .. "..." or text
end

local LINE = "%s %-26s | %-38s | %-30s | %-18s | %s"

redproof.heading = LINE:format("    ", "fault", "caught by", "op", "place", "what was said")

--- A line of the table.
local function line_of(proof)
  return LINE:format(proof.caught and "RED " or "MISS", proof.name, proof.by, proof.op or "", proof.place or "", short(proof.attributed or proof.why))
end

--- Proves all of the catalogue, or the entries named. Options: engine ("stress"), names, minimum (the number of entries), log.
--- The result has pass, proofs, caught, missed, skipped.
function redproof.run(opts)
  opts = opts or {}
  local kind = opts.engine or "stress"
  local result = { engine = kind, version = core.version, proofs = {}, caught = 0, missed = 0, skipped = 0 }
  local log = opts.log or function() end
  for _, entry in ipairs(faults.list) do
    if cases.wanted(opts.names, entry.name) then
      if entry.device == "host" and kind ~= "stress" then
        result.skipped = result.skipped + 1
        log(("SKIP %-26s its fault point is in the host device, not in %s"):format(entry.name, kind))
      else
        local proof = redproof.prove(entry, kind)
        result.proofs[#result.proofs + 1] = proof
        local key = proof.caught and "caught" or "missed"
        result[key] = result[key] + 1
        log(line_of(proof))
      end
    end
  end
  result.minimum = opts.minimum or 1
  result.pass = result.missed == 0 and result.caught >= result.minimum
  log(("%s red proofs on %s: %d faults caught, %d missed, %d skipped"):format(result.pass and "PASS" or "FAIL", kind, result.caught,
    result.missed, result.skipped))
  return result
end

--- Writes a result as JSON; makes the folder if there is none. `about`: more fields that say what was tested.
---@param path string
---@param about? table
function redproof.write(result, path, about)
  local out = { proofs = { n = #result.proofs, unpack(result.proofs) }, lua = jit.version, about = about }
  for key, value in pairs(result) do
    if type(value) ~= "table" then out[key] = value end
  end
  tally.save(path, out, 2)
end

return redproof
