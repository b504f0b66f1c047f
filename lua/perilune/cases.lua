-- SPDX-License-Identifier: MIT
-- cases: what harnesses run. A case is a function of tensors with the data to call it on; it knows nothing of engines, schedules or
-- memory. Each sample of the op table is one, each composite (composites.lua) too, and users can write their own:
--
--   { op = "cube", name = "cube (2,3)", rtol = 1e-6,
--     inputs = function(set) return { { array = { shape = {2, 3}, dtype = "f32", ... }, grad = true } } end,
--     run = function(eng, x) return cube(x) end }
--
-- The same set number gives the same data everywhere; sets 1, 2, ... differ.

local core = require "perilune.core"
local samples = require "perilune.samples"

local cases = {}

---@class perilune.Case
---@field op string what it is counted under
---@field name string
---@field rtol number |a - b| <= rtol * max(1, |b|) of f32 results
---@field grad_rtol number the same of gradients
---@field inputs fun(set: integer): { array: perilune.samples.Array, grad: boolean }[]
---@field run fun(eng, ...): any tensors
---@field random? boolean draws random numbers
---@field inplace? boolean writes its operands: no gradients, no destinations
---@field large? boolean run under few schedules
---@field undefined? boolean its right answer holds NaN
---@field row? table of the op table
---@field truth? perilune.Case whose outcome on the reference counts instead of this one's
---@field place? string where the function under test is written

--- Samples whose right answer is NaN by definition: means and variances of too few elements.
local UNDEFINED = {
  var = { ["(1)"] = true, ["(0)"] = true },
  mean = { ["(0)"] = true, ["(4,0) dims=2"] = true },
  cross_entropy = { ["(0,5) (0):i64<5"] = true },
}

local LARGE = 3000 -- elements

local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

function cases.is_float(dtype) return dtype == "f32" or dtype == "f64" end

--- Whether gradients flow through the op of a row.
function cases.differentiable(row)
  return not row.nodiff and not row.internal and not row.inplace and not row.create and (row.differentiable or row.composite)
end

local DERIVED = { tensor = true, ["tensor or number"] = true, tensors = true }

--- The case of one sample, in one dtype where the sample leaves the choice.
---@param row table of core.ops.rows
---@param sample perilune.samples.Sample
---@param dtype string
---@return perilune.Case
function cases.of_sample(row, sample, dtype)
  local differentiable = cases.differentiable(row)
  local known = setmetatable({}, { __mode = "v" }) -- data is made again when it is needed again: collections stay cheap
  local function values(set)
    local data = known[set] or samples.values(row, sample, { dtype = dtype, seed = set })
    known[set] = data
    return data
  end
  local function inputs(set)
    local list = {}
    samples.map(row, values(set), function(array, k)
      local grad = differentiable and cases.is_float(array.dtype) and DERIVED[row.slots[k].kind]
      list[#list + 1] = { array = array, grad = grad or false, slot = row.slots[k].name, kind = row.slots[k].kind }
    end)
    return list
  end
  local op = core.ops[row.name]
  local function run(eng, ...)
    local at, tensors = 0, { ... }
    local args = samples.map(row, values(1), function()
      at = at + 1
      return tensors[at]
    end)
    return core.ops[row.name](eng, unpack(args, 1, args.n))
  end
  local largest = 0
  for _, input in ipairs(inputs(1)) do largest = math.max(largest, count(input.array.shape)) end
  local shape = values(1)[1]
  if row.create and type(shape) == "table" then largest = math.max(largest, count(shape)) end
  return {
    op = row.name, name = ("%s %s %s"):format(row.name, sample.text, dtype), row = row, sample = sample, dtype = dtype,
    rtol = row.rtol, grad_rtol = math.max(10 * row.rtol, 1e-5), inputs = inputs, run = run, fn = op,
    random = row.random, inplace = row.inplace, large = largest > LARGE, numel = largest,
    undefined = (UNDEFINED[row.name] or {})[sample.text] or false,
  }
end

local function wanted(filter, name)
  if not filter then return true end
  for _, pattern in ipairs(filter) do
    if name == pattern or name:find("^" .. pattern:gsub("%*", ".*") .. "$") then return true end
  end
  return false
end

--- All cases of the table: every sample that is no error, as f32, and small ones in their other dtypes too.
---@param opts? { ops?: string[], dtypes?: boolean, internal?: boolean, samples?: integer }  names or patterns with *; dtypes = false: f32 (or the
---  sample's own) only; samples: so many of each op
---@return perilune.Case[]
function cases.of_table(opts)
  opts = opts or {}
  local list = {}
  for _, row in ipairs(core.ops.rows) do
    if wanted(opts.ops, row.name) and (opts.internal or not row.internal) then
      local taken = 0
      for _, sample in ipairs(samples.of(row)) do
        if not sample.bad and taken < (opts.samples or math.huge) then
          taken = taken + 1
          local dtypes = samples.dtypes(row, sample)
          local has_f32 = false
          for _, dtype in ipairs(dtypes) do has_f32 = has_f32 or dtype == "f32" end
          for _, dtype in ipairs(dtypes) do
            if dtype == "f32" or not has_f32 or opts.dtypes ~= false then
              local case = cases.of_sample(row, sample, dtype)
              if dtype == "f32" or not case.large then list[#list + 1] = case end
            end
          end
        end
      end
    end
  end
  return list
end

--- Where a function is written, "file:line".
function cases.place_of(fn)
  local info = debug.getinfo(fn, "S")
  return info.what == "C" and "the op table" or ("%s:%d"):format(info.short_src, info.linedefined)
end

cases.wanted, cases.count = wanted, count

return cases
