-- SPDX-License-Identifier: MIT
-- Arrays of the hand-written reference: shapes, dtypes, promotion, conversion, comparison.
-- An array is { shape = {..}, dtype = "f32"|"f64"|"i32"|"i64"|"u8"|"bool", [1..n] = row-major }.
-- Invariant: floats are doubles (f32 is not rounded unless asked), bools are 0 or 1, and an i64
-- element is a Lua number while that is exact (|v| <= 2^53) and an int64_t cdata beyond.

local ffi = require "ffi"

local array = {}

local int64, int32, uint8 = ffi.typeof "int64_t", ffi.typeof "int32_t", ffi.typeof "uint8_t"
local float = ffi.new "float[1]"
local EXACT = 2 ^ 53

-- rank orders PyTorch's promotion table, which is a chain for these six.
local dtypes = {
  bool = { rank = 1, kind = "bool" },
  u8 = { rank = 2, kind = "int", min = 0, max = 255 },
  i32 = { rank = 3, kind = "int", min = -2 ^ 31, max = 2 ^ 31 - 1 },
  i64 = { rank = 4, kind = "int", min = -0x7fffffffffffffffLL - 1, max = 0x7fffffffffffffffLL },
  f32 = { rank = 5, kind = "float" },
  f64 = { rank = 6, kind = "float" },
}

function array.fail(op, message, ...)
  error(("reference.%s: " .. message):format(op, ...), 0)
end

function array.kind(dtype)
  local entry = dtypes[dtype] or array.fail("kind", "unknown dtype %s", tostring(dtype))
  return entry.kind
end

function array.is(value)
  return type(value) == "table" and value.shape ~= nil and value.dtype ~= nil
end

-- Shapes ------------------------------------------------------------------------------------

function array.numel(shape)
  local n = 1
  for d = 1, #shape do n = n * shape[d] end
  return n
end

function array.strides(shape)
  local strides, step = {}, 1
  for d = #shape, 1, -1 do
    strides[d] = step
    step = step * shape[d]
  end
  return strides
end

function array.copy_list(list)
  local out = {}
  for i = 1, #list do out[i] = list[i] end
  return out
end

function array.same_shape(a, b)
  if #a ~= #b then return false end
  for d = 1, #a do
    if a[d] ~= b[d] then return false end
  end
  return true
end

function array.shape_text(shape)
  return "(" .. table.concat(shape, ",") .. ")"
end

-- A dim counts from 1, or from the end when negative; a 0-dim array has the one dim 1 (or -1).
function array.dim(op, dim, ndim)
  local n = math.max(ndim, 1)
  if type(dim) ~= "number" or dim % 1 ~= 0 or dim == 0 or dim > n or dim < -n then
    array.fail(op, "dim %s is outside 1..%d", tostring(dim), n)
  end
  return dim < 0 and n + 1 + dim or dim
end

