-- SPDX-License-Identifier: MIT
-- Loops that train sample by sample, with a reset after each. The order of the gradients' sums is the peers'.

local perilune = require "perilune"

local loops = {}

local BATCH, RATE = 4, 0.05

--- Views of `rows` rows each.
local function pieces(t, rows)
  local list = {}
  for k = 1, #t / rows do list[k] = t:narrow(1, (k - 1) * rows + 1, rows) end
  return list
end

--- A loop over all samples by batch(first sample), and a function that gives the weights after one round of it.
local function batches(count, batch, ...)
  local weights = { ... }
  local function loop(n)
    for _ = 1, n do
      for b = 1, count, BATCH do batch(b) end
    end
  end
  return loop, function()
    loop(1)
    return unpack(weights)
  end
end

function loops.hazard_functions(eng, t)
  local matmul, tanh, softmax, transpose = perilune.matmul, perilune.tanh, perilune.softmax, perilune.t
  local add, sub, mul, zero, reset = perilune.add, perilune.sub, perilune.mul, perilune.zero, eng.reset
  local xs, ts, W1, W2 = pieces(t.x, 1), pieces(t.t, 1), t.W1, t.W2
  local g1, g2 = eng:persistent { 8, 8 }, eng:persistent { 8, 4 }
  return batches(#xs, function(b)
    for k = b, b + BATCH - 1 do
      local x = xs[k]
      local a = tanh(matmul(x, W1))
      local p = softmax(matmul(a, W2), 2)
      local dy = sub(p, ts[k])
      local dW2 = matmul(transpose(a), dy)
      local dh = mul(sub(1, mul(a, a)), matmul(dy, transpose(W2)))
      local dW1 = matmul(transpose(x), dh)
      add(g1, dW1, g1)
      add(g2, dW2, g2)
      reset(eng)
    end
    sub(W1, mul(g1, RATE), W1)
    sub(W2, mul(g2, RATE), W2)
    zero(g1)
    zero(g2)
  end, W1, W2)
end

function loops.hazard_methods(eng, t)
  local xs, ts, W1, W2 = pieces(t.x, 1), pieces(t.t, 1), t.W1, t.W2
  local g1, g2 = eng:persistent { 8, 8 }, eng:persistent { 8, 4 }
  return batches(#xs, function(b)
    for k = b, b + BATCH - 1 do
      local x = xs[k]
      local a = x:matmul(W1):tanh()
      local p = a:matmul(W2):softmax(2)
      local dy = p - ts[k]
      local dW2 = a:t():matmul(dy)
      local dh = (1 - a * a) * dy:matmul(W2:t())
      local dW1 = x:t():matmul(dh)
      g1:add(dW1, g1)
      g2:add(dW2, g2)
      eng:reset()
    end
    W1:sub(g1 * RATE, W1)
    W2:sub(g2 * RATE, W2)
    g1:zero()
    g2:zero()
  end, W1, W2)
end

--- Every result into a tensor made beforehand: nothing is allocated, nothing collected.
function loops.hazard_destinations(eng, t)
  local matmul, tanh, softmax, add, sub, mul, zero = perilune.matmul, perilune.tanh, perilune.softmax, perilune.add, perilune.sub, perilune.mul, perilune.zero
  local xs, ts, W1, W2 = pieces(t.x, 1), pieces(t.t, 1), t.W1, t.W2
  local function new(...) return eng:persistent { ... } end
  local g1, g2, a, y, da, dh, dW1, dW2 = new(8, 8), new(8, 4), new(1, 8), new(1, 4), new(1, 8), new(1, 8), new(8, 8), new(8, 4)
  local at, W2t, xts = a:t(), W2:t(), {}
  for k, x in ipairs(xs) do xts[k] = x:t() end
  return batches(#xs, function(b)
    for k = b, b + BATCH - 1 do
      matmul(xs[k], W1, a)
      tanh(a, a)
      matmul(a, W2, y)
      softmax(y, 2, y)
      sub(y, ts[k], y)
      matmul(at, y, dW2)
      matmul(y, W2t, da)
      mul(a, a, dh)
      sub(1, dh, dh)
      mul(dh, da, dh)
      matmul(xts[k], dh, dW1)
      add(g1, dW1, g1)
      add(g2, dW2, g2)
    end
    mul(g1, RATE, g1)
    sub(W1, g1, W1)
    mul(g2, RATE, g2)
    sub(W2, g2, W2)
    zero(g1)
    zero(g2)
  end, W1, W2)
end

