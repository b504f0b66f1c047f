-- SPDX-License-Identifier: MIT
-- Reference of scaled dot-product attention and its gradient, row by row from the definition (Vaswani et al. 2017).

local array = require "spec.support.reference.array"

local ops = {}

-- The element of t at a list of batch indices (from 0) followed by i and j; sizes of 1 and missing leading dims broadcast.
local function element(t, batch, i, j)
  local n, offset, step = #t.shape, 0, 1
  for d = n, 1, -1 do
    local at = d == n and j or d == n - 1 and i or batch[#batch - (n - 2 - d)]
    if t.shape[d] == 1 then at = 0 end
    offset = offset + at * step
    step = step * t.shape[d]
  end
  return t[offset + 1]
end

local function leading(shape)
  local s = {}
  for d = 1, #shape - 2 do s[d] = shape[d] end
  return s
end

local function merged(a, b)
  local out = {}
  for d = 1, math.max(#a, #b) do
    local x, y = a[d - math.max(#a, #b) + #a] or 1, b[d - math.max(#a, #b) + #b] or 1
    out[d] = x == 1 and y or x
  end
  return out
end

local function joined(batch, ...)
  local s = array.copy_list(batch)
  for k = 1, select("#", ...) do s[#s + 1] = select(k, ...) end
  return s
end

-- Calls fn(number, batch indices) for each batch, counted from 0.
local function each_batch(shape, fn)
  for number = 0, array.numel(shape) - 1 do
    local batch, rest = {}, number
    for d = #shape, 1, -1 do
      batch[d] = rest % shape[d]
      rest = math.floor(rest / shape[d])
    end
    fn(number, batch)
  end
end

local function sizes(q, k, v)
  return { batch = merged(merged(leading(q.shape), leading(k.shape)), leading(v.shape)), L = q.shape[#q.shape - 1],
    E = q.shape[#q.shape], S = k.shape[#k.shape - 1], D = v.shape[#v.shape] }
end

-- Scores of row i, -inf where left out.
local function row_scores(n, batch, i, q, k, mask, causal, scale)
  local scores = {}
  for j = 0, n.S - 1 do
    local sum = 0
    for e = 0, n.E - 1 do sum = sum + element(q, batch, i, e) * element(k, batch, j, e) end
    sum = sum * scale
    if mask then
      local m = element(mask, batch, i, j)
      if array.kind(mask.dtype) == "float" then
        sum = sum + m
      elseif m == 0 then
        sum = -math.huge
      end
    end
    if causal and j > i then sum = -math.huge end
    scores[j + 1] = sum
  end
  return scores
end

local function default_scale(n) return n.E > 0 and 1 / math.sqrt(n.E) or 1 end

local function forward(q, k, v, mask, causal, scale)
  local n = sizes(q, k, v)
  scale = scale or default_scale(n)
  local out, lse = array.new(joined(n.batch, n.L, n.D), q.dtype), array.new(joined(n.batch, n.L), q.dtype)
  each_batch(n.batch, function(number, batch)
    for i = 0, n.L - 1 do
      local scores = row_scores(n, batch, i, q, k, mask, causal, scale)
      local most = -math.huge
      for _, s in ipairs(scores) do if s > most or s ~= s then most = s end end
      local none, sum, weights = most == -math.huge, 0, {}
      for j, s in ipairs(scores) do
        weights[j] = none and 0 or math.exp(s - most)
        sum = sum + weights[j]
      end
      lse[number * n.L + i + 1] = none and math.huge or most + math.log(sum)
      for d = 0, n.D - 1 do
        local total = 0
        if not none then
          for j = 0, n.S - 1 do total = total + weights[j + 1] / sum * element(v, batch, j, d) end
        end
        out[(number * n.L + i) * n.D + d + 1] = total
      end
    end
  end)
  return out, lse
end

function ops.sdpa(...) return (forward(...)) end
function ops.sdpa_forward(...) return forward(...) end

-- Gradients for q, k and v in the shape of the batches: dv = p^T g, ds = p (g v^T - g . out), dq = ds k scale, dk = ds^T q scale.
function ops.sdpa_backward(g, out, lse, q, k, v, mask, causal, scale)
  local n = sizes(q, k, v)
  scale = scale or default_scale(n)
  local dq, dk = array.new(joined(n.batch, n.L, n.E), q.dtype), array.new(joined(n.batch, n.S, n.E), q.dtype)
  local dv = array.new(joined(n.batch, n.S, n.D), q.dtype)
  for _, t in ipairs { dq, dk, dv } do
    for i = 1, array.numel(t.shape) do t[i] = 0 end
  end
  each_batch(n.batch, function(number, batch)
    for i = 0, n.L - 1 do
      local row = number * n.L + i
      local scores, inner = row_scores(n, batch, i, q, k, mask, causal, scale), 0
      for d = 1, n.D do inner = inner + g[row * n.D + d] * out[row * n.D + d] end
      for j = 0, n.S - 1 do
        local p, dp = math.exp(scores[j + 1] - lse[row + 1]), 0
        for d = 0, n.D - 1 do
          local at = (number * n.S + j) * n.D + d + 1
          dp = dp + g[row * n.D + d + 1] * element(v, batch, j, d)
          dv[at] = dv[at] + p * g[row * n.D + d + 1]
        end
        local ds = scores[j + 1] == -math.huge and 0 or p * (dp - inner) * scale
        for e = 0, n.E - 1 do
          local at_q, at_k = row * n.E + e + 1, (number * n.S + j) * n.E + e + 1
          dq[at_q] = dq[at_q] + ds * element(k, batch, j, e)
          dk[at_k] = dk[at_k] + ds * element(q, batch, i, e)
        end
      end
    end
  end)
  return dq, dk, dv
end

return ops
