-- SPDX-License-Identifier: MIT
-- steps: training steps that can be captured, for specs and benchmarks: what varies from step to step lies in tensors. Each is a function of an
-- engine that makes the state and returns { step = one step, state = { name = tensor } }.

local steps = {}

local function ramp(phase, n)
  local values = {}
  for i = 0, n - 1 do values[i + 1] = math.sin(phase + 0.7 * i) end
  return values
end

local SAMPLES = 12

--- The hazard loop by hand: forward, gradients, sums, an update after every sample; samples and targets resident, taken by a counter that
--- goes round.
function steps.hazard(eng)
  local inputs, hidden, outputs = 8, 8, 4
  local W1, W2 = eng:persistent({ inputs, hidden }, ramp(0.31, inputs * hidden)), eng:persistent({ hidden, outputs }, ramp(0.17, hidden * outputs))
  local g1, g2, loss = eng:persistent { inputs, hidden }, eng:persistent { hidden, outputs }, eng:persistent {}
  local X, T = {}, {}
  for s = 0, SAMPLES - 1 do
    X[s + 1], T[s + 1] = ramp(0.41 + 0.07 * s, inputs), { 0, 0, 0, 0 }
    T[s + 1][s % outputs + 1] = 1
  end
  local data, targets = eng:persistent({ SAMPLES, inputs }, X), eng:persistent({ SAMPLES, outputs }, T)
  local counter = eng:persistent({ 1 }, 1, { dtype = "i64" })
  return {
    state = { W1 = W1, W2 = W2, g1 = g1, g2 = g2, loss = loss, counter = counter },
    step = function()
      local x, target = data:index_select(1, counter), targets:index_select(1, counter)
      local a = x:matmul(W1):tanh()
      local p = a:matmul(W2):softmax()
      local dy = p - target
      local dh = (1 - a * a) * dy:matmul(W2:t())
      eng:add(g1, x:t():matmul(dh), g1)
      eng:add(g2, a:t():matmul(dy), g2)
      eng:sub(loss, (p * target):sum():log(), loss)
      eng:sub(W1, g1 * 0.01, W1)
      eng:sub(W2, g2 * 0.01, W2)
      eng:mul(g1, 0.5, g1)
      eng:mul(g2, 0.5, g2)
      eng:add(counter % SAMPLES, 1, counter)
      return p
    end,
  }
end

--- Self-attention with autograd and sgd.
function steps.attention(eng)
  local B, T, C, H = 2, 5, 8, 2
  local params, state = {}, {}
  for i, name in ipairs { "q", "k", "v", "o" } do
    params[name] = eng:param({ C, C }, ramp(0.2 * i, C * C))
    state[name], state["grad of " .. name] = params[name], params[name].grad
  end
  local scale, shift = eng:param({ C }, 1), eng:param { C }
  state.scale, state.shift = scale, shift
  local data = eng:persistent({ SAMPLES, B, T, C }, ramp(0.9, SAMPLES * B * T * C))
  local want = {}
  for i = 1, SAMPLES * B * T do want[i] = i * 7 % C + 1 end
  local targets = eng:persistent({ SAMPLES, B * T }, want, { dtype = "i64" })
  local counter, total = eng:persistent({ 1 }, 1, { dtype = "i64" }), eng:persistent {}
  state.counter, state.total = counter, total
  local function heads(x, w) return x:matmul(w):view(B, T, H, C / H):transpose(2, 3) end
  return {
    state = state,
    step = function()
      local x = data:index_select(1, counter)[1]
      local y = heads(x, params.q):sdpa(heads(x, params.k), heads(x, params.v))
      y = (y:transpose(2, 3):reshape { B, T, C }:matmul(params.o) + x):layer_norm({ C }, scale, shift)
      local loss = y:view(B * T, C):cross_entropy(targets:index_select(1, counter)[1])
      loss:backward()
      eng:no_grad(function()
        for _, p in pairs { params.q, params.k, params.v, params.o, scale, shift } do
          eng:sgd(p, p.grad, 0.05)
          eng:zero(p.grad)
        end
        eng:add(total, loss:detach(), total)
      end)
      eng:add(counter % SAMPLES, 1, counter)
      return loss
    end,
  }
end

--- A network with dropout, trained by adamw whose step count and learning rate are tensors.
function steps.mlp(eng)
  local batch, sizes = 6, { 10, 16, 16, 5 }
  local state, params = {}, {}
  for i = 1, #sizes - 1 do
    params[#params + 1] = eng:param({ sizes[i], sizes[i + 1] }, ramp(0.3 * i, sizes[i] * sizes[i + 1]))
    params[#params + 1] = eng:param { sizes[i + 1] }
  end
  local m, v = {}, {}
  for i, p in ipairs(params) do
    m[i], v[i] = eng:persistent(p.shape), eng:persistent(p.shape)
    state["p" .. i], state["grad" .. i], state["m" .. i], state["v" .. i] = p, p.grad, m[i], v[i]
  end
  local count, lr = eng:persistent({}, 1, { dtype = "i64" }), eng:persistent({}, 0.01)
  local data = eng:persistent({ SAMPLES, batch, sizes[1] }, ramp(0.1, SAMPLES * batch * sizes[1]))
  local want = {}
  for i = 1, SAMPLES * batch do want[i] = i * 3 % sizes[#sizes] + 1 end
  local targets = eng:persistent({ SAMPLES, batch }, want, { dtype = "i64" })
  local counter, noise = eng:persistent({ 1 }, 1, { dtype = "i64" }), eng:persistent { 3 }
  state.count, state.lr, state.counter, state.noise = count, lr, counter, noise
  return {
    state = state,
    step = function()
      local x = data:index_select(1, counter)[1]
      for i = 1, #params, 2 do
        x = x:matmul(params[i]) + params[i + 1]
        if i + 1 < #params then x = x:gelu():dropout(0.3) end
      end
      local loss = x:cross_entropy(targets:index_select(1, counter)[1])
      loss:backward()
      for i, p in ipairs(params) do
        eng:adamw(p, p.grad, m[i], v[i], count, { lr = lr })
        eng:zero(p.grad)
      end
      eng:add(noise, eng:rand { 3 }, noise)
      eng:add(count, 1, count)
      eng:mul(lr, 0.999, lr)
      eng:add(counter % SAMPLES, 1, counter)
      return loss
    end,
  }
end

--- The bytes of every tensor of the state.
function steps.read(program)
  local bytes = {}
  for name, t in pairs(program.state) do bytes[name] = t:bytes() end
  return bytes
end

return steps
