-- SPDX-License-Identifier: MIT
-- The reference under the op table's signatures: ops whose reference takes options as a table, creation and in-place ops, and fused internal
-- ops in terms of the reference's public ones. Written from the definitions, like the reference, and shares nothing with the engine.

local reference = require "spec.support.reference"
local array = require "spec.support.reference.array"
local random = require "spec.support.reference.random"

local ops = reference.ops

local adapters = {}

--- Rows without a reference, and why.
local without = {
  empty = "its values are any",
  randn = "random_spec compares it with Philox's words",
  randint = "random_spec compares it with Philox's words",
  dropout_backward = "random_spec compares it with dropout's mask",
}

local function list_of(shape) return type(shape) == "number" and { shape } or shape end

-- Creation and in place ---------------------------------------------------------------------

function adapters.full(shape, value, dtype) return ops.full(list_of(shape), value, { dtype = dtype }) end
function adapters.zeros(shape, dtype) return adapters.full(shape, 0, dtype) end
function adapters.ones(shape, dtype) return adapters.full(shape, 1, dtype) end
function adapters.eye(n, m, dtype) return ops.eye(n, m, { dtype = dtype }) end
function adapters.arange(a, b, step, dtype) return ops.arange(a, b, step, { dtype = dtype }) end
function adapters.linspace(a, b, steps, dtype) return ops.linspace(a, b, steps, { dtype = dtype }) end

function adapters.rand(shape, dtype)
  local out = array.new(list_of(shape), dtype or "f32")
  for i = 1, array.numel(out.shape) do
    if out.dtype == "f32" then
      out[i] = random.uniform(random.word(7, 3, i - 1))
    else
      out[i] = (math.floor(random.word(7, 3, 2 * i - 2) / 2048) + random.word(7, 3, 2 * i - 1) * 2 ^ 21) / 2 ^ 53
    end
  end
  return out
end

function adapters.dropout(x, p, training)
  if training == false then return array.new(x.shape, x.dtype, x) end
  return ops.dropout(x, p or 0.5, { seed = 7, draw = 3 })
end

function adapters.copy(dst, src) return array.cast(array.expand("copy", src, dst.shape), dst.dtype) end
function adapters.fill(t, value) return ops.full(t.shape, value, { dtype = t.dtype }) end
function adapters.zero(t) return adapters.fill(t, 0) end

function adapters.sgd(p, g, lr) return ops.sgd(p, g, { lr = lr or 0.001 }) end

function adapters.adamw(p, g, m, v, step, lr, beta1, beta2, eps, weight_decay)
  local new_p, new_m, new_v = ops.adamw(p, g, m, v, step,
    { lr = lr or 0.001, beta1 = beta1, beta2 = beta2, eps = eps, weight_decay = weight_decay })
  new_m.dtype, new_v.dtype = m.dtype, v.dtype
  return new_p, new_m, new_v
end

-- Views and names ---------------------------------------------------------------------------

adapters.cat = ops.concat
adapters.broadcast_to = ops.expand

for _, name in ipairs { "reshape", "view", "permute", "expand", "broadcast_to", "repeat", "tile" } do
  local fn = adapters[name] or ops[name]
  adapters[name] = function(x, numbers) return fn(x, list_of(numbers)) end
end

