-- SPDX-License-Identifier: MIT
-- Reference of the ops that move elements without computing: views, joins, repeats, triangles.
-- All but the joins are a formula that says, for each position of the result, which element of x
-- it shows; views are not shared memory here, every result is a new array.

local array = require "spec.support.reference.array"

local ops = {}

local function strided_like(x, shape, strides, offset)
  return array.strided(shape, strides, offset or 0, x)
end

-- Reshaping ---------------------------------------------------------------------------------

local function reshape_op(name)
  ops[name] = function(x, shape)
    local known, guess, out = 1, nil, array.copy_list(shape)
    for d = 1, #out do
      if out[d] == -1 then
        if guess then array.fail(name, "only one size can be -1") end
        guess = d
      else
        known = known * out[d]
      end
    end
    local n = array.numel(x.shape)
    if guess then
      if known == 0 or n % known ~= 0 then array.fail(name, "no size fits %d elements", n) end
      out[guess] = n / known
    end
    if array.numel(out) ~= n then
      array.fail(name, "shape %s does not hold %d elements", array.shape_text(out), n)
    end
    return array.reshape(x, out)
  end
end

reshape_op("reshape")
reshape_op("view")

function ops.contiguous(x)
  return array.reshape(x, x.shape)
end

function ops.squeeze(x, dims)
  local set, shape = array.dim_set("squeeze", dims, #x.shape), {}
  for d = 1, #x.shape do
    if not (set[d] and x.shape[d] == 1) then shape[#shape + 1] = x.shape[d] end
  end
  return array.reshape(x, shape)
end

function ops.unsqueeze(x, dim)
  local shape = array.copy_list(x.shape)
  table.insert(shape, array.dim("unsqueeze", dim, #shape + 1), 1)
  return array.reshape(x, shape)
end

-- -1 keeps a size.
function ops.expand(x, shape)
  local out, lead = array.copy_list(shape), #shape - #x.shape
  for d = 1, #out do
    if out[d] == -1 then
      out[d] = x.shape[d - lead] or array.fail("expand", "a new dim %d has no size to keep", d)
    end
  end
  return array.expand("expand", x, out)
end

-- Order and part of dims --------------------------------------------------------------------

function ops.permute(x, dims)
  local strides, shape, steps, seen = array.strides(x.shape), {}, {}, {}
  if #dims ~= #x.shape then array.fail("permute", "%d dims for %d", #dims, #x.shape) end
  for i = 1, #dims do
    local d = array.dim("permute", dims[i], #x.shape)
    if seen[d] then array.fail("permute", "dim %d is given twice", d) end
    seen[d], shape[i], steps[i] = true, x.shape[d], strides[d]
  end
  return strided_like(x, shape, steps)
end

function ops.transpose(x, first, second)
  local a = array.dim("transpose", first, #x.shape)
  local b = array.dim("transpose", second, #x.shape)
  local order = {}
  for d = 1, #x.shape do order[d] = d end
  order[a], order[b] = order[b], order[a]
  return ops.permute(x, order)
end

-- An index or a start counts from 1, or from the end when negative.
local function index_in(op, index, size)
  if index < 0 then index = size + 1 + index end
  if index < 1 or index > size or index % 1 ~= 0 then
    array.fail(op, "index %s is outside 1..%d", tostring(index), size)
  end
  return index
end

function ops.narrow(x, dim, start, length)
  local d = array.dim("narrow", dim, #x.shape)
  local shape, strides = array.copy_list(x.shape), array.strides(x.shape)
  -- An empty piece may start just behind the last element.
  if not (length == 0 and start == shape[d] + 1) then
    start = index_in("narrow", start, shape[d])
  end
  if length < 0 or start - 1 + length > shape[d] then
    array.fail("narrow", "%d from %d is outside 1..%d", length, start, shape[d])
  end
  shape[d] = length
  return strided_like(x, shape, strides, (start - 1) * strides[d])
end

function ops.select(x, dim, index)
  if #x.shape == 0 then array.fail("select", "a 0-dim array has no dim") end
  local d = array.dim("select", dim, #x.shape)
  local shape, strides = array.copy_list(x.shape), array.strides(x.shape)
  local offset = (index_in("select", index, shape[d]) - 1) * strides[d]
  table.remove(shape, d)
  table.remove(strides, d)
  return strided_like(x, shape, strides, offset)
end

function ops.flip(x, dims)
  local set, offset = array.dim_set("flip", dims, #x.shape), 0
  local strides = array.strides(x.shape)
  for d in pairs(set) do
    if x.shape[d] then
      offset = offset + (x.shape[d] - 1) * strides[d]
      strides[d] = -strides[d]
    end
  end
  return strided_like(x, x.shape, strides, offset)
end

-- Joins and parts ---------------------------------------------------------------------------

-- Pieces before and behind the dim: an array is (before, size, behind) in memory order.
local function around(shape, d)
  local before, behind = 1, 1
  for i = 1, d - 1 do before = before * shape[i] end
  for i = d + 1, #shape do behind = behind * shape[i] end
  return before, behind
end

function ops.concat(arrays, dim)
  if #arrays == 0 then array.fail("concat", "expected at least one array") end
  local first = arrays[1].shape
  if #first == 0 then array.fail("concat", "0-dim arrays cannot be joined") end
  local d, dtype, shape = array.dim("concat", dim or 1, #first), nil, array.copy_list(first)
  shape[d] = 0
  for i = 1, #arrays do
    local sizes = array.copy_list(arrays[i].shape)
    shape[d] = shape[d] + (sizes[d] or 0)
    sizes[d] = first[d]
    if not array.same_shape(sizes, first) then
      array.fail("concat", "shape %s does not join %s", array.shape_text(arrays[i].shape),
        array.shape_text(first))
    end
    dtype = dtype and array.result_type(array.new({ 1 }, dtype), array.new({ 1 }, arrays[i].dtype))
      or arrays[i].dtype
  end
  local out, before, behind = array.new(shape, dtype), around(shape, d)
  local parts = {}
  for i = 1, #arrays do parts[i] = array.cast(arrays[i], dtype) end
  for row = 0, before - 1 do
    for i = 1, #parts do
      local run = parts[i].shape[d] * behind
      for j = 1, run do out[#out + 1] = parts[i][row * run + j] end
    end
  end
  return out
end

function ops.stack(arrays, dim)
  local raised = {}
  for i = 1, #arrays do raised[i] = ops.unsqueeze(arrays[i], dim or 1) end
  return ops.concat(raised, dim or 1)
end

-- Pieces of one size (the last may be shorter), or of the listed sizes.
function ops.split(x, size, dim)
  dim = dim or 1
  local length = x.shape[array.dim("split", dim, #x.shape)]
  local sizes, total = size, 0
  if type(size) == "number" then
    if size < 1 then array.fail("split", "a piece has at least one element") end
    sizes = {}
    for start = 1, math.max(length, 1), size do
      sizes[#sizes + 1] = math.min(size, length - start + 1)
    end
  end
  local parts = {}
  for i = 1, #sizes do
    parts[i] = ops.narrow(x, dim, total + 1, sizes[i])
    total = total + sizes[i]
  end
  if total ~= length then array.fail("split", "sizes add up to %d, not %d", total, length) end
  return unpack(parts)
end

-- Equal pieces of ceil(size / count): there may be fewer than count of them. Of an empty dim
-- there are count empty pieces.
function ops.chunk(x, count, dim)
  local length = x.shape[array.dim("chunk", dim or 1, #x.shape)]
  if count < 1 then array.fail("chunk", "expected at least one piece") end
  if length > 0 then return ops.split(x, math.ceil(length / count), dim) end
  local sizes = {}
  for i = 1, count do sizes[i] = 0 end
  return ops.split(x, sizes, dim)
end

-- Repeats and triangles ---------------------------------------------------------------------

-- x under missing leading dims of size 1; then each dim repeated as a whole.
local function tiled(x, counts)
  local shape, lead = array.copy_list(x.shape), #counts - #x.shape
  for _ = 1, lead do table.insert(shape, 1, 1) end
  local double, strides, sizes = {}, {}, {}
  local own = array.strides(shape)
  for d = 1, #shape do
    double[2 * d - 1], strides[2 * d - 1] = counts[d], 0
    double[2 * d], strides[2 * d] = shape[d], own[d]
    sizes[d] = counts[d] * shape[d]
  end
  return array.reshape(strided_like(x, double, strides), sizes)
end

ops["repeat"] = function(x, counts)
  if #counts < #x.shape then array.fail("repeat", "expected %d counts or more", #x.shape) end
  return tiled(x, counts)
end

-- Missing leading counts are 1.
function ops.tile(x, counts)
  counts = array.copy_list(counts)
  while #counts < #x.shape do table.insert(counts, 1, 1) end
  return tiled(x, counts)
end

-- Each element (or slice of a dim) n times in a row; without a dim, of the flattened array.
function ops.repeat_interleave(x, n, dim)
  if dim == nil then x, dim = array.reshape(x, { array.numel(x.shape) }), 1 end
  local d = array.dim("repeat_interleave", dim, #x.shape)
  local shape, strides = array.copy_list(x.shape), array.strides(x.shape)
  local sizes = array.copy_list(shape)
  sizes[d] = shape[d] * n
  table.insert(shape, d + 1, n)
  table.insert(strides, d + 1, 0)
  return array.reshape(strided_like(x, shape, strides), sizes)
end

local function triangle_op(name, keeps)
  ops[name] = function(x, k)
    if #x.shape < 2 then array.fail(name, "expected two dims or more") end
    local out, rows, columns = ops.contiguous(x), x.shape[#x.shape - 1], x.shape[#x.shape]
    for i = 1, array.numel(x.shape) do
      local column = (i - 1) % columns
      local row = math.floor((i - 1) / columns) % rows
      if not keeps(column - row, k or 0) then out[i] = 0 end
    end
    return out
  end
end

triangle_op("tril", function(diagonal, k) return diagonal <= k end)
triangle_op("triu", function(diagonal, k) return diagonal >= k end)

-- Creation ----------------------------------------------------------------------------------

local function dtype_of(opts)
  return opts and opts.dtype or "f32"
end

function ops.full(shape, value, opts)
  local dtype = dtype_of(opts)
  return array.full(shape, dtype, array.convert(value, value % 1 == 0 and "i64" or "f64", dtype))
end

-- a + i step for each i from 0 while that is before b.
function ops.arange(a, b, step, opts)
  if b == nil then a, b = 0, a end
  step = step or 1
  if step == 0 or (b - a) / step < 0 then array.fail("arange", "step %g never reaches b", step) end
  local n, dtype = math.ceil((b - a) / step), dtype_of(opts)
  local out = array.new({ n }, dtype)
  for i = 1, n do out[i] = array.convert(a + (i - 1) * step, "f64", dtype) end
  return out
end

function ops.linspace(a, b, n, opts)
  local dtype = dtype_of(opts)
  local out = array.new({ n }, dtype)
  for i = 1, n do
    -- From the nearer end, so that both ends are exact.
    local v = i == 1 and a or a + (b - a) / (n - 1) * (i - 1)
    if i - 1 >= n / 2 then v = b - (b - a) / (n - 1) * (n - i) end
    out[i] = array.convert(v, "f64", dtype)
  end
  return out
end

function ops.eye(n, m, opts)
  m = m or n
  local out = array.full({ n, m }, dtype_of(opts), 0)
  for i = 1, math.min(n, m) do out[(i - 1) * m + i] = 1 end
  return out
end

return ops