-- A set { [dim] = true } from nil (all), one dim or a list of them.
function array.dim_set(op, dims, ndim)
  local set = {}
  if dims == nil or (type(dims) == "table" and #dims == 0) then
    for d = 1, ndim do set[d] = true end
    return set
  end
  if type(dims) == "number" then dims = { dims } end
  for i = 1, #dims do
    local d = array.dim(op, dims[i], ndim)
    if set[d] then array.fail(op, "dim %d is given twice", d) end
    set[d] = true
  end
  return set
end

function array.broadcast_shape(a, b)
  local shape, n = {}, math.max(#a, #b)
  for back = 0, n - 1 do
    local p, q = a[#a - back] or 1, b[#b - back] or 1
    if p ~= q and p ~= 1 and q ~= 1 then
      return nil, ("shapes %s and %s differ at dim %d: %d and %d"):format(
        array.shape_text(a), array.shape_text(b), n - back, p, q)
    end
    shape[n - back] = p == 1 and q or p
  end
  return shape
end

-- The offsets (from 0) of all positions of shape in row-major order under these strides.
function array.offsets(shape, strides, offset)
  local list = { offset or 0 }
  for d = 1, #shape do
    local longer, n = {}, 0
    for i = 1, #list do
      for k = 0, shape[d] - 1 do
        n = n + 1
        longer[n] = list[i] + k * strides[d]
      end
    end
    list = longer
  end
  return list
end

-- Elements ----------------------------------------------------------------------------------

function array.round_f32(v)
  float[0] = v
  return float[0]
end

local function shorten(v)
  if v >= -0x20000000000000LL and v <= 0x20000000000000LL then return tonumber(v) end
  return v
end

-- What an element of dtype holds when an integer result (number or int64) is put in: it wraps.
local wrap = {
  bool = function(v) return v ~= 0 and 1 or 0 end,
  u8 = function(v) return tonumber(ffi.cast(uint8, ffi.cast(int64, v))) end,
  i32 = function(v) return tonumber(ffi.cast(int32, ffi.cast(int64, v))) end,
  i64 = function(v) return shorten(ffi.cast(int64, v)) end,
  f32 = function(v) return tonumber(v) end,
  f64 = function(v) return tonumber(v) end,
}

function array.store(dtype)
  return wrap[dtype]
end

-- Integers compute as int64, so that a product of two i32 is exact before it wraps.
function array.load(dtype)
  if dtypes[dtype].kind == "float" then return tonumber end
  return function(v) return ffi.cast(int64, v) end
end

local function saturate(v, dtype)
  local range = dtypes[dtype]
  if v ~= v then return range.min end
  v = v < 0 and math.ceil(v) or math.floor(v)
  if v <= tonumber(range.min) then return range.min end
  if v >= tonumber(range.max) then return range.max end
  return wrap[dtype](v)
end

-- One element from one dtype to another: floats to integers truncate and saturate, NaN gives the
-- minimum; integers to narrower integers wrap; anything to bool asks "is it not zero".
function array.convert(v, from, to)
  if to == "bool" then return v ~= 0 and 1 or 0 end
  if to == "f32" then return array.round_f32(tonumber(v)) end
  if to == "f64" then return tonumber(v) end
  if dtypes[from].kind == "float" then return saturate(v, to) end
  return wrap[to](v)
end

-- Making arrays -----------------------------------------------------------------------------

function array.new(shape, dtype, data)
  local out = { shape = array.copy_list(shape), dtype = dtype }
  if data then
    local n = array.numel(shape)
    for i = 1, n do out[i] = data[i] end
  end
  return out
end

-- From a number or a nested table; the dtype is f32 unless given.
function array.from(values, dtype)
  local out = { shape = {}, dtype = dtype or "f32" }
  local level = values
  while type(level) == "table" do
    out.shape[#out.shape + 1] = #level
    level = level[1]
  end
  local function visit(node, depth)
    if type(node) ~= "table" then
      if depth <= #out.shape then array.fail("array", "a number where a row was expected") end
      if type(node) == "boolean" then node = node and 1 or 0 end
      out[#out + 1] = array.kind(out.dtype) == "float" and node or wrap[out.dtype](node)
      return
    end
    if #node ~= out.shape[depth] then array.fail("array", "rows of different lengths") end
    for i = 1, #node do visit(node[i], depth + 1) end
  end
  visit(values, 1)
  return out
end

function array.full(shape, dtype, value)
  local out = array.new(shape, dtype)
  for i = 1, array.numel(shape) do out[i] = value end
  return out
end

-- The array that a view with these strides and offset (in elements, from 0) shows of data.
function array.strided(shape, strides, offset, data)
  local out = array.new(shape, data.dtype or "f32")
  local offsets = array.offsets(shape, strides, offset)
  for i = 1, #offsets do
    local v = data[offsets[i] + 1]
    if v == nil then array.fail("strided", "offset %d is outside the data", offsets[i]) end
    out[i] = v
  end
  return out
end

function array.reshape(x, shape)
  return array.new(shape, x.dtype, x)
end

function array.expand(op, x, shape)
  local lead, own, strides = #shape - #x.shape, array.strides(x.shape), {}
  for d = 1, #shape do
    local size = x.shape[d - lead] or 1
    if lead < 0 or (size ~= shape[d] and size ~= 1) then
      array.fail(op, "shape %s does not expand to %s", array.shape_text(x.shape),
        array.shape_text(shape))
    end
    strides[d] = size == 1 and 0 or own[d - lead]
  end
  if lead < 0 then array.fail(op, "%d dims do not expand to %d", #x.shape, #shape) end
  return array.strided(shape, strides, 0, x)
end

function array.cast(x, dtype)
  array.kind(dtype)
  if x.dtype == dtype then return array.new(x.shape, dtype, x) end
  local out = array.new(x.shape, dtype)
  for i = 1, array.numel(x.shape) do out[i] = array.convert(x[i], x.dtype, dtype) end
  return out
end

function array.round(x)
  if x.dtype ~= "f32" then return array.new(x.shape, x.dtype, x) end
  local out = array.new(x.shape, x.dtype)
  for i = 1, array.numel(x.shape) do out[i] = array.round_f32(x[i]) end
  return out
end

-- Promotion ---------------------------------------------------------------------------------

local function promote(a, b)
  if not a or not b then return a or b end
  return dtypes[a].rank >= dtypes[b].rank and a or b
end

-- A whole number counts as an integer, since Lua does not tell 2 from 2.0.
local function number_dtype(v)
  return v % 1 == 0 and math.abs(v) <= EXACT and "i64" or "f32"
end

-- PyTorch's rule: arrays with dims decide; 0-dim arrays, then numbers, count only where they are
-- of a higher kind (bool < int < float).
function array.result_type(...)
  local with_dims, zero_dim, number
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    if type(v) == "number" then
      number = promote(number, number_dtype(v))
    elseif array.is(v) then
      if #v.shape > 0 then with_dims = promote(with_dims, v.dtype)
      else zero_dim = promote(zero_dim, v.dtype) end
    elseif v ~= nil then
      array.fail("result_type", "an operand is a %s", type(v))
    end
  end
  local function combine(high, low)
    if not high or not low then return high or low end
    local hk, lk = dtypes[high].kind, dtypes[low].kind
    if hk == "bool" or (lk == "float" and hk ~= "float") then return promote(high, low) end
    return high
  end
  return combine(with_dims, combine(zero_dim, number))
end

function array.float_type(dtype)
  return dtypes[dtype].kind == "float" and dtype or "f32"
end

-- An operand (array or number) as dtype and shape.
function array.operand(op, v, dtype, shape)
  if type(v) == "number" then
    return array.full(shape, dtype, array.convert(v, number_dtype(v), dtype))
  end
  return array.cast(array.expand(op, v, shape), dtype)
end

-- Tools of the sweeps -----------------------------------------------------------------------

-- Deterministic values from a 64-bit linear congruential generator (Knuth's MMIX constants):
-- floats in [lo, hi), integers in lo..hi, bools 0 or 1.
function array.random(shape, dtype, lo, hi, seed)
  local state = ffi.cast("uint64_t", seed or 1)
  local function uniform()
    state = state * 6364136223846793005ULL + 1442695040888963407ULL
    return tonumber(state / 2048ULL) / EXACT
  end
  for _ = 1, 4 do uniform() end
  local kind, out = array.kind(dtype), array.new(shape, dtype)
  for i = 1, array.numel(shape) do
    local u = uniform()
    if kind == "bool" then out[i] = u < 0.5 and 0 or 1
    elseif kind == "int" then out[i] = wrap[dtype](lo + math.floor(u * (hi - lo + 1)))
    else
      out[i] = lo + u * (hi - lo)
      if dtype == "f32" then out[i] = array.round_f32(out[i]) end
    end
  end
  return out
end

local function position(shape, index)
  local strides, rest, at = array.strides(shape), index - 1, {}
  for d = 1, #shape do
    at[d] = math.floor(rest / strides[d]) + 1
    rest = rest % strides[d]
  end
  return "[" .. table.concat(at, ",") .. "]"
end

local function distance(p, q)
  if p == q or (p ~= p and q ~= q) then return 0 end
  local d = math.abs(tonumber(p) - tonumber(q))
  -- Two i64 that differ only below a double's precision are still different.
  if d == 0 then d = math.abs(tonumber(ffi.cast(int64, p) - ffi.cast(int64, q))) end
  return d
end

-- Whether |a - b| <= atol + rtol |b| at every element, NaN matching only NaN and an infinity only
-- itself. Returns ok, message (nil when ok), largest absolute and largest relative difference.
function array.allclose(a, b, rtol, atol)
  if a.dtype ~= b.dtype then return false, ("dtypes %s and %s"):format(a.dtype, b.dtype) end
  if not array.same_shape(a.shape, b.shape) then
    return false, ("shapes %s and %s"):format(array.shape_text(a.shape), array.shape_text(b.shape))
  end
  local n = array.numel(a.shape)
  if #a ~= n or #b ~= n then return false, ("%d and %d of %d elements"):format(#a, #b, n) end
  local first, failed, max_abs, max_rel = nil, 0, 0, 0
  for i = 1, n do
    local d, size = distance(a[i], b[i]), math.abs(tonumber(b[i]))
    local fits = d == 0 or (d < math.huge and size < math.huge and d <= atol + rtol * size)
    if not fits then
      failed = failed + 1
      first = first or i
    end
    -- A NaN difference would hide behind every comparison, so it counts as infinite.
    if d ~= d then d = math.huge end
    if d > 0 then
      max_abs = math.max(max_abs, d)
      max_rel = math.max(max_rel, d < math.huge and size > 0 and d / size or math.huge)
    end
  end
  if not first then return true, nil, max_abs, max_rel end
  return false, ("%d of %d elements differ, first at %s: %s against %s; max_abs %g, max_rel %g")
    :format(failed, n, position(a.shape, first), tostring(a[first]), tostring(b[first]),
      max_abs, max_rel), max_abs, max_rel
end

return array
