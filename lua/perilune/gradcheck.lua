-- SPDX-License-Identifier: MIT
-- gradcheck: gradients against central differences in float64. The loss is the sum of all results times fixed cotangents; steps are
-- scaled by max(1, |x|). Small inputs are checked element by element, large ones in a few elements and along directions that
-- move all of them at once.
--
-- Values keep away from the kinks that the op table names; samples at a kink (ties) are skipped and counted.

local core = require "perilune.core"
local cases = require "perilune.cases"
local composites = require "perilune.composites"
local engine = require "perilune.engine"
local samples = require "perilune.samples"
local schedule = require "perilune.schedule"
local tally = require "perilune.tally"

local gradcheck = {}

local T, A = core.tensor, core.autograd
local STEP, RTOL, ATOL = 1e-5, 1e-6, 1e-7
local EACH, SOME, DIRECTIONS = 48, 6, 3 -- elements up to which each is checked, else how many and along how many directions

--- Every differentiable op of the table with every sample, as f64, and the composites.
---@param opts? { ops?: string[] }
---@return perilune.Case[]
function gradcheck.registry(opts)
  opts = opts or {}
  local list = {}
  for _, row in ipairs(core.ops.rows) do
    if cases.differentiable(row) and cases.wanted(opts.ops, row.name) then
      for _, sample in ipairs(samples.of(row)) do
        local f64 = false
        for _, dtype in ipairs(samples.dtypes(row, sample)) do f64 = f64 or dtype == "f64" end
        if not sample.bad and f64 then list[#list + 1] = cases.of_sample(row, sample, "f64") end
      end
    end
  end
  for _, case in ipairs(composites.cases { ops = opts.ops }) do
    if case.dtype == "f64" then list[#list + 1] = case end
  end
  return list
end

--- Ops with so many kinks that moving many elements at once always crosses some.
local PIECEWISE = { mod = true, maximum = true, minimum = true, floor = true, ceil = true, round = true }

--- At ties the op has no derivative; results rounded to f32 are steps.
local function at_kink(case)
  if case.undefined or case.name:find "^cast.*dtype=f32" then return true end
  if not case.row then return false end
  for _, domain in ipairs(samples.domains(case.row)) do
    if domain.tie and case.name:find ")=" then return true end
  end
  return false
end

local function make(eng, array) return samples.layouts.contiguous.make(eng, array) end

local function call(eng, case, tensors)
  if case.random then eng:rng { 5, 7 } end
  return { case.run(eng, unpack(tensors, 1, #tensors)) }
end

--- All results on the host.
local function results_at(eng, case, tensors)
  local list = {}
  for k, y in ipairs(eng:no_grad(call, eng, case, tensors)) do
    list[k] = T.is_tensor(y) and cases.is_float(T.dtype(y)) and samples.read(y) or false
  end
  return list
end

local function gradients_of(eng, case, params)
  local loss
  for k, y in ipairs(call(eng, case, params)) do
    if T.is_tensor(y) and A.requires_grad(y) then
      local part = (y * make(eng, schedule.cotangent(T.shape(y), T.dtype(y), 1, k))):sum()
      if T.dtype(part) ~= "f64" then part = part:to "f64" end
      loss = loss and loss + part or part
    end
  end
  if loss then loss:backward() end
end

--- A step of the elements in `weights` (element -> -1 or 1), scaled; central difference of the loss, and what the gradient makes of the same step.
local function difference(eng, case, tensors, k, array, grad, weights)
  local up, down = { shape = array.shape, dtype = array.dtype }, { shape = array.shape, dtype = array.dtype }
  local predicted = 0
  for i = 1, #array do
    local h = (weights[i] or 0) * STEP * math.max(1, math.abs(array[i]))
    up[i], down[i] = array[i] + h, array[i] - h
    predicted = predicted + grad[i] * (up[i] - down[i])
  end
  local kept = tensors[k]
  tensors[k] = make(eng, up)
  local high = results_at(eng, case, tensors)
  tensors[k] = make(eng, down)
  local low = results_at(eng, case, tensors)
  tensors[k] = kept
  local sum = 0 -- of differences: the difference of two sums would lose what the sums round away
  for r, y in ipairs(high) do
    if y then
      local c = schedule.cotangent(y.shape, y.dtype, 1, r)
      for i = 1, #y do sum = sum + (y[i] - low[r][i]) * c[i] end
    end
  end
  return sum / (2 * STEP), predicted / (2 * STEP)
end

--- Which steps to take for an input of n elements.
local function steps_for(n, directions)
  local list = {}
  if n <= EACH then
    for i = 1, n do list[i] = { [i] = 1 } end
    return list
  end
  for j = 1, SOME do list[j] = { [1 + math.floor((n - 1) * (j - 1) / (SOME - 1))] = 1 } end
  local state = n
  for _ = 1, directions do
    local weights = {}
    for i = 1, n do
      state = (state * 16807 + 11) % 2147483647
      weights[i] = state % 2 == 0 and 1 or -1
    end
    list[#list + 1] = weights
  end
  return list
end

local function check(eng, case)
  local inputs, tensors, params = case.inputs(1), {}, {}
  for k, input in ipairs(inputs) do
    tensors[k] = make(eng, input.array)
    params[k] = input.grad and input.array.dtype == "f64" and eng:param(input.array.shape, tensors[k], { dtype = "f64" }) or tensors[k]
  end
  gradients_of(eng, case, params)
  local result = { name = case.name, status = "passed", tensors = { n = 0 } }
  for k, input in ipairs(inputs) do
    if params[k] ~= tensors[k] and #input.array > 0 then
      local grad = samples.read(params[k].grad)
      local largest, worst, pass, steps = 0, 0, true, steps_for(#input.array, PIECEWISE[case.op] and 0 or DIRECTIONS)
      for _, weights in ipairs(steps) do
        local numeric, analytic = difference(eng, case, tensors, k, input.array, grad, weights)
        local d = math.abs(numeric - analytic)
        if not (d <= largest) then largest = d end
        if not (d / math.max(1, math.abs(numeric)) <= worst) then worst = d / math.max(1, math.abs(numeric)) end
        if not (d <= ATOL * math.max(1, math.sqrt(#input.array)) + RTOL * math.max(1, math.abs(numeric))) then
          result.message = result.message or ("%s under gradcheck: gradient of %s: %.9g instead of %.9g (%s)"):format(case.name,
            input.slot or k, analytic, numeric, case.place or "the op table")
          pass, result.status = false, "failed"
        end
      end
      result.tensors.n = result.tensors.n + 1
      result.tensors[result.tensors.n] =
        { name = "gradient of " .. (input.slot or k), pass = pass, max_abs = largest, max_rel = worst, elements = #steps }
    end
  end
  return result
end

--- Checks gradients. Options: ops: names, patterns or cases (all); engine ("cpu"); minimum: gradients that must have been checked; log.
---@return perilune.Report
function gradcheck.run(opts)
  opts = opts or {}
  local list = opts.ops
  if type(list) == "string" then list = { list } end
  if list == nil or type(list[1]) == "string" then list = gradcheck.registry { ops = list } end
  local eng, own = opts.engine or "cpu", false
  if not engine.is_engine(eng) then eng, own = engine.open(eng), true end
  local report = tally.new("gradcheck", { candidate = eng.kind, reference = "central differences" })
  for _, case in ipairs(list) do
    if at_kink(case) then
      report.skipped = report.skipped + 1
    else
      local ok, result = pcall(check, eng, case)
      if not ok then
        result = { name = case.name, status = "errored", tensors = { n = 0 },
          message = ("%s under gradcheck: %s (%s)"):format(case.name, tostring(result), case.place or "the op table") }
      end
      report:add(case, result)
      eng:reset()
    end
  end
  if own then eng:close() end
  return report:finish(opts)
end

return gradcheck
