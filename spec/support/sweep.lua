-- SPDX-License-Identifier: MIT
-- sweep: what the specs share that go over every op: the engines, the hand-written reference under the op table's signatures, and a
-- comparison of all elements. Engines of the host are one family and give the same bits (C10), so one of them is compared with the
-- reference and the others with it.

local core = require "perilune.core"
local samples = require "perilune.samples"
local reference = require "spec.support.reference"
local engines = require "spec.support.engines"
local internal = require "spec.support.sweep_reference"

local sweep = {}

-- Engines -----------------------------------------------------------------------------------

local host = { cpu = true, stress = true, ["cpu with an arena"] = true }

--- The engines that this machine offers, opened: { kind =, family =, eng = }; the first of a family is compared with the reference.
--- Close them with engines.close.
function sweep.open(options)
  local list = {}
  engines.each(function(kind, open)
    local o = {}
    for k, v in pairs(options or {}) do o[k] = v end
    if kind ~= "cpu" then o.arena = "64MiB" end
    list[#list + 1] = { kind = kind, family = host[kind] and "host" or "device", eng = open(o) }
  end)
  table.sort(list, function(a, b) return a.kind < b.kind end)
  return list
end

--- Reads an op's results: list of { bytes =, shape =, dtype = }.
function sweep.results(list)
  local out = {}
  for i, t in ipairs(list) do out[i] = { bytes = t:bytes(), shape = t.shape, dtype = t.dtype } end
  return out
end

--- Runs an op on fresh tensors and reads its results.
function sweep.run(eng, row, sample, values, opts)
  if row.random then eng:rng { 7, 3 } end
  return sweep.results(samples.call(eng, row, samples.build(eng, row, sample, values, opts)))
end

-- Reference ---------------------------------------------------------------------------------

local adapters = internal.adapters

--- Whether the reference has an op under this row's name or one that it can be made of; else why not.
function sweep.has_reference(row)
  if adapters[row.name] or reference.ops[row.name] then return true end
  return false, internal.without[row.name] or row.name:match "_backward$" and row.internal and row.pointwise
    and "a derivative that the formula column holds; gradcheck compares it with differences"
end

--- The reference's results for samples.values' values, as a list of arrays; nil where it has no such op.
function sweep.reference(row, values)
  local fn = adapters[row.name] or reference.ops[row.name]
  if not fn then return nil end
  return { fn(unpack(values, 1, values.n)) }
end

-- Comparison --------------------------------------------------------------------------------

--- Relative error that a row allows in results of a dtype; `low` says that f32 operands went in, so that no result is better.
function sweep.rtol(row, dtype, low)
  if dtype == "f32" or (dtype == "f64" and low) then return row.rtol end
  if dtype ~= "f64" or row.rtol == 0 then return 0 end
  return math.max(row.rtol * 2 ^ -27, 2 ^ -49) -- the reference rounds as well
end

local function position(shape, i)
  local at, rest = {}, i - 1
  for d = #shape, 1, -1 do
    at[d] = rest % shape[d] + 1
    rest = math.floor(rest / shape[d])
  end
  return "[" .. table.concat(at, ",") .. "]"
end

local function shape_text(shape) return "(" .. table.concat(shape, ", ") .. ")" end

local function same_shape(a, b)
  if #a ~= #b then return false end
  for d = 1, #a do
    if a[d] ~= b[d] then return false end
  end
  return true
end

local function whole_mismatch(from, n, want)
  for i = 1, n do
    if from[i - 1] ~= want[i] then return i end
  end
end

local function float_mismatch(from, n, want, rtol)
  for i = 1, n do
    local a, b = from[i - 1], want[i]
    if a ~= b then
      local size = math.abs(b)
      if size < 1 then size = 1 end
      -- an infinity equals only itself, NaN only NaN
      local close = a == a and size < math.huge and math.abs(a - b) <= rtol * size
      if not close and (a == a or b == b) then return i end
    end
  end
end

--- nil if a result is the wanted array within rtol * max(1, |b|), else what differs.
function sweep.difference(got, want, rtol)
  if got.dtype ~= want.dtype then return ("dtype %s, not %s"):format(got.dtype, want.dtype) end
  if not same_shape(got.shape, want.shape) then return ("shape %s, not %s"):format(shape_text(got.shape), shape_text(want.shape)) end
  local n = 1
  for _, size in ipairs(got.shape) do n = n * size end
  local from = samples.elements(got.bytes, n, got.dtype)
  local float = got.dtype == "f32" or got.dtype == "f64"
  local i
  if float then i = float_mismatch(from, n, want, rtol) else i = whole_mismatch(from, n, want) end
  if i then
    return ("element %s of %s is %s, not %s (rtol %g)"):format(position(got.shape, i), shape_text(got.shape), tostring(from[i - 1]),
      tostring(want[i]), rtol)
  end
end

--- Raises unless results equal the reference's, `values` being what went in.
function sweep.check(row, values, got, want, what)
  if #got ~= #want then error(("%s: %d results, not %d"):format(what, #got, #want), 0) end
  local low = false
  for k = 1, values.n do low = low or (samples.is_array(values[k]) and values[k].dtype == "f32") end
  for i = 1, #want do
    local w = row.rtol == 0 and want[i].dtype == "f32" and reference.round(want[i]) or want[i]
    local message = sweep.difference(got[i], w, sweep.rtol(row, got[i].dtype, low))
    if message then error(("%s: result %d: %s"):format(what, i, message), 0) end
  end
end

--- Raises unless results have the same bits.
function sweep.same_bits(got, want, what)
  if #got ~= #want then error(("%s: %d results, not %d"):format(what, #got, #want), 0) end
  for i = 1, #want do
    if got[i].dtype ~= want[i].dtype or not same_shape(got[i].shape, want[i].shape) or got[i].bytes ~= want[i].bytes then
      local array = samples.decode(want[i].bytes, want[i].shape, want[i].dtype)
      error(("%s: result %d has other bits: %s"):format(what, i, sweep.difference(got[i], array, 0) or "NaN or 0 of another sign"), 0)
    end
  end
end

-- Rows --------------------------------------------------------------------------------------

sweep.rows = core.ops.rows

--- Elements of the largest tensor among a sample's arguments.
function sweep.size(sample)
  local most = 0
  local function see(spec)
    local n = 1
    for _, size in ipairs(spec.shape) do n = n * size end
    most = math.max(most, n)
  end
  for _, spec in ipairs(sample.args) do
    if spec and spec.kind == "tensor" then
      see(spec)
    elseif spec and spec.kind == "tensors" then
      for _, one in ipairs(spec) do see(one) end
    elseif spec and type(spec.value) == "table" then
      see { shape = spec.value } -- a shape, most often
    end
  end
  return most
end

--- fn(sample, dtype, values, "op sample dtype") for each sample of a row that is not bad, in each of its dtypes, up to `limit` elements.
function sweep.each(row, limit, fn, opts)
  for _, sample in ipairs(samples.of(row)) do
    if not sample.bad and sweep.size(sample) <= limit then
      for _, dtype in ipairs(samples.dtypes(row, sample)) do
        local o = { dtype = dtype }
        for k, v in pairs(opts or {}) do o[k] = v end
        fn(sample, dtype, samples.values(row, sample, o), ("%s %s %s"):format(row.name, sample.text, dtype))
      end
    end
  end
end

--- Forgets the tensors of an arena; waits.
function sweep.settle(list)
  for _, e in ipairs(list) do
    e.eng:sync()
    e.eng:reset()
  end
end

return sweep
