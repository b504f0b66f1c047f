-- SPDX-License-Identifier: MIT
-- parity: ops and composites, forward and backward, on a candidate engine under a schedule, against a reference engine that was
-- left in peace. All elements are compared; NaN never passes; a report counts what it executed and fails on too few.
--
--   local report = parity.run{ reference = "cpu", candidate = "stress", schedule = "reset-between-fwd-bwd" }
--   report.pass, report.passed, report.failed, report.errored, report:result "softmax", report:write "report.json"

local core = require "perilune.core"
local cases = require "perilune.cases"
local compare = require "perilune.compare"
local composites = require "perilune.composites"
local engine = require "perilune.engine"
local on_report = require "perilune.report".on_report
local samples = require "perilune.samples"
local schedule = require "perilune.schedule"
local tally = require "perilune.tally"

local parity = {}

local T = core.tensor

--- All that is compared: the samples of every op of the table, then the composites.
---@param opts? { ops?: string[], dtypes?: boolean, large?: boolean }  names or patterns; large = false leaves big samples out
---@return perilune.Case[]
function parity.registry(opts)
  opts = opts or {}
  local list = {}
  for _, source in ipairs { cases.of_table(opts), composites.cases(opts) } do
    for _, case in ipairs(source) do
      if opts.large ~= false or not case.large then list[#list + 1] = case end
    end
  end
  return list
end

-- Running ----------------------------------------------------------------------------------------

local function open(spec, what, level)
  if engine.is_engine(spec) then return spec, false end
  if type(spec) ~= "string" and type(spec) ~= "table" then error(("parity: %s is an engine or what perilune.engine takes"):format(what), level + 1) end
  return engine.open(spec), true
end

local function case_list(ops, level)
  if ops == nil then return parity.registry() end
  if type(ops) == "string" then ops = { ops } end
  if type(ops) ~= "table" then error("parity: ops is a list of names or of cases", level + 1) end
  if type(ops[1]) ~= "string" then return ops end
  local list = parity.registry { ops = ops }
  if not list[1] then error("parity: no op has the name " .. table.concat(ops, ", "), level + 1) end
  return list
end

--- Calls run(reference, candidate, cases, report) with what the options ask for, and closes what was opened.
local function with(opts, name, changes, run)
  if type(opts) ~= "table" then error("parity: a table of options was expected", 3) end
  local reference, own_reference = open(opts.reference or "cpu", "reference", 3)
  local candidate, own_candidate = open(opts.candidate or "stress", "candidate", 3)
  local list = case_list(opts.ops, 3)
  local working = candidate
  if changes and candidate:stats().capacity > 0 then
    working = engine.like(candidate, changes)
  end
  local report = tally.new(name, { reference = reference.kind, candidate = working.kind })
  local heard = on_report(false) -- overflow is what some schedules are about
  local ok, message = xpcall(run, function(m) return type(m) == "string" and debug.traceback(m, 2) or m end, reference, working, list, report)
  on_report(heard)
  if working ~= candidate then working:close() end
  if own_candidate then candidate:close() end
  if own_reference then reference:close() end
  if not ok then error(message, 0) end
  return report:finish(opts)
end

local truth = setmetatable({}, { __mode = "k" }) -- reference engine -> case -> outcome

local PEACE = { name = "peace", run = function(s) s:forward_all() s:backward_all() end }

local function outcome_of(reference, case)
  truth[reference] = truth[reference] or setmetatable({}, { __mode = "k" })
  local known = truth[reference]
  known[case] = known[case] or schedule.run(reference, case, PEACE)
  return known[case]
end

local function message_of(report, case, text)
  local place = case.place or "the op table"
  return ("%s under %s on %s: %s (%s)"):format(case.name, report.schedule, report.candidate, text, place)
end

--- Compares two lists of { name, copy, gradient } into a sample of the report.
local function judge(report, case, got, want, trouble)
  local sample = { name = case.name, status = "passed", tensors = { n = 0 } }
  local function complain(text)
    sample.status = "failed"
    sample.message = sample.message or message_of(report, case, text)
  end
  if #got ~= #want then complain(("%d tensors instead of %d"):format(#got, #want)) end
  for k, w in ipairs(want) do
    local g = got[k]
    if g then
      local rtol = w.gradient and case.grad_rtol or case.rtol
      local c = compare.tensors(g.copy, w.copy, rtol, rtol, case.undefined)
      if not c.pass then complain(g.name .. ": " .. compare.text(c)) end
      sample.tensors.n = sample.tensors.n + 1
      sample.tensors[sample.tensors.n] =
        { name = g.name, pass = c.pass, max_abs = c.max_abs, max_rel = c.max_rel, bits = c.bits, elements = c.elements }
    end
  end
  if trouble then complain(trouble) end
  return sample
end

local function errored(report, case, message)
  return { name = case.name, status = "errored", message = message_of(report, case, tostring(message)), tensors = { n = 0 } }
end

--- After an error: drops what the failed run left.
local function clean(eng)
  collectgarbage()
  collectgarbage()
  pcall(eng.sync, eng)
  pcall(eng.reset, eng)
end

local function reads_of(outcome, want)
  local got, expected, by_name = {}, {}, {}
  for _, w in ipairs(want.tensors) do by_name[w.name] = w end
  for _, read in ipairs(outcome.reads) do
    local name = ("sample %d result %d"):format(read.sample, read.result)
    got[#got + 1], expected[#expected + 1] = { name = name .. ", read late", copy = read.copy }, by_name[name]
  end
  return got, expected
end

local function layout_of(name)
  local layout = parity.layouts[name]
  if not layout then error("parity: there is no layout " .. tostring(name), 4) end
  return layout
end

--- Runs cases under one schedule. Options: reference ("cpu"), candidate ("stress"): engines or what perilune.engine takes; ops: names,
--- patterns or cases (all); schedule: name, file or table ("no-reset"); layout: how inputs lie in memory on the candidate;
--- minimum: tensors that must have been compared; log: gets the lines of the report.
---@return perilune.Report
function parity.run(opts)
  if type(opts) ~= "table" then error("parity.run: a table of options was expected", 2) end
  local plan = schedule.load(opts.schedule or "no-reset", 2)
  local layout = opts.layout and layout_of(opts.layout)
  local name = plan.name .. (opts.layout and " with " .. opts.layout .. " inputs" or "")
  return with(opts, name, plan.engine, function(reference, candidate, list, report)
    for _, case in ipairs(list) do
      local skip = layout and case.op == "view" -- which refuses what would need a copy
      local want = not skip and outcome_of(reference, case.truth or case)
      local ok, outcome = true, nil
      if not skip then ok, outcome = pcall(schedule.run, candidate, case, plan, layout) end
      if skip then
        report.skipped = report.skipped + 1
      elseif not ok then
        report:add(case, errored(report, case, outcome))
        clean(candidate)
      else
        report.misses = report.misses + outcome.stats.misses
        local got, expected = reads_of(outcome, want)
        for _, t in ipairs(outcome.tensors) do got[#got + 1] = t end
        for _, t in ipairs(want.tensors) do expected[#expected + 1] = t end
        report:add(case, judge(report, case, got, expected, outcome.trouble))
      end
    end
    if plan.spills and candidate:stats().capacity > 0 and report.misses == 0 then
      error(("parity: nothing spilled out of the arena under %s, so it showed nothing"):format(plan.name), 0)
    end
  end)
end

--- Layouts of inputs, made of ops through which gradients flow: element for element the tensor that they are given.
parity.layouts = {
  transposed = function(_, t)
    if T.ndim(t) < 2 then return t end
    return t:transpose(1, -1):reshape(t:transpose(1, -1).shape):contiguous():clone():transpose(1, -1)
  end,
  offset = function(eng, t)
    if T.ndim(t) == 0 then return t end
    local n = T.shape(t)[T.ndim(t)]
    local shape = T.shape(t)
    shape[#shape] = 1
    local edge = eng:full(shape, 1, { dtype = T.dtype(t) })
    return eng:concat({ edge, t, edge }, -1):narrow(-1, 2, n)
  end,
  stepped = function(_, t)
    if T.ndim(t) == 0 or T.numel(t) == 0 then return t end
    local ranges = {}
    for d = 1, T.ndim(t) - 1 do ranges[d] = {} end
    ranges[T.ndim(t)] = { 1, -1, 2 }
    return t:repeat_interleave(2, -1)[ranges]
  end,
}

-- Destinations (C1) ------------------------------------------------------------------------------

local function inputs_on(eng, case)
  local tensors = {}
  for k, input in ipairs(case.inputs(1)) do tensors[k] = samples.layouts.contiguous.make(eng, input.array) end
  return tensors
end

local function call(eng, case, tensors, out)
  local at = 0
  if case.random then eng:rng { 11, 1000 } end
  local args = samples.build(eng, case.row, case.sample, samples.values(case.row, case.sample, { dtype = case.dtype, seed = 1 }),
    { make = function() at = at + 1 return tensors[at] end })
  return samples.call(eng, case.row, args, out)
end

--- The destination forms of a sample: into fresh memory, into a view with a step, over each operand that fits, over one that it overlaps.
local function destinations(eng, case, results)
  local forms = { { name = "fresh", make = function(_, y) return eng:empty(y.shape, { dtype = y.dtype }) end },
    { name = "strided view", make = function(_, y)
        local shape, ranges = T.shape(y), {}
        if #shape == 0 then return eng:empty(3, { dtype = y.dtype })[2] end
        for d, size in ipairs(shape) do shape[d], ranges[d] = 2 * size + 1, size > 0 and { 2, 2 * size, 2 } or { 2, 1 } end
        return eng:empty(shape, { dtype = y.dtype })[ranges]
      end } }
  if #results == 1 then
    local shape = table.concat(results[1].shape, ",")
    for k, x in ipairs(inputs_on(eng, case)) do
      if table.concat(x.shape, ",") == shape and x.dtype == results[1].dtype then
        forms[#forms + 1] = { name = ("operand %d itself"):format(k), make = function(tensors) return tensors[k] end }
        if T.numel(x) > 1 then
          forms[#forms + 1] = { name = ("memory that overlaps operand %d"):format(k), make = function(tensors)
            local n = T.numel(x)
            local wide = eng:empty(n + 1, { dtype = x.dtype })
            tensors[k] = wide:narrow(1, 1, n):view(x.shape):copy(tensors[k])
            return wide:narrow(1, 2, n):view(x.shape)
          end }
        end
      end
    end
  end
  return forms
end

--- The destination form of every op (C1): the result lands in the destination's storage, which is handed back as it was, whatever lay in it
--- and whatever it overlaps.
---@return perilune.Report
function parity.destinations(opts)
  return with(opts or {}, "destinations", nil, function(reference, candidate, list, report)
    for _, case in ipairs(list) do
      local row = case.row
      if row and not row.inplace and not case.large and row.nout > 0 and row.name ~= "empty" then
        local want = {}
        for k, y in ipairs(call(reference, case, inputs_on(reference, case))) do want[k] = { name = "result " .. k, copy = compare.copy(y) } end
        local ok, message = pcall(function()
          local shown = call(candidate, case, inputs_on(candidate, case))
          for _, form in ipairs(destinations(candidate, case, shown)) do
            local tensors, out, homes = inputs_on(candidate, case), {}, {}
            for k, y in ipairs(shown) do
              out[k] = form.make(tensors, y)
              homes[k] = T.address(out[k])
            end
            local got, trouble = {}, nil
            local results = call(candidate, case, tensors, out)
            for k, t in ipairs(out) do
              if results[k] ~= t or T.address(t) ~= homes[k] then trouble = "the call does not return its destination as it was" end
              got[k] = { name = ("result %d into %s"):format(k, form.name), copy = compare.copy(t) }
            end
            report:add(case, judge(report, case, got, want, trouble))
          end
        end)
        if not ok then
          report:add(case, errored(report, case, message))
          clean(candidate)
        end
        candidate:reset()
      end
    end
  end)
end

-- Poison (C8) ------------------------------------------------------------------------------------

--- Ops whose results do not depend on all that their operands hold.
local PARTIAL = { tril = true, triu = true, empty = true, fill = true, zero = true }

--- Samples that leave out part of their operands.
local LEAVES_OUT = { cross_entropy = "ignore_index", sdpa = "bool" }

local function depends_on_all(case)
  if case.eats_nan or case.row and (case.row.eats_nan or PARTIAL[case.op]) then return false end
  if LEAVES_OUT[case.op] and case.name:find(LEAVES_OUT[case.op]) then return false end
  local floats = false
  for _, input in ipairs(case.inputs(1)) do
    if cases.count(input.array.shape) == 0 then return false end
    if input.kind ~= "mask" and input.kind ~= "index" then
      if not cases.is_float(input.array.dtype) and input.slot ~= "target" then return false end
      floats = true
    end
  end
  return floats
end

--- Feeds every op NaN in all its float operands: all its float results must be NaN, or a read of recycled memory would be swallowed. Ops that the
--- table excepts (comparisons, where, pow ...) are skipped and counted.
---@return perilune.Report
function parity.poison(opts)
  return with(opts or {}, "poison", nil, function(_, candidate, list, report)
    for _, case in ipairs(list) do
      if case.large or not depends_on_all(case) then
        report.skipped = report.skipped + 1
      else
        local ok, message = pcall(function()
          local tensors, sample = {}, { name = case.name, status = "passed", tensors = { n = 0 } }
          for k, input in ipairs(case.inputs(1)) do
            local array = input.array
            if cases.is_float(array.dtype) then
              tensors[k] = candidate:full(array.shape, 0 / 0, { dtype = array.dtype })
            else
              tensors[k] = samples.layouts.contiguous.make(candidate, array)
            end
          end
          if case.random then candidate:rng { 11, 1000 } end
          for k, y in ipairs { case.run(candidate, unpack(tensors, 1, #tensors)) } do
            if cases.is_float(T.dtype(y)) then
              local good, at = true, nil
              for i, v in ipairs(samples.read(y)) do
                if v == v then good, at = false, at or i end
              end
              if not good then
                sample.status = "failed"
                sample.message = sample.message
                  or message_of(report, case, ("result %d, element %d is not NaN though all operands are: poison is swallowed"):format(k, at))
              end
              sample.tensors.n = sample.tensors.n + 1
              sample.tensors[sample.tensors.n] = { name = "result " .. k, pass = good, elements = T.numel(y) }
            end
          end
          report:add(case, sample)
        end)
        if not ok then
          report:add(case, errored(report, case, message))
          clean(candidate)
        end
        candidate:reset()
      end
    end
  end)
end

parity.schedules = schedule.shipped

return parity
