-- SPDX-License-Identifier: MIT
-- composites: layers as users write them, from several ops, as cases for the harnesses. A single op that is right under a
-- schedule says little about a chain whose links all read each other's intermediates.
--
-- The two attention nodes are ops written in Lua that save what their derivative reads; the rest is recorded op by op.

local perilune = require "perilune"
local cases = require "perilune.cases"
local samples = require "perilune.samples"

local composites = {}

local function values(shape, dtype, set, key, lo, hi)
  local n, out = cases.count(shape), { shape = shape, dtype = dtype }
  for i = 1, n do
    local u = 0.5 + 0.5 * math.sin(1.7 * i + 12.9 * key + 78.2 * set + 0.3 * i * key)
    out[i] = lo + (hi - lo) * u
  end
  return samples.decode(samples.encode(out), shape, dtype)
end

--- Parameters and inputs: { name, shape, lo, hi } with gradients; `fixed` entries { name, shape, fixed = fn(set, i) } are data.
local function inputs_of(list, dtype)
  return function(set)
    local out = {}
    for key, item in ipairs(list) do
      local array
      if item.fixed then
        array = { shape = item.shape, dtype = item.dtype or dtype }
        for i = 1, cases.count(item.shape) do array[i] = item.fixed(set, i) end
      else
        array = values(item.shape, dtype, set, key, item.lo or -1, item.hi or 1)
      end
      out[key] = { array = array, grad = not item.fixed, slot = item[1] }
    end
    return out
  end
end

local all = {}

