-- SPDX-License-Identifier: MIT
-- initialize: what parameters start from. Each writes a tensor in place, by the engine's random numbers, without temporaries, and returns it.
-- Fans are those of PyTorch: of a weight (out, in, ...) the fan in is in * the kernel's elements, the fan out is out * these.

local core = require "perilune.core"
local caller = require "perilune.caller"
local check = require "perilune.nn.check"

local T, ops = core.tensor, core.ops
local init = {}

local function quietly(t, fn)
  if not T.is_tensor(t) then caller.fail("init: a tensor was expected, got %s", type(t)) end
  local eng = T.engine(t)
  eng:no_grad(fn, eng)
  return t
end

--- A number everywhere.
function init.constant(t, value)
  return quietly(t, function() ops.fill(t, value) end)
end

--- Zeros.
function init.zeros(t) return init.constant(t, 0) end

--- Ones.
function init.ones(t) return init.constant(t, 1) end

--- Uniform in [lo, hi), without them in [0, 1).
function init.uniform(t, lo, hi)
  lo, hi = lo or 0, hi or 1
  return quietly(t, function(eng)
    eng:rand(T.shape(t), T.dtype(t), t)
    ops.mul(t, hi - lo, t)
    ops.add(t, lo, t)
  end)
end

--- Normal with a mean (0) and a standard deviation (1).
function init.normal(t, mean, deviation)
  return quietly(t, function(eng)
    eng:randn(T.shape(t), T.dtype(t), t)
    ops.mul(t, deviation or 1, t)
    ops.add(t, mean or 0, t)
  end)
end

--- Fan in and fan out of a weight.
---@return integer, integer
function init.fans(t)
  local shape = T.shape(t)
  if #shape < 2 then caller.fail("init: fans need a tensor of at least 2 dimensions, got shape %s", check.shape_text(shape)) end
  local field = 1
  for d = 3, #shape do field = field * shape[d] end
  return shape[2] * field, shape[1] * field
end

--- Uniform within gain * sqrt(6 / (fan in + fan out)) (Glorot and Bengio 2010).
function init.xavier_uniform(t, gain)
  local fan_in, fan_out = init.fans(t)
  local bound = (gain or 1) * math.sqrt(6 / (fan_in + fan_out))
  return init.uniform(t, -bound, bound)
end

--- Normal with the deviation gain * sqrt(2 / (fan in + fan out)).
function init.xavier_normal(t, gain)
  local fan_in, fan_out = init.fans(t)
  return init.normal(t, 0, (gain or 1) * math.sqrt(2 / (fan_in + fan_out)))
end

--- Uniform within gain * sqrt(3 / fan in) (He et al. 2015); the gain is relu's sqrt(2) unless given.
function init.kaiming_uniform(t, gain)
  local bound = (gain or math.sqrt(2)) * math.sqrt(3 / init.fans(t))
  return init.uniform(t, -bound, bound)
end

--- Normal with the deviation gain / sqrt(fan in).
function init.kaiming_normal(t, gain)
  return init.normal(t, 0, (gain or math.sqrt(2)) / math.sqrt((init.fans(t))))
end

--- Orthonormal rows, or columns where there are more rows than columns; made on the host by Gram-Schmidt, twice for accuracy.
function init.orthogonal(t, gain)
  local shape = T.shape(t)
  if #shape ~= 2 then caller.fail("init.orthogonal: a matrix was expected, got shape %s", check.shape_text(shape)) end
  local rows, columns = shape[1], shape[2]
  init.normal(t)
  local values = rows <= columns and t:totable() or t:detach():t():totable()
  for i, row in ipairs(values) do
    for _ = 1, 2 do
      for j = 1, i - 1 do
        local dot = 0
        for k, v in ipairs(values[j]) do dot = dot + v * row[k] end
        for k, v in ipairs(values[j]) do row[k] = row[k] - dot * v end
      end
    end
    local sum = 0
    for _, v in ipairs(row) do sum = sum + v * v end
    for k, v in ipairs(row) do row[k] = v / math.sqrt(sum) end
  end
  return quietly(t, function(eng)
    if #values == 0 then return end
    local made = eng:tensor(values, { dtype = T.dtype(t) })
    ops.copy(t, rows <= columns and made or made:t())
    ops.mul(t, gain or 1, t)
  end)
end

return init