function adapters.flatten(x, first, last)
  if #x.shape == 0 then return array.reshape(x, { 1 }) end
  first, last = array.dim("flatten", first or 1, #x.shape), array.dim("flatten", last or -1, #x.shape)
  local shape = {}
  for d = 1, #x.shape do
    if d > first and d <= last then
      shape[#shape] = shape[#shape] * x.shape[d]
    else
      shape[#shape + 1] = x.shape[d]
    end
  end
  return array.reshape(x, shape)
end

function adapters.t(x) return #x.shape < 2 and ops.contiguous(x) or ops.transpose(x, 1, 2) end

function adapters.slice(x, first, last, step)
  local shape, strides, own, offset = {}, {}, array.strides(x.shape), 0
  for d = 1, #x.shape do
    local n, f, l, s = x.shape[d], first[d] or 1, last[d] or -1, step[d] or 1
    if f < 0 then f = f + n + 1 end
    if l < 0 then l = l + n + 1 end
    if s > 0 then
      shape[#shape + 1], strides[#strides + 1] = math.floor((l - f) / s) + 1, own[d] * s
    end
    offset = offset + (f - 1) * own[d]
  end
  return array.strided(shape, strides, offset, x)
end

--- zeros of a shape, with g where slice takes its part: where does a numbered array's slice come from?
function adapters.slice_backward(g, first, last, step, shape)
  local numbers, out = array.new(shape, "f64"), array.full(shape, g.dtype, 0)
  for i = 1, array.numel(shape) do numbers[i] = i end
  local taken = adapters.slice(numbers, first, last, step)
  for i = 1, array.numel(taken.shape) do out[taken[i]] = g[i] end
  return out
end

-- Fused ops ---------------------------------------------------------------------------------

function adapters.gelu_erf(x) return ops.gelu(x) end
function adapters.gelu_tanh(x) return ops.gelu(x, "tanh") end

function adapters.cross_entropy(x, target, weight, ignore_index, reduction, label_smoothing)
  return ops.cross_entropy(x, target,
    { weight = weight, ignore_index = ignore_index, reduction = reduction, label_smoothing = label_smoothing })
end

local function double(x) return array.new(x.shape, "f64", x) end

--- 1 / sqrt(x + eps).
local function inverse_root(x, eps) return ops.rsqrt(ops.add(x, eps or 1e-5)) end

local function trailing(shape, count)
  local dims = {}
  for i = 1, count do dims[i] = #shape - count + i end
  return dims
end

function adapters.layer_norm_forward(x, normalized_shape, weight, bias, eps)
  local dims = trailing(x.shape, #list_of(normalized_shape))
  return ops.layer_norm(x, normalized_shape, weight, bias, eps), ops.mean(double(x), dims), inverse_root(ops.var(double(x), dims, 0), eps)
end

function adapters.rms_norm_forward(x, normalized_shape, weight, eps)
  local dims = trailing(x.shape, #list_of(normalized_shape))
  return ops.rms_norm(x, normalized_shape, weight, eps), inverse_root(ops.mean(ops.square(double(x)), dims), eps)
end

local function in_groups(x, groups)
  local n = x.shape[1] * groups
  return array.reshape(double(x), { x.shape[1], groups, n > 0 and array.numel(x.shape) / n or 1 })
end

function adapters.group_norm_forward(x, groups, weight, bias, eps)
  local g = in_groups(x, groups)
  return ops.group_norm(x, groups, weight, bias, eps), ops.mean(g, 3), inverse_root(ops.var(g, 3, 0), eps)
end

function adapters.softmax_backward(g, y, dim)
  dim = dim or -1
  return ops.mul(y, ops.sub(g, ops.sum(ops.mul(g, y), dim, true)))
end

function adapters.log_softmax_backward(g, y, dim)
  dim = dim or -1
  return ops.sub(g, ops.mul(ops.exp(y), ops.sum(g, dim, true)))
end

function adapters.cumsum_reverse(x, dim) return ops.flip(ops.cumsum(ops.flip(x, dim), dim), dim) end

function adapters.gather_backward(g, dim, index, shape)
  return ops.scatter_add(array.full(list_of(shape), g.dtype, 0), dim, index, g)
end

function adapters.index_select_backward(g, dim, index, size)
  local shape = array.copy_list(g.shape)
  local d = array.dim("index_select_backward", dim, #shape)
  -- an index of g's shape that repeats the one element for each slice
  local wide = array.new(shape, index.dtype)
  local behind = 1
  for i = d + 1, #shape do behind = behind * shape[i] end
  for i = 1, array.numel(shape) do wide[i] = index[math.floor((i - 1) / behind) % (shape[d] or 1) + 1] end
  if #shape > 0 then shape[d] = size end
  return ops.scatter_add(array.full(shape, g.dtype, 0), dim, wide, g)
end

function adapters.embedding_backward(g, index, rows)
  local width, n = g.shape[#g.shape], array.numel(index.shape)
  return adapters.index_select_backward(array.reshape(g, { n, width }), 1, array.reshape(index, { n }), rows)
end

-- The derivatives of the norms and of the loss are written out: with h = g * weight and xhat = (x - mean) * rstd,
-- dx = rstd * (h - mean(h) - xhat * mean(h * xhat)), dweight = sum(g * xhat), dbias = sum(g) over all lanes.

local function norm_backward(g, x, mean, rstd, weight, lanes, n, centred)
  local dx, xhat = array.new(x.shape, x.dtype), array.new(x.shape, "f64")
  for l = 0, lanes - 1 do
    local sum, dot = 0, 0
    for j = 1, n do
      local i = l * n + j
      xhat[i] = (x[i] - (mean and mean[l + 1] or 0)) * rstd[l + 1]
      local h = g[i] * weight(i)
      sum, dot = sum + h, dot + h * xhat[i]
    end
    for j = 1, n do
      local i = l * n + j
      dx[i] = rstd[l + 1] * (g[i] * weight(i) - (centred and sum / n or 0) - xhat[i] * dot / n)
    end
  end
  return dx, xhat
end

local function summed(list, column, shape, dtype)
  local out = array.full(shape, dtype, 0)
  for i = 1, #list do
    local c = column(i)
    out[c] = out[c] + list[i]
  end
  return out
end

local function product(a, b)
  local out = {}
  for i = 1, #a do out[i] = a[i] * b[i] end
  return out
end

local function last_dims_backward(g, x, mean, rstd, weight, normalized_shape, centred)
  local shape = list_of(normalized_shape)
  local n = array.numel(shape)
  local function column(i) return (i - 1) % n + 1 end
  local function w(i) return weight and weight[column(i)] or 1 end
  local dx, xhat = norm_backward(g, x, mean, rstd, w, array.numel(x.shape) / n, n, centred)
  return dx, summed(product(g, xhat), column, shape, x.dtype), summed(g, column, shape, x.dtype)
end

function adapters.layer_norm_backward(g, x, mean, rstd, weight, normalized_shape, with_affine)
  local dx, dweight, dbias = last_dims_backward(g, x, mean, rstd, weight, normalized_shape, true)
  if with_affine == false then return dx end
  return dx, dweight, dbias
end

function adapters.rms_norm_backward(g, x, rstd, weight, normalized_shape, with_affine)
  local dx, dweight = last_dims_backward(g, x, nil, rstd, weight, normalized_shape, false)
  if with_affine == false then return dx end
  return dx, dweight
end

function adapters.group_norm_backward(g, x, mean, rstd, weight, groups, with_affine)
  local channels, behind = x.shape[2], 1
  for d = 3, #x.shape do behind = behind * x.shape[d] end
  local function column(i) return math.floor((i - 1) / behind) % channels + 1 end
  local function w(i) return weight and weight[column(i)] or 1 end
  local dx, xhat = norm_backward(g, x, mean, rstd, w, x.shape[1] * groups, channels / groups * behind, true)
  if with_affine == false then return dx end
  return dx, summed(product(g, xhat), column, { channels }, x.dtype), summed(g, column, { channels }, x.dtype)
end

-- Each position's loss is -sum over c of q[c] log p[c], q being the weighted and smoothed target; so its derivative by x[c] is
-- p[c] * sum(q) - q[c], times the position's g over what the mean divides by.
function adapters.cross_entropy_backward(g, x, target, weight, ignore_index, reduction, label_smoothing)
  local d = #x.shape == 1 and 1 or 2
  local classes, smoothing = x.shape[d], label_smoothing or 0
  local p, out = ops.softmax(x, d), array.new(x.shape, x.dtype)
  local probabilities = array.kind(target.dtype) == "float"
  local behind = 1
  for i = d + 1, #x.shape do behind = behind * x.shape[i] end
  local positions, divisor = array.numel(x.shape) / classes, 0
  local function w(c) return weight and weight[c] or 1 end
  local q = {}
  for k = 0, positions - 1 do
    local start, y = math.floor(k / behind) * classes * behind + k % behind, target[k + 1]
    q[k] = {}
    for c = 1, classes do
      local hit = probabilities and target[start + (c - 1) * behind + 1] or not probabilities and y == c and 1 or 0
      local ignored = not probabilities and y == ignore_index
      local part = hit * (1 - smoothing) + smoothing / classes
      q[k][c] = (ignored or (not probabilities and part == 0)) and 0 or w(c) * part
    end
    divisor = divisor + (probabilities and 1 or y == ignore_index and 0 or w(y))
  end
  if (reduction or "mean") ~= "mean" then divisor = 1 end
  for k = 0, positions - 1 do
    local start, total = math.floor(k / behind) * classes * behind + k % behind, 0
    for c = 1, classes do total = total + q[k][c] end
    local ignored = not probabilities and target[k + 1] == ignore_index
    local up = (#g.shape > 0 and g[k + 1] or g[1]) / divisor
    for c = 1, classes do
      local i = start + (c - 1) * behind + 1
      out[i] = ignored and 0 or up * (p[i] * total - q[k][c])
    end
  end
  return out
end

return { adapters = adapters, without = without }
