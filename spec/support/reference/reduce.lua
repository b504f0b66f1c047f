-- SPDX-License-Identifier: MIT
-- Reference of the reductions and of what works along one dim: sums, extremes, moments, norms,
-- cumsum, softmax. Each is written for one lane, the list of values that meet in a result.
-- Sums of integers are i64; NaN reaches every result whose lane has one (argmax: its index).

local array = require "spec.support.reference.array"

local huge = math.huge
local ops = {}

-- Where lanes start, and where their values lie from there (0-based offsets); set says which dims
-- run inside a lane. Also the shape with these dims dropped, or kept as 1.
local function lanes(x, set, keepdim)
  local strides = array.strides(x.shape)
  local outer, outer_strides, inner, inner_strides, shape = {}, {}, {}, {}, {}
  for d = 1, #x.shape do
    local sizes, steps = outer, outer_strides
    if set[d] then sizes, steps = inner, inner_strides end
    sizes[#sizes + 1], steps[#steps + 1] = x.shape[d], strides[d]
    if not set[d] then shape[#shape + 1] = x.shape[d] elseif keepdim then shape[#shape + 1] = 1 end
  end
  return array.offsets(outer, outer_strides), array.offsets(inner, inner_strides), shape
end

-- Calls fn(values, count) for each lane; values are loaded as dtype's arithmetic wants them.
local function fold(op, x, dims, keepdim, dtype, fn)
  local starts, steps, shape = lanes(x, array.dim_set(op, dims, #x.shape), keepdim)
  local out, load, store = array.new(shape, dtype), array.load(dtype), array.store(dtype)
  local values = {}
  for i = 1, #starts do
    for j = 1, #steps do values[j] = load(x[starts[i] + steps[j] + 1]) end
    out[i] = store(fn(values, #steps))
  end
  return out
end

-- Calls fn(values, count, put) for each lane; put(j, v) sets the result's j-th value.
local function map_lanes(x, set, dtype, fn)
  local starts, steps = lanes(x, set)
  local out, load, store = array.new(x.shape, dtype), array.load(dtype), array.store(dtype)
  local values, start = {}, nil
  local function put(j, v) out[start + steps[j] + 1] = store(v) end
  for i = 1, #starts do
    start = starts[i]
    for j = 1, #steps do values[j] = load(x[start + steps[j] + 1]) end
    fn(values, #steps, put)
  end
  return out
end

local function sum_of(values, n)
  local sum = values[1] or 0
  for j = 2, n do sum = sum + values[j] end
  return n > 0 and sum or 0
end

local function prod_of(values, n)
  local product = values[1] or 1
  for j = 2, n do product = product * values[j] end
  return n > 0 and product or 1
end

local function mean_of(values, n)
  return sum_of(values, n) / n
end

-- The index of the first NaN, else of the first value that none goes beyond.
local function extreme_of(values, n, beyond)
  local best = 1
  for j = 1, n do
    if values[j] ~= values[j] then return j end
    if beyond(values[j], values[best]) then best = j end
  end
  return best
end

local function above(p, q) return p > q end
local function below(p, q) return p < q end

local function widen(dtype)
  return array.kind(dtype) == "float" and dtype or "i64"
end

local function need_float(op, x)
  if array.kind(x.dtype) ~= "float" then
    array.fail(op, "expected a floating point array, got %s", x.dtype)
  end
end

-- Sums and moments --------------------------------------------------------------------------

function ops.sum(x, dims, keepdim)
  return fold("sum", x, dims, keepdim, widen(x.dtype), sum_of)
end

function ops.prod(x, dims, keepdim)
  return fold("prod", x, dims, keepdim, widen(x.dtype), prod_of)
end

function ops.mean(x, dims, keepdim)
  need_float("mean", x)
  return fold("mean", x, dims, keepdim, x.dtype, mean_of)
end

function ops.var(x, dims, correction, keepdim)
  need_float("var", x)
  correction = correction or 1
  return fold("var", x, dims, keepdim, x.dtype, function(values, n)
    local mean, squares = mean_of(values, n), 0
    for j = 1, n do squares = squares + (values[j] - mean) * (values[j] - mean) end
    return squares / math.max(n - correction, 0)
  end)
end

local function logsumexp_of(values, n)
  if n == 0 then return -huge end
  local top = values[extreme_of(values, n, above)]
  if top ~= top or top == huge or top == -huge then return top end
  local sum = 0
  for j = 1, n do sum = sum + math.exp(values[j] - top) end
  return top + math.log(sum)
end

function ops.logsumexp(x, dims, keepdim)
  return fold("logsumexp", x, dims, keepdim, array.float_type(x.dtype), logsumexp_of)
end

function ops.norm(x, p, dims, keepdim)
  need_float("norm", x)
  p = p or 2
  return fold("norm", x, dims, keepdim, x.dtype, function(values, n)
    if n == 0 and (p < 0 or p == huge) then array.fail("norm", "no extreme of nothing") end
    local sizes, sum = {}, 0
    for j = 1, n do
      sizes[j] = math.abs(values[j])
      if p == 0 then sum = sum + (sizes[j] == 0 and 0 or sizes[j] ~= sizes[j] and sizes[j] or 1)
      elseif p == 2 then sum = sum + sizes[j] * sizes[j]
      else sum = sum + sizes[j] ^ p end
    end
    if p == huge then return sizes[extreme_of(sizes, n, above)] end
    if p == -huge then return sizes[extreme_of(sizes, n, below)] end
    if p == 0 or p == 1 then return sum end
    return p == 2 and math.sqrt(sum) or sum ^ (1 / p)
  end)
end

-- Extremes ----------------------------------------------------------------------------------

local function extreme_ops(name, index_name, beyond)
  -- Values and indices in one pass over the lanes, so that they cannot disagree.
  local function both(op, x, dim, keepdim)
    local set = array.dim_set(op, dim, #x.shape)
    local starts, steps, shape = lanes(x, set, keepdim)
    if #steps == 0 then array.fail(op, "no extreme of an empty dim") end
    local values, indices, lane = array.new(shape, x.dtype), array.new(shape, "i64"), {}
    for i = 1, #starts do
      for j = 1, #steps do lane[j] = x[starts[i] + steps[j] + 1] end
      local best = extreme_of(lane, #steps, beyond)
      values[i], indices[i] = lane[best], best
    end
    return values, indices
  end
  ops[name] = function(x, dim, keepdim)
    local values, indices = both(name, x, dim, keepdim)
    if dim == nil then return values end
    return values, indices
  end
  ops[index_name] = function(x, dim, keepdim)
    local _, indices = both(index_name, x, dim, keepdim)
    return indices
  end
end

extreme_ops("max", "argmax", above)
extreme_ops("min", "argmin", below)

local function truth_op(name, found, otherwise)
  ops[name] = function(x, dims, keepdim)
    return fold(name, array.cast(x, "bool"), dims, keepdim, "bool", function(values, n)
      for j = 1, n do
        if (values[j] ~= 0) == found then return found and 1 or 0 end
      end
      return otherwise
    end)
  end
end

truth_op("any", true, 0)
truth_op("all", false, 1)

-- Along one dim -----------------------------------------------------------------------------

function ops.cumsum(x, dim)
  local set = { [array.dim("cumsum", dim, #x.shape)] = true }
  return map_lanes(x, set, widen(x.dtype), function(values, n, put)
    local sum
    for j = 1, n do
      sum = sum and sum + values[j] or values[j]
      put(j, sum)
    end
  end)
end

-- A lane of nothing but -inf gives NaN, as -inf - (-inf) does.
local function softmax_op(name, finish)
  ops[name] = function(x, dim)
    local set = { [array.dim(name, dim or -1, #x.shape)] = true }
    return map_lanes(x, set, array.float_type(x.dtype), function(values, n, put)
      if n == 0 then return end
      local top, sum = values[extreme_of(values, n, above)], 0
      for j = 1, n do sum = sum + math.exp(values[j] - top) end
      for j = 1, n do put(j, finish(values[j] - top, sum)) end
    end)
  end
end

softmax_op("softmax", function(v, sum) return math.exp(v) / sum end)
softmax_op("log_softmax", function(v, sum) return v - math.log(sum) end)

return { ops = ops, map_lanes = map_lanes, mean_of = mean_of, need_float = need_float }
