-- SPDX-License-Identifier: MIT
-- What a row of the op table must carry (src/ops.def): documentation, a domain, a tolerance, a reference, a derivative, and samples of every size that
-- goes wrong somewhere. Each test names all the rows that lack something.

local core = require "perilune.core"
local perilune = require "perilune"
local samples = require "perilune.samples"
local engines = require "spec.support.engines"
local sweep = require "spec.support.sweep"

-- Elements of more than two blocks: what elementwise loops and copies share out comes in blocks of 32768, what adds up in units of 4096.
local MANY, MANY_ADDED = 65536, 8192

-- Ops whose values may be equal, or whose derivative may stand at a tie.
local tied = { max = true, min = true, argmax = true, argmin = true, maximum = true, minimum = true, softmax = true, log_softmax = true, prod = true,
  eq = true, ne = true, lt = true, le = true, gt = true, ge = true, scatter_add = true }

local rows = core.ops.rows

--- Collects the names of rows for which fn(row) gives a message.
local function offenders(fn)
  local list = {}
  for _, row in ipairs(rows) do
    local message = fn(row)
    if message then list[#list + 1] = row.name .. ": " .. message end
  end
  return list
end

--- A derivative made of a formula column has no samples of its own: its op's samples reach it.
local function is_derivative(row) return row.internal and row.name:match "_backward$" ~= nil end
local function is_formula_derivative(row) return is_derivative(row) and row.pointwise end

local function good_samples(row)
  local list = {}
  for _, sample in ipairs(samples.of(row)) do
    if not sample.bad then list[#list + 1] = sample end
  end
  return list
end

local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function tensors(sample)
  local list = {}
  for _, spec in ipairs(sample.args) do
    if spec and spec.kind == "tensor" then list[#list + 1] = spec end
    if spec and spec.kind == "tensors" then
      for _, one in ipairs(spec) do list[#list + 1] = one end
    end
  end
  return list
end

describe("the op table", function()
  local eng

  --- Elements of every tensor of a sample, then of its results.
  local sizes_of = {}
  local function sizes(row, sample)
    if not sizes_of[sample] then
      local list = {}
      for _, spec in ipairs(tensors(sample)) do list[#list + 1] = count(spec.shape) end
      local values = samples.values(row, sample, { dtype = samples.dtypes(row, sample)[1] })
      for _, t in ipairs(samples.call(eng, row, samples.build(eng, row, sample, values))) do list[#list + 1] = t:numel() end
      sizes_of[sample] = list
    end
    return sizes_of[sample]
  end

  --- Whether fn holds for the sizes of a good sample.
  local function some(row, fn)
    for _, sample in ipairs(good_samples(row)) do
      if fn(sizes(row, sample), sample) then return true end
    end
    return false
  end

  setup(function() eng = engines.open "cpu" end)
  teardown(engines.close)

  it("names each op once, as a method where it is public", function()
    local seen = {}
    assert.same({}, offenders(function(row)
      if seen[row.name] then return "twice" end
      seen[row.name] = true
      local method = eng[row.internal and "add" or row.name]
      if not method then return "no engine method" end
      if not row.internal and not row.create and not perilune[row.name] then return "no function perilune." .. row.name end
    end))
  end)

  it("documents each op in one line", function()
    assert.same({}, offenders(function(row)
      if #row.doc < 2 then return "no documentation" end
      if row.doc:find "\n" or row.doc:find "%.$" then return "the documentation is one line without a full stop" end
    end))
  end)

  it("has a domain and a tolerance for each op", function()
    assert.same({}, offenders(function(row)
      local ok, message = pcall(samples.domains, row)
      if not ok then return message end
      if #samples.domains(row) == 0 then return "no domain" end
      if not (row.rtol >= 0 and row.rtol <= 1e-4) then return "rtol " .. row.rtol end
      if #row.dtypes == 0 then return "no dtypes" end
    end))
  end)

  it("has samples that can be read, and a text for each bad one", function()
    assert.same({}, offenders(function(row)
      local ok, list = pcall(samples.of, row)
      if not ok then return list end
      if #list == 0 and not is_formula_derivative(row) and row.name ~= "dropout_backward" then return "no samples" end
      for _, sample in ipairs(list) do
        if sample.bad and #sample.bad < 4 then return "bad sample without a text: " .. sample.text end
      end
    end))
  end)

  local function sized(row) return #good_samples(row) > 0 and row.name ~= "empty" end

  it("has samples of size 0", function()
    assert.same({}, offenders(function(row)
      if sized(row) and not some(row, function(list)
        for _, n in ipairs(list) do
          if n == 0 then return true end
        end
      end) then return "no sample of size 0" end
    end))
  end)

  it("has samples of size 1", function()
    assert.same({}, offenders(function(row)
      -- fused internal ops are reached by the public op's samples as well
      if sized(row) and not row.internal and not some(row, function(list, sample)
        for i = 1, math.max(#tensors(sample), row.create and 1 or 0) do
          if list[i] ~= 1 then return false end
        end
        return true
      end) then return "no sample of size 1" end
    end))
  end)

  it("has samples of more than two blocks", function()
    assert.same({}, offenders(function(row)
      local many = (row.pointwise or row.view or row.create or row.composite) and MANY or MANY_ADDED
      if sized(row) and not row.internal and not some(row, function(list) return math.max(unpack(list)) > many end) then
        return ("no sample of more than %d elements"):format(many)
      end
    end))
  end)

  it("has samples that broadcast, for what broadcasts", function()
    assert.same({}, offenders(function(row)
      local operands = 0
      for _, slot in ipairs(row.slots) do
        if slot.kind == "tensor" or slot.kind == "tensor or number" or slot.kind == "mask" then operands = operands + 1 end
      end
      if not sized(row) or row.internal or row.name == "sgd" or row.name == "adamw" or not row.pointwise or operands < 2 then return end
      if not some(row, function(_, sample)
        local list = tensors(sample)
        return list[2] and table.concat(list[1].shape, ",") ~= table.concat(list[2].shape, ",")
      end) then return "no sample that broadcasts" end
    end))
  end)

  it("has samples with a dim that is not the last, where there is a dim", function()
    assert.same({}, offenders(function(row)
      local at
      for k, slot in ipairs(row.slots) do
        if slot.kind == "dim" or slot.kind == "dims" then at = at or k end
      end
      if not at or not sized(row) then return end
      if not some(row, function(_, sample)
        local spec, first = sample.args[at], tensors(sample)[1]
        local value = spec and spec.value or row.slots[at].default
        if not value or not first then return false end
        local n = #first.shape
        for _, d in ipairs(type(value) == "table" and value or { value }) do
          if (d > 0 and d < n) or d < -1 then return true end
        end
      end) then return "no sample with a dim that is not the last" end
    end))
  end)

  it("has samples with ties, where they matter", function()
    assert.same({}, offenders(function(row)
      if tied[row.name] and not some(row, function(_, sample)
        for _, spec in ipairs(tensors(sample)) do
          if spec.fill and count(spec.shape) > 1 then return true end
        end
      end) then return "no sample with equal elements" end
    end))
  end)

  it("has a reference for each op, or a reason", function()
    assert.same({}, offenders(function(row)
      local has, reason = sweep.has_reference(row)
      if not has and not reason then return "no reference" end
    end))
  end)

  it("has a derivative for each op, or says that there is none", function()
    assert.same({}, offenders(function(row)
      if row.differentiable and row.nodiff then return "a derivative and NODIFF" end
      -- a composite's derivative is that of what it runs; second derivatives may be missing
      if not row.differentiable and not row.nodiff and not row.composite and not is_derivative(row) then return "neither a derivative nor NODIFF" end
    end))
  end)

  it("has no reference for an op that is none", function()
    local names, unknown = {}, {}
    for _, row in ipairs(rows) do names[row.name] = true end
    for name in pairs(require "spec.support.reference".ops) do
      if not names[name] then unknown[#unknown + 1] = name end
    end
    assert.same({}, unknown)
  end)
end)

describe("samples that cannot be read", function()
  local function fails(text, pattern, domain)
    local row
    for _, r in ipairs(rows) do
      if r.name == "sum" then row = setmetatable({ domain = domain or r.domain }, { __index = r }) end
    end
    local ok, message
    if domain then ok, message = pcall(samples.domains, row) else ok, message = pcall(samples.parse, row, text) end
    assert.is_false(ok)
    assert.is_truthy(message:find(pattern, 1, true), message)
    assert.is_truthy(message:find("'sum'", 1, true), message)
  end

  it("name row and position", function()
    fails("(2,3) | (2,", "character 9")
    fails("(2,3) dim=1", "there is no slot 'dim'")
    fails("(2,3):f99", "there is no dtype 'f99'")
    fails("(2,3)(4)", "there is no slot for this")
    fails("(2,3) dims={1,x}", "a list holds numbers, got 'x'")
    fails("bad (2,3) dims=9", "a bad sample ends in")
    fails("(2,3) dims=", "a value is missing")
    fails(nil, "is no range", "3..-3")
    fails(nil, "is no kink", "-3..3 !x")
  end)
end)
