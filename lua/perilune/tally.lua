-- SPDX-License-Identifier: MIT
-- tally: the report of a harness: what was executed, what passed, failed or raised, by op and sample. Invariant: a report passes only if
-- nothing failed or raised and as much was executed as the caller asked for, at least something.

local core = require "perilune.core"
local json = require "perilune.json"

local tally = {}

---@class perilune.Report
---@field schedule string what was run
---@field pass boolean
---@field passed integer samples
---@field failed integer
---@field errored integer
---@field skipped integer
---@field executed integer comparisons
local Report = {}
Report.__index = Report

---@param name string
---@param fields table more fields
---@return perilune.Report
function tally.new(name, fields)
  local report = {
    schedule = name, version = core.version, passed = 0, failed = 0, errored = 0, skipped = 0, executed = 0, bit_equal = 0, elements = 0,
    misses = 0, max_abs = 0, max_rel = 0, ops = {}, names = {},
  }
  for k, v in pairs(fields) do report[k] = v end
  return setmetatable(report, Report)
end

local function entry(report, op)
  local e = report.ops[op]
  if not e then
    e = { op = op, pass = true, passed = 0, failed = 0, errored = 0, executed = 0, max_abs = 0, max_rel = 0, samples = {} }
    report.ops[op] = e
    report.names[#report.names + 1] = op
  end
  return e
end

local function larger(a, b) return (b ~= b or b > a) and b or a end

--- Counts a sample: { name, status = "passed"|"failed"|"errored", message, tensors = { { name, pass, max_abs, max_rel, bits, elements }, ... } }.
function Report:add(case, sample)
  local e = entry(self, case.op)
  e.samples[#e.samples + 1] = sample
  e[sample.status], self[sample.status] = e[sample.status] + 1, self[sample.status] + 1
  e.pass = e.pass and sample.status == "passed"
  e.message = e.message or sample.message
  for _, tensor in ipairs(sample.tensors) do
    e.executed, self.executed = e.executed + 1, self.executed + 1
    self.elements = self.elements + tensor.elements
    self.bit_equal = self.bit_equal + (tensor.bits and 1 or 0)
    for _, key in ipairs { "max_abs", "max_rel" } do
      e[key], self[key] = larger(e[key], tensor[key] or 0), larger(self[key], tensor[key] or 0)
    end
  end
end

--- The verdict. Options: minimum, of comparisons (1); log gets the lines.
function Report:finish(opts)
  self.minimum = opts.minimum or 1
  self.pass = self.failed == 0 and self.errored == 0 and self.executed >= self.minimum
  if opts.log then self:print(opts.log) end
  return self
end

--- What became of an op: { pass, passed, failed, errored, executed, max_abs, max_rel, samples, message }, nil if it was not run.
function Report:result(op) return self.ops[op] end

--- The messages of all that failed.
---@return string[]
function Report:failures()
  local list = {}
  for _, name in ipairs(self.names) do
    for _, sample in ipairs(self.ops[name].samples) do
      if sample.message then list[#list + 1] = sample.message end
    end
  end
  return list
end

---@return string
function Report:summary()
  local bits = self.bit_equal > 0 and (", %d of them bit for bit equal"):format(self.bit_equal) or ""
  local few = self.executed < self.minimum and (" (fewer than %d)"):format(self.minimum) or ""
  return ("%s %s: %s against %s: %d samples passed, %d failed, %d errored, %d skipped; %d comparisons%s%s"):format(
    self.pass and "PASS" or "FAIL", self.schedule, self.candidate, self.reference, self.passed, self.failed, self.errored, self.skipped,
    self.executed, bits, few)
end

--- One line for each op, then the totals, to log(line).
function Report:print(log)
  for _, name in ipairs(self.names) do
    local e = self.ops[name]
    log(("%s %s: %d samples, %d comparisons, max_abs %.3g, max_rel %.3g%s"):format(e.pass and "PASS" or "FAIL", name, #e.samples, e.executed,
      e.max_abs, e.max_rel, e.message and "\n  " .. e.message or ""))
  end
  log(self:summary())
end

--- Writes a table as JSON; makes the folder if there is none.
function tally.save(path, out, level)
  local folder = path:match "^(.+)/[^/]*$"
  if folder then os.execute(("mkdir -p '%s'"):format((folder:gsub("'", "'\\''")))) end
  local file, message = io.open(path, "w")
  if not file then error("report: " .. message, (level or 1) + 1) end
  file:write(json.encode(out), "\n")
  file:close()
end

--- Writes the report as JSON; makes the folder if there is none. `about`: more fields that say what was tested (commit, device, driver).
---@param path string
---@param about? table
function Report:write(path, about)
  local out = { ops = { n = #self.names }, lua = jit.version, about = about }
  for key, value in pairs(self) do
    if type(value) ~= "table" then out[key] = value end
  end
  for i, name in ipairs(self.names) do out.ops[i] = self.ops[name] end
  tally.save(path, out, 2)
end

return tally
