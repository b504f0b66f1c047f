-- SPDX-License-Identifier: MIT
-- Reference of the network ops: cross entropy, normalizations, Hadamard transform, and the
-- optimizers' steps. Formulas are those of PyTorch's documentation, computed in doubles.

local array = require "spec.support.reference.array"
local elementwise = require "spec.support.reference.elementwise"
local reduce = require "spec.support.reference.reduce"

local ops = {}

-- Cross entropy -----------------------------------------------------------------------------

local reductions = { mean = true, sum = true, none = true }

-- x is (C), (N,C) or (N,C,d1,..). Calls fn(i, log_p) for each of the positions beside the classes,
-- in the order of a class target's elements; log_p(c) is the log probability of class c there.
local function each_position(x, fn)
  local class_dim = #x.shape == 1 and 1 or 2
  local log_p = reduce.ops.log_softmax(x, class_dim)
  local classes = x.shape[class_dim]
  local batch = class_dim == 2 and x.shape[1] or 1
  local inner = classes > 0 and array.numel(x.shape) / math.max(batch * classes, 1) or 0
  local shape = {}
  for d = 1, #x.shape do
    if d ~= class_dim then shape[#shape + 1] = x.shape[d] end
  end
  local i = 0
  for b = 0, batch - 1 do
    for s = 1, inner do
      i = i + 1
      fn(i, function(c) return log_p[(b * classes + c - 1) * inner + s] end,
        function(c) return (b * classes + c - 1) * inner + s end)
    end
  end
  return shape, classes, batch
end

-- Class targets: -w[y] log p[y] where y is not ignored; mean divides by the weights met.
-- Label smoothing e mixes in, with part e / C each, the loss of every class.
local function class_losses(x, target, opts, weight, smoothing)
  local losses, met, classes = {}, 0, x.shape[#x.shape == 1 and 1 or 2]
  local shape = each_position(x, function(i, log_p)
    local y = target[i]
    losses[i] = 0
    if y == opts.ignore_index then return end
    if y < 1 or y > classes then
      array.fail("cross_entropy", "target %s is outside 1..%d", tostring(y), classes)
    end
    local loss = -weight(y) * log_p(y)
    if smoothing > 0 then
      local all = 0
      for c = 1, classes do all = all - weight(c) * log_p(c) end
      loss = (1 - smoothing) * loss + smoothing / classes * all
    end
    losses[i] = loss
    met = met + weight(y)
  end)
  return shape, losses, met
end

-- Probabilities t: -sum over c of w[c] t[c] log p[c]; mean divides by the number of positions.
local function probability_losses(x, target, weight, smoothing)
  local losses, classes = {}, x.shape[#x.shape == 1 and 1 or 2]
  local shape = each_position(x, function(i, log_p, at)
    local loss = 0
    for c = 1, classes do
      local t = target[at(c)]
      if smoothing > 0 then t = t * (1 - smoothing) + smoothing / classes end
      loss = loss - weight(c) * t * log_p(c)
    end
    losses[i] = loss
  end)
  return shape, losses, array.numel(shape)
end

function ops.cross_entropy(x, target, opts)
  opts = opts or {}
  reduce.need_float("cross_entropy", x)
  if #x.shape == 0 then array.fail("cross_entropy", "a 0-dim array has no classes") end
  local reduction, smoothing = opts.reduction or "mean", opts.label_smoothing or 0
  if not reductions[reduction] then array.fail("cross_entropy", "no reduction %s", reduction) end
  local function weight(c) return opts.weight and opts.weight[c] or 1 end

  local shape, losses, total
  if array.kind(target.dtype) == "float" then
    if not array.same_shape(target.shape, x.shape) then
      array.fail("cross_entropy", "probabilities have the shape of x")
    end
    shape, losses, total = probability_losses(x, target, weight, smoothing)
  else
    shape, losses, total = class_losses(x, target, opts, weight, smoothing)
    if not array.same_shape(target.shape, shape) then
      array.fail("cross_entropy", "target %s for x %s", array.shape_text(target.shape),
        array.shape_text(x.shape))
    end
  end
  if reduction == "none" then return array.new(shape, x.dtype, losses) end
  local sum = 0
  for i = 1, #losses do sum = sum + losses[i] end
  return array.from(reduction == "sum" and sum or sum / total, x.dtype)
end

-- Normalizations ----------------------------------------------------------------------------

local function standardize(values, n, put, eps)
  local mean, squares = reduce.mean_of(values, n), 0
  for j = 1, n do squares = squares + (values[j] - mean) * (values[j] - mean) end
  local scale = 1 / math.sqrt(squares / n + eps)
  for j = 1, n do put(j, (values[j] - mean) * scale) end
end

local function last_dims(op, x, normalized_shape)
  if type(normalized_shape) == "number" then normalized_shape = { normalized_shape } end
  local set, lead = {}, #x.shape - #normalized_shape
  for d = 1, #normalized_shape do
    if x.shape[lead + d] ~= normalized_shape[d] then
      array.fail(op, "shape %s does not end in %s", array.shape_text(x.shape),
        array.shape_text(normalized_shape))
    end
    set[lead + d] = true
  end
  return set
end

local function affine(out, weight, bias)
  if weight then out = elementwise.mul(out, weight) end
  if bias then out = elementwise.add(out, bias) end
  return out
end

function ops.layer_norm(x, normalized_shape, weight, bias, eps)
  reduce.need_float("layer_norm", x)
  local set = last_dims("layer_norm", x, normalized_shape)
  return affine(reduce.map_lanes(x, set, x.dtype, function(values, n, put)
    standardize(values, n, put, eps or 1e-5)
  end), weight, bias)
end

function ops.rms_norm(x, normalized_shape, weight, eps)
  reduce.need_float("rms_norm", x)
  local set = last_dims("rms_norm", x, normalized_shape)
  return affine(reduce.map_lanes(x, set, x.dtype, function(values, n, put)
    local squares = 0
    for j = 1, n do squares = squares + values[j] * values[j] end
    local scale = 1 / math.sqrt(squares / n + (eps or 1e-5))
    for j = 1, n do put(j, values[j] * scale) end
  end), weight)
end

-- x is (N, C, ..): each group of C / groups channels is one lane; weight and bias have C elements.
function ops.group_norm(x, groups, weight, bias, eps)
  reduce.need_float("group_norm", x)
  local channels = x.shape[2]
  if #x.shape < 2 or channels % groups ~= 0 then
    array.fail("group_norm", "%s channels in %d groups", tostring(channels), groups)
  end
  local rest = 1
  for d = 3, #x.shape do rest = rest * x.shape[d] end
  local grouped = array.reshape(x, { x.shape[1], groups, channels / groups * rest })
  local out = reduce.map_lanes(grouped, { [3] = true }, x.dtype, function(values, n, put)
    standardize(values, n, put, eps or 1e-5)
  end)
  local per_channel = { channels }
  for d = 3, #x.shape do per_channel[d - 1] = 1 end
  return affine(array.reshape(out, x.shape), weight and array.reshape(weight, per_channel),
    bias and array.reshape(bias, per_channel))
end

-- Hadamard transform ------------------------------------------------------------------------

local function odd_bits(v)
  local odd = false
  while v > 0 do
    if v % 2 == 1 then odd = not odd end
    v = math.floor(v / 2)
  end
  return odd
end

-- y[i] = n^(-1/2) sum over j of (-1)^(number of bits common to i and j) x[j], along the last dim.
function ops.hadamard_transform(x)
  reduce.need_float("hadamard_transform", x)
  local n = x.shape[#x.shape] or 0
  if n < 1 or bit.band(n, n - 1) ~= 0 then
    array.fail("hadamard_transform", "the last dim (%d) is not a power of two", n)
  end
  local minus = {}
  for v = 0, n - 1 do minus[v] = odd_bits(v) end
  return reduce.map_lanes(x, { [#x.shape] = true }, x.dtype, function(values, _, put)
    for i = 0, n - 1 do
      local sum = 0
      for j = 0, n - 1 do
        if minus[bit.band(i, j)] then sum = sum - values[j + 1] else sum = sum + values[j + 1] end
      end
      put(i + 1, sum / math.sqrt(n))
    end
  end)
end

-- Optimizers --------------------------------------------------------------------------------

local function number_of(v)
  return type(v) == "number" and v or v[1]
end

-- p - lr g.
function ops.sgd(p, g, opts)
  local out, lr = array.new(p.shape, p.dtype), number_of(opts.lr)
  for i = 1, array.numel(p.shape) do out[i] = p[i] - lr * g[i] end
  return out
end

-- Decoupled weight decay, then Adam's step with both moments corrected for their start at zero.
-- step counts from 1. Returns the new p, m and v.
function ops.adamw(p, g, m, v, step, opts)
  local lr, t = number_of(opts.lr), number_of(step)
  local beta1, beta2 = opts.beta1 or 0.9, opts.beta2 or 0.999
  local eps, decay = opts.eps or 1e-8, opts.weight_decay or 0.01
  local new_p, new_m = array.new(p.shape, p.dtype), array.new(p.shape, p.dtype)
  local new_v = array.new(p.shape, p.dtype)
  for i = 1, array.numel(p.shape) do
    new_m[i] = beta1 * m[i] + (1 - beta1) * g[i]
    new_v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i]
    local mean, square = new_m[i] / (1 - beta1 ^ t), new_v[i] / (1 - beta2 ^ t)
    new_p[i] = p[i] * (1 - lr * decay) - lr * mean / (math.sqrt(square) + eps)
  end
  return new_p, new_m, new_v
end

return ops