function loops.hazard_autograd(eng, t)
  local matmul, tanh, cross_entropy, reset, zero, sgd = perilune.matmul, perilune.tanh, perilune.cross_entropy, eng.reset, perilune.zero, eng.sgd
  local xs, classes = pieces(t.x, 1), pieces(eng:persistent({ #t.t }, t.t:argmax(2), { dtype = "i64" }), 1)
  local W1, W2 = eng:param({ 8, 8 }, t.W1), eng:param({ 8, 4 }, t.W2)
  local g1, g2, options = W1.grad, W2.grad, { lr = RATE }
  return batches(#xs, function(b)
    for k = b, b + BATCH - 1 do
      local y = matmul(tanh(matmul(xs[k], W1)), W2)
      cross_entropy(y, classes[k]):backward()
      reset(eng)
    end
    sgd(eng, W1, g1, options)
    sgd(eng, W2, g2, options)
    zero(g1)
    zero(g2)
  end, W1, W2)
end

--- The captured sample step and the captured update, and their weights.
local function captured(eng, t)
  local xs, ts, W1, W2 = t.x, t.t, t.W1, t.W2
  local g1, g2, counter = eng:persistent { 8, 8 }, eng:persistent { 8, 4 }, eng:persistent({ 1 }, 1, { dtype = "i64" })
  local step = eng:capture(function()
    local x, target = xs:index_select(1, counter), ts:index_select(1, counter)
    local a = x:matmul(W1):tanh()
    local dy = a:matmul(W2):softmax(2) - target
    local dh = (1 - a * a) * dy:matmul(W2:t())
    eng:add(g1, x:t():matmul(dh), g1)
    eng:add(g2, a:t():matmul(dy), g2)
    eng:add(counter, 1, counter)
  end)
  local update = eng:capture(function()
    eng:sub(W1, g1 * RATE, W1)
    eng:sub(W2, g2 * RATE, W2)
    eng:zero(g1)
    eng:zero(g2)
  end)
  return step, update, counter, W1, W2
end

function loops.hazard_captured(eng, t)
  local step, update, counter, W1, W2 = captured(eng, t)
  return batches(#t.x, function(b)
    if b == 1 then eng:fill(counter, 1) end
    for _ = 1, BATCH do step:replay() end
    update:replay()
  end, W1, W2)
end

--- The whole round is one captured step: a batch's samples and its update.
function loops.hazard_replays(eng, t)
  local xs, ts, W1, W2 = t.x, t.t, t.W1, t.W2
  local g1, g2, counter = eng:persistent { 8, 8 }, eng:persistent { 8, 4 }, eng:persistent({ 1 }, 1, { dtype = "i64" })
  local step = eng:capture(function()
    for _ = 1, BATCH do
      local x, target = xs:index_select(1, counter), ts:index_select(1, counter)
      local a = x:matmul(W1):tanh()
      local dy = a:matmul(W2):softmax(2) - target
      local dh = (1 - a * a) * dy:matmul(W2:t())
      eng:add(g1, x:t():matmul(dh), g1)
      eng:add(g2, a:t():matmul(dy), g2)
      eng:add(counter, 1, counter)
    end
    eng:sub(W1, g1 * RATE, W1)
    eng:sub(W2, g2 * RATE, W2)
    eng:zero(g1)
    eng:zero(g2)
  end)
  local count = #xs / BATCH
  local function loop(n)
    for _ = 1, n do
      eng:fill(counter, 1)
      step:replay(count)
    end
  end
  return loop, function()
    loop(1)
    return W1, W2
  end
end

--- The loss of one sample of the attention loop, by recorded ops.
local function attention_loss(x, class, Wq, Wk, Wv)
  local Q, K, V = x:matmul(Wq), x:matmul(Wk), x:matmul(Wv)
  local r = x + (Q:matmul(K:t()) / math.sqrt(8)):softmax(2):matmul(V)
  local y = r * ((r * r):mean(2, true) + 1e-5):rsqrt()
  return y:cross_entropy(class)
end

local function attention_params(eng, t)
  return eng:param({ 8, 8 }, t.Wq), eng:param({ 8, 8 }, t.Wk), eng:param({ 8, 8 }, t.Wv)
end

function loops.attention(eng, t)
  local xs, cs = pieces(t.x, 6), pieces(t.c, 6)
  local Wq, Wk, Wv = attention_params(eng, t)
  local options = { lr = RATE }
  return batches(#xs, function(b)
    for k = b, b + BATCH - 1 do
      attention_loss(xs[k], cs[k], Wq, Wk, Wv):backward()
      eng:reset()
    end
    for _, w in ipairs { Wq, Wk, Wv } do
      eng:sgd(w, w.grad, options)
      eng:zero(w.grad)
    end
  end, Wq, Wk, Wv)
end

function loops.attention_captured(eng, t)
  local Wq, Wk, Wv = attention_params(eng, t)
  local xs, cs, counter = t.x:view { -1, 6, 8 }, t.c:view { -1, 6 }, eng:persistent({ 1 }, 1, { dtype = "i64" })
  local step = eng:capture(function()
    local x, class = xs:index_select(1, counter):view { 6, 8 }, cs:index_select(1, counter):view { 6 }
    attention_loss(x, class, Wq, Wk, Wv):backward()
    eng:add(counter, 1, counter)
  end)
  local update = eng:capture(function()
    for _, w in ipairs { Wq, Wk, Wv } do
      eng:sgd(w, w.grad, { lr = RATE })
      eng:zero(w.grad)
    end
  end)
  return batches(#xs, function(b)
    if b == 1 then eng:fill(counter, 1) end
    step:replay(BATCH)
    update:replay()
  end, Wq, Wk, Wv)
end

return loops