local function composite(name, list, run) all[#all + 1] = { name = name, list = list, run = run } end

composite("layer_norm", { { "x", shape = { 4, 6 } }, { "gamma", shape = { 6 }, lo = 0.5, hi = 2 }, { "beta", shape = { 6 } } },
  function(_, x, gamma, beta)
    local centred = x - x:mean(-1, true)
    local deviation = (x:var(-1, 0, true) + 1e-5):rsqrt()
    return centred * deviation * gamma + beta
  end)

composite("group_norm", { { "x", shape = { 2, 4, 5 } }, { "gamma", shape = { 4 }, lo = 0.5, hi = 2 }, { "beta", shape = { 4 } } },
  function(_, x, gamma, beta)
    local grouped = x:reshape { 2, 2, 10 }
    local centred = grouped - grouped:mean(-1, true)
    local normal = centred * ((centred * centred):mean(-1, true) + 1e-5):rsqrt()
    return normal:reshape { 2, 4, 5 } * gamma:view { 4, 1 } + beta:view { 4, 1 }
  end)

composite("cross_attention", { { "x", shape = { 4, 8 } }, { "context", shape = { 6, 8 } }, { "wq", shape = { 8, 8 } }, { "wk", shape = { 8, 8 } },
    { "wv", shape = { 8, 8 } } },
  function(_, x, context, wq, wk, wv)
    local q, k, v = x:matmul(wq), context:matmul(wk), context:matmul(wv)
    local weights = (q:matmul(k:t()) * (1 / math.sqrt(8))):softmax(-1)
    return weights:matmul(v)
  end)

composite("adaptive_layer_norm", { { "x", shape = { 2, 5, 6 } }, { "c", shape = { 2, 3 } }, { "w_scale", shape = { 6, 3 } },
    { "w_shift", shape = { 6, 3 } } },
  function(_, x, c, w_scale, w_shift)
    local normal = x:layer_norm(6)
    local scale, shift = c:linear(w_scale):unsqueeze(2), c:linear(w_shift):unsqueeze(2)
    return normal * (scale + 1) + shift
  end)

composite("timestep_embedding", { { "t", shape = { 5 }, lo = 0, hi = 4 }, { "w", shape = { 3, 8 } } },
  function(eng, t, w)
    local frequencies = (eng:arange(4, nil, nil, t.dtype) * (-math.log(100) / 4)):exp()
    local angles = t:unsqueeze(2) * frequencies
    return eng:concat({ angles:sin(), angles:cos() }, 2):linear(w)
  end)

composite("hadamard", { { "x", shape = { 3, 8 } }, { "signs", shape = { 8 } }, { "gain", shape = { 8 } } },
  function(_, x, signs, gain)
    local rotated = (x * signs):hadamard_transform()
    return (rotated:tanh() * gain):hadamard_transform() + x
  end)

composite("fixed_dropout", { { "x", shape = { 4, 6 } }, { "mask", shape = { 4, 6 }, dtype = "bool",
    fixed = function(set, i) return (i * 7 + set) % 10 < 4 and 1 or 0 end }, { "w", shape = { 6, 3 } } },
  function(_, x, mask, w)
    return (x:masked_fill(mask, 0) * (1 / 0.6)):matmul(w)
  end)

--- Single-head attention as one node.
composites.attention = perilune.op { name = "attention",
  forward = function(ctx, x, wq, wk, wv)
    local q, k, v = x:matmul(wq), x:matmul(wk), x:matmul(wv)
    local a = (q:matmul(k:t()) * (1 / math.sqrt(8))):softmax(-1)
    ctx:save(x, wq, wk, wv, q, k, v, a)
    return a:matmul(v)
  end,
  backward = function(ctx, g)
    local x, wq, wk, wv, q, k, v, a = ctx:saved()
    local da, dv = g:matmul(v:t()), a:t():matmul(g)
    local ds = (da - (da * a):sum(-1, true)) * a * (1 / math.sqrt(8))
    local dq, dk = ds:matmul(k), ds:t():matmul(q)
    local dx = dq:matmul(wq:t()) + dk:matmul(wk:t()) + dv:matmul(wv:t())
    return dx, x:t():matmul(dq), x:t():matmul(dk), x:t():matmul(dv)
  end }

--- y = r / sqrt(mean(r^2) + eps) per row, r = x + out, as one node.
composites.residual_rms_norm = perilune.op { name = "residual_rms_norm",
  forward = function(ctx, x, out)
    local r = x + out
    local scale = ((r * r):mean(-1, true) + 1e-5):rsqrt()
    ctx:save(r, scale)
    return r * scale
  end,
  backward = function(ctx, g)
    local r, scale = ctx:saved()
    local dr = (g - r * (g * r):mean(-1, true) * scale * scale) * scale
    return dr, dr
  end }

composite("attention_residual_rms_norm", { { "x", shape = { 6, 8 } }, { "wq", shape = { 8, 8 } }, { "wk", shape = { 8, 8 } },
    { "wv", shape = { 8, 8 } } },
  function(_, x, wq, wk, wv) return composites.residual_rms_norm(x, composites.attention(x, wq, wk, wv)) end)

composite("checkpointed_mlp", { { "x", shape = { 4, 6 } }, { "w1", shape = { 8, 6 } }, { "b1", shape = { 8 } }, { "w2", shape = { 3, 8 } } },
  function(_, x, w1, b1, w2)
    return perilune.checkpoint(function(h, a, b, c) return h:linear(a, b):gelu():linear(c):tanh() end, x, w1, b1, w2)
  end)

--- The composites as cases, named "composite.NAME", as f32 and f64.
---@param opts? { ops?: string[], dtypes?: boolean }
---@return perilune.Case[]
function composites.cases(opts)
  opts = opts or {}
  local list = {}
  for _, c in ipairs(all) do
    local op = "composite." .. c.name
    if cases.wanted(opts.ops, op) then
      for _, dtype in ipairs(opts.dtypes == false and { "f32" } or { "f32", "f64" }) do
        list[#list + 1] = { op = op, name = op .. " " .. dtype, dtype = dtype, rtol = 2e-5, grad_rtol = 1e-4, inputs = inputs_of(c.list, dtype),
          run = c.run, place = cases.place_of(c.run) }
      end
    end
  end
  return list
end

return composites
