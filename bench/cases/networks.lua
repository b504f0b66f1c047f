-- SPDX-License-Identifier: MIT
-- Whole steps: the MLP with Adam, the transformer block. Each eagerly, with a reset after the step, and captured.

local perilune = require "perilune"
local used = require "used"

local family = {}

--- A loop that runs step n times, and a function that gives `tensors` after one more run.
local function steps(step, tensors)
  local function loop(n)
    for _ = 1, n do step() end
  end
  return loop, function()
    loop(1)
    return unpack(tensors)
  end
end

--- The MLP's data and weights drawn here, for a process of its own.
function family.inputs(eng)
  local t = { x = eng:persistent({ 64, 784 }, eng:randn { 64, 784 }), c = eng:persistent({ 64 }, 1, { dtype = "i64" }) }
  for k, size in ipairs { { 784, 256 }, { 256, 256 }, { 256, 10 } } do
    t["w" .. k], t["b" .. k] = eng:persistent(size, eng:randn(size) / math.sqrt(size[1])), eng:persistent { size[2] }
  end
  return t
end

--- One step of the MLP without its reset, and its weights.
local function mlp(eng, t)
  local w, m, v = {}, {}, {}
  for k = 1, 3 do
    for _, name in ipairs { "w", "b" } do
      local value = t[name .. k]
      w[#w + 1] = eng:param(value.shape, value)
      m[#w], v[#w] = eng:persistent(value.shape), eng:persistent(value.shape)
    end
  end
  local count = eng:persistent({}, 1, { dtype = "i64" })
  local options = { lr = 1e-3, weight_decay = 0 }
  return function()
    local h = eng:addmm(w[2], t.x, w[1]):relu()
    h = eng:addmm(w[4], h, w[3]):relu()
    eng:addmm(w[6], h, w[5]):cross_entropy(t.c):backward()
    for k = 1, 6 do
      eng:adamw(w[k], w[k].grad, m[k], v[k], count, options)
      eng:zero(w[k].grad)
    end
    eng:add(count, 1, count)
  end, w
end

function family.mlp(eng, t)
  local step, w = mlp(eng, t)
  return steps(function()
    step()
    eng:reset()
  end, w)
end

function family.mlp_captured(eng, t)
  local step, w = mlp(eng, t)
  local captured = eng:capture(step)
  return steps(function() captured:replay() end, w)
end

local B, T, C, HEADS = 8, 128, 256, 8
local NAMES = { "x", "ln1w", "ln1b", "wqkv", "bqkv", "wo", "bo", "ln2w", "ln2b", "w1", "b1", "w2", "b2" }

--- One forward and backward of the block without its reset, and its gradients.
local function block(eng, t)
  local w, grads = {}, {}
  for k, name in ipairs(NAMES) do
    w[name] = eng:param(t[name].shape, t[name])
    grads[k] = w[name].grad
  end
  return function()
    for _, g in ipairs(grads) do eng:zero(g) end
    local h = w.x:layer_norm(C, w.ln1w, w.ln1b)
    local qkv = eng:addmm(w.bqkv, h:view { B * T, C }, w.wqkv):view { B, T, 3, HEADS, C / HEADS }:permute { 3, 1, 4, 2, 5 }
    local y = eng:sdpa(qkv[1], qkv[2], qkv[3], nil, true)
    local x = w.x + eng:addmm(w.bo, y:transpose(2, 3):reshape { B * T, C }, w.wo):view { B, T, C }
    h = x:layer_norm(C, w.ln2w, w.ln2b)
    h = eng:addmm(w.b1, h:view { B * T, C }, w.w1):gelu()
    local out = x + eng:addmm(w.b2, h, w.w2):view { B, T, C }
    out:backward(t.dy)
  end, grads
end

function family.block(eng, t)
  local step, grads = block(eng, t)
  return steps(function()
    step()
    eng:reset()
  end, grads)
end

function family.block_captured(eng, t)
  local step, grads = block(eng, t)
  local captured = eng:capture(step)
  return steps(function() captured:replay() end, grads)
end

--- The time of the block's step less that of its products alone, forward and both gradients.
function family.block_rest(eng, t)
  local step = family.block_captured(eng, t)
  local rows, matmul, pairs_ = B * T, perilune.matmul, {}
  local function new(...) return eng:persistent({ ... }, eng:randn { ... }) end
  local narrow, triple, wide = new(rows, C), new(rows, 3 * C), new(rows, 4 * C)
  for k, set in ipairs { { narrow, t.wqkv, triple }, { narrow, t.wo, narrow }, { narrow, t.w1, wide }, { wide, t.w2, narrow } } do
    local x, w, g = unpack(set)
    pairs_[k] = { x = x, xt = x:t(), w = w, wt = w:t(), g = g, y = new(rows, w.shape[2]), dx = new(rows, w.shape[1]), dw = new(unpack(w.shape)) }
  end
  local q, s = new(B * HEADS, T, C / HEADS), new(B * HEADS, T, T)
  local qt, qs, ss = q:transpose(2, 3), new(B * HEADS, T, C / HEADS), new(B * HEADS, T, T)
  eng:reset()
  return function(n)
    local begin = used()
    step(n)
    local whole = used()
    for _ = 1, n do
      for _, p in ipairs(pairs_) do
        matmul(p.x, p.w, p.y)
        matmul(p.g, p.wt, p.dx)
        matmul(p.xt, p.g, p.dw)
      end
      for _ = 1, 2 do matmul(q, qt, ss) end
      for _ = 1, 4 do matmul(s, q, qs) end
    end
    return whole - begin - (used() - whole)
  end, function() end
end

return family
