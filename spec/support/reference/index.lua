-- SPDX-License-Identifier: MIT
-- Reference of the ops that read or write where an array of indices says. Indices are 1..n.
-- An index outside its range is an error here, as it is (later, on the stream) in the engine.

local array = require "spec.support.reference.array"

local ops = {}

local function need_index(op, index)
  if index.dtype ~= "i64" and index.dtype ~= "i32" then
    array.fail(op, "indices are i32 or i64, got %s", index.dtype)
  end
end

local function checked(op, at, size)
  if at < 1 or at > size then
    if at == 0 then array.fail(op, "index 0: indices start at 1") end
    array.fail(op, "index %s is outside 1..%d", tostring(at), size)
  end
  return at
end

-- For each position of index, row-major: the offset (1-based) in an array of shape whose
-- coordinate at dim d is replaced by the index there.
local function pointed(op, shape, d, index)
  need_index(op, index)
  if #index.shape ~= #shape then
    array.fail(op, "index has %d dims, not %d", #index.shape, #shape)
  end
  for i = 1, #shape do
    if i ~= d and index.shape[i] > shape[i] then
      array.fail(op, "index is longer than %d at dim %d", shape[i], i)
    end
  end
  local strides = array.strides(shape)
  local step, size = strides[d] or 1, shape[d] or 1
  if strides[d] then strides[d] = 0 end
  local offsets = array.offsets(index.shape, strides)
  for i = 1, #offsets do offsets[i] = offsets[i] + (checked(op, index[i], size) - 1) * step + 1 end
  return offsets
end

function ops.gather(x, dim, index)
  local at = pointed("gather", x.shape, array.dim("gather", dim, #x.shape), index)
  local out = array.new(index.shape, x.dtype)
  for i = 1, #at do out[i] = x[at[i]] end
  return out
end

function ops.scatter_add(x, dim, index, src)
  local op = "scatter_add"
  if x.dtype ~= src.dtype then array.fail(op, "dtypes %s and %s", x.dtype, src.dtype) end
  if #src.shape ~= #index.shape then array.fail(op, "src has %d dims", #src.shape) end
  for d = 1, #index.shape do
    if index.shape[d] > src.shape[d] then
      array.fail(op, "index is longer than src at dim %d", d)
    end
  end
  local at = pointed(op, x.shape, array.dim(op, dim, #x.shape), index)
  local from = array.offsets(index.shape, array.strides(src.shape))
  local out, load, store = array.new(x.shape, x.dtype, x), array.load(x.dtype), array.store(x.dtype)
  for i = 1, #at do out[at[i]] = store(load(out[at[i]]) + load(src[from[i] + 1])) end
  return out
end

-- Slices of x along dim, one for each element of a 0- or 1-dim index.
function ops.index_select(x, dim, index)
  local op = "index_select"
  need_index(op, index)
  if #index.shape > 1 then array.fail(op, "index has %d dims, not 1", #index.shape) end
  local d = array.dim(op, dim, #x.shape)
  local shape, strides = array.copy_list(x.shape), array.strides(x.shape)
  local n = array.numel(index.shape)
  local size, step = shape[d] or 1, strides[d] or 1
  if #shape > 0 then shape[d], strides[d] = n, 0 end
  local out, offsets = array.new(shape, x.dtype), array.offsets(shape, strides)
  local behind = #shape > 0 and array.strides(shape)[d] or 1
  for i = 1, #offsets do
    local k = math.floor((i - 1) / behind) % n + 1
    out[i] = x[offsets[i] + (checked(op, index[k], size) - 1) * step + 1]
  end
  return out
end

-- A row of weight for each element of index.
function ops.embedding(index, weight)
  need_index("embedding", index)
  local rows, width = weight.shape[1], weight.shape[2]
  local shape = array.copy_list(index.shape)
  shape[#shape + 1] = width
  local out = array.new(shape, weight.dtype)
  for i = 1, array.numel(index.shape) do
    local start = (checked("embedding", index[i], rows) - 1) * width
    for j = 1, width do out[#out + 1] = weight[start + j] end
  end
  return out
end

-- 1 at the index, 0 elsewhere, along a new last dim of i64; classes defaults to the largest index.
function ops.one_hot(index, classes)
  need_index("one_hot", index)
  local n = array.numel(index.shape)
  if not classes then
    if n == 0 then array.fail("one_hot", "no classes from no indices") end
    classes = 0
    for i = 1, n do classes = math.max(classes, index[i]) end
  end
  local shape = array.copy_list(index.shape)
  shape[#shape + 1] = classes
  local out = array.full(shape, "i64", 0)
  for i = 1, n do out[(i - 1) * classes + checked("one_hot", index[i], classes)] = 1 end
  return out
end

return ops
