-- SPDX-License-Identifier: MIT
-- Reference of the matrix products: sums of products, straight from the definition.
-- Integer products and sums run in int64 and wrap when stored.

local array = require "spec.support.reference.array"
local elementwise = require "spec.support.reference.elementwise"

local ops = {}

local function zero_of(dtype)
  return array.load(dtype)(0)
end

-- Rows of a (m,k) at offset p times columns of b (k,n) at offset q, appended to out.
local function product(out, a, p, b, q, m, k, n)
  local load, store, zero = array.load(out.dtype), array.store(out.dtype), zero_of(out.dtype)
  for i = 0, m - 1 do
    for j = 1, n do
      local sum = zero
      for l = 0, k - 1 do sum = sum + load(a[p + i * k + l + 1]) * load(b[q + l * n + j]) end
      out[#out + 1] = store(sum)
    end
  end
end

local function head(shape, count)
  local list = {}
  for d = 1, count do list[d] = shape[d] end
  return list
end

local function append(list, ...)
  for i = 1, select("#", ...) do list[#list + 1] = (select(i, ...)) end
  return list
end

-- PyTorch's rules: a 1-dim operand becomes a row (left) or a column (right) whose dim is dropped
-- from the result; the dims before the last two broadcast.
function ops.matmul(a, b)
  if #a.shape == 0 or #b.shape == 0 then array.fail("matmul", "0-dim operands have no product") end
  if a.dtype ~= b.dtype then array.fail("matmul", "dtypes %s and %s", a.dtype, b.dtype) end
  local vector_a, vector_b = #a.shape == 1, #b.shape == 1
  if vector_a then a = array.reshape(a, { 1, a.shape[1] }) end
  if vector_b then b = array.reshape(b, { b.shape[1], 1 }) end
  local m, k = a.shape[#a.shape - 1], a.shape[#a.shape]
  local n = b.shape[#b.shape]
  if b.shape[#b.shape - 1] ~= k then
    array.fail("matmul", "inner sizes %d and %d differ", k, b.shape[#b.shape - 1])
  end
  local batch, message = array.broadcast_shape(head(a.shape, #a.shape - 2),
    head(b.shape, #b.shape - 2))
  if not batch then array.fail("matmul", "%s", message) end
  a = array.expand("matmul", a, append(array.copy_list(batch), m, k))
  b = array.expand("matmul", b, append(array.copy_list(batch), k, n))

  local shape = array.copy_list(batch)
  if not vector_a then append(shape, m) end
  if not vector_b then append(shape, n) end
  local out = array.new(shape, a.dtype)
  for i = 0, array.numel(batch) - 1 do product(out, a, i * m * k, b, i * k * n, m, k, n) end
  return out
end

-- beta c + alpha (a b); with beta 0, c is not read, so its NaNs do not count.
function ops.addmm(c, a, b, beta, alpha)
  if #a.shape ~= 2 or #b.shape ~= 2 then array.fail("addmm", "expected two matrices") end
  beta, alpha = beta or 1, alpha or 1
  local out = ops.matmul(a, b)
  c = array.expand("addmm", c, out.shape)
  local load, store = array.load(out.dtype), array.store(out.dtype)
  for i = 1, #out do
    local v = load(out[i]) * alpha
    if beta ~= 0 then v = v + load(c[i]) * beta end
    out[i] = store(v)
  end
  return out
end

-- x w^T + b, with w (out, in) or (in).
function ops.linear(x, w, b)
  local turned = w
  if #w.shape == 2 then
    turned = array.strided({ w.shape[2], w.shape[1] }, { 1, w.shape[2] }, 0, w)
  end
  local out = ops.matmul(x, turned)
  return b and elementwise.add(out, b) or out
end

return ops
