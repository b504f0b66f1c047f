-- SPDX-License-Identifier: MIT
-- Every layer, loss, optimizer and schedule trains as PyTorch's does: 50 losses and the final parameters, within 1e-5. The record was made by
-- scripts/record/training.py from the same formulas. A reset follows each step; `stress` must give the bits of `cpu`.

local perilune = require "perilune"
local json = require "perilune.json"
local nn = require "perilune.nn"
local optim = require "perilune.optim"
local engines = require "spec.support.engines"

local file = assert(io.open "spec/nn/training.json")
local record = json.decode(file:read "*a")
file:close()

local function numel(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function ramp(shape, phase, scale, shift)
  local values = { shape = shape }
  for i = 0, numel(shape) - 1 do values[i + 1] = (shift or 0) + (scale or 1) * math.sin(phase + 0.7 * i) end
  return values
end

local function classes(shape, n)
  local values = { shape = shape, dtype = "i64" }
  for i = 0, numel(shape) - 1 do values[i + 1] = 7 * i % n + 1 end
  return values
end

local function place(eng, values) return eng:persistent(values.shape, values, { dtype = values.dtype }) end

local function set_parameters(model)
  for k, p in ipairs((model:parameters())) do p:set_bytes(p.engine:tensor(ramp(p.shape, 0.3 + 1.1 * (k - 1), 0.5), { shape = p.shape }):bytes()) end
end

local function make_sgd(model) return optim.SGD(model, { lr = 0.05 }) end

--- Trains as train() of the script does; returns losses, final parameters and the bytes of both.
local function train(eng, case)
  local model, loss_of = case.make(eng)
  set_parameters(model)
  local inputs = {}
  for i, values in ipairs(case.inputs) do inputs[i] = place(eng, values) end
  local opt = (case.optimizer or make_sgd)(model)
  local schedule = case.schedule and case.schedule(opt)
  local losses, bits = {}, {}
  for i = 1, record.steps do
    local loss = loss_of(model(unpack(inputs)))
    opt:zero_grad()
    loss:backward()
    if case.clip then case.clip(opt.params) end
    opt:step()
    if schedule then schedule:step() end
    losses[i], bits[i] = loss:item(), loss:bytes()
    eng:reset()
  end
  local parameters = {}
  for i, p in ipairs(opt.params) do
    parameters[i] = p:detach():reshape({ -1 }):totable()
    bits[#bits + 1] = p:bytes()
  end
  return losses, parameters, table.concat(bits)
end

local function close(got, want, what)
  assert.equal(#want, #got)
  for i, w in ipairs(want) do
    if not (math.abs(got[i] - w) <= 1e-5 * math.max(1, math.abs(w))) then
      error(("%s %d is %.9g, PyTorch has %.9g"):format(what, i, got[i], w), 2)
    end
  end
end

local X = ramp({ 6, 5 }, 0.2)
local IMAGES = ramp({ 2, 2, 5, 5 }, 0.4)
local ROWS = ramp({ 2, 4, 8 }, 0.4)

local function linear(eng, options) return nn.Linear(eng, 5, 4, options) end

--- A module of one layer that takes options or several inputs.
local function wrap(layer, forward)
  local class = nn.Module "Wrap"
  function class:init() self.layer = layer end
  function class:forward(...) return forward(self.layer, ...) end
  return class()
end

local function attention(eng, options, forward)
  return wrap(nn.MultiheadAttention(eng, 8, 2, options), forward)
end

local function keys(eng)
  return eng:arange(5, nil, nil, "i64"):lt(5 - eng:arange(3, nil, nil, "i64"):view { 3, 1 })
end

-- name -> { what makes the layer, shape of the target, inputs }
local LAYERS = {
  ["linear"] = { linear, { 6, 4 }, X },
  ["linear without bias"] = { function(eng) return linear(eng, { bias = false }) end, { 6, 4 }, X },
  ["embedding"] = { function(eng) return nn.Embedding(eng, 7, 4) end, { 3, 5, 4 }, classes({ 3, 5 }, 7) },
  ["layer norm"] = { function(eng) return nn.Sequential(linear(eng), nn.LayerNorm(eng, 4)) end, { 6, 4 }, X },
  ["rms norm"] = { function(eng) return nn.Sequential(linear(eng), nn.RMSNorm(eng, 4)) end, { 6, 4 }, X },
  ["group norm"] = { function(eng) return nn.Sequential(nn.Conv1d(eng, 2, 6, 3), nn.GroupNorm(eng, 3, 6)) end, { 2, 6, 6 }, ramp({ 2, 2, 8 }, 0.2) },
  ["gelu"] = { function(eng) return nn.Sequential(linear(eng), nn.GELU()) end, { 6, 4 }, X },
  ["gelu tanh"] = { function(eng) return nn.Sequential(linear(eng), nn.GELU { approximate = "tanh" }) end, { 6, 4 }, X },
  ["silu"] = { function(eng) return nn.Sequential(linear(eng), nn.SiLU()) end, { 6, 4 }, X },
  ["relu"] = { function(eng) return nn.Sequential(linear(eng), nn.ReLU()) end, { 6, 4 }, X },
  ["tanh"] = { function(eng) return nn.Sequential(linear(eng), nn.Tanh()) end, { 6, 4 }, X },
  ["sigmoid"] = { function(eng) return nn.Sequential(linear(eng), nn.Sigmoid()) end, { 6, 4 }, X },
  ["swiglu"] = { function(eng) return nn.SwiGLU(eng, 5, 6) end, { 6, 5 }, X },
  ["dropout in eval"] = { function(eng) return nn.Sequential(linear(eng), nn.Dropout(0.5)):eval() end, { 6, 4 }, X },
  ["sequential and residual"] = { function(eng)
    return nn.Residual(nn.LayerNorm(eng, 5), linear(eng), nn.GELU(), nn.Linear(eng, 4, 5))
  end, { 6, 5 }, X },
  ["conv1d"] = { function(eng) return nn.Conv1d(eng, 3, 4, 3, { stride = 2, padding = 2, dilation = 2 }) end, { 2, 4, 5 }, ramp({ 2, 3, 9 }, 0.4) },
  ["conv2d"] = { function(eng) return nn.Conv2d(eng, 2, 3, { 3, 2 }, { stride = { 1, 2 }, padding = { 1, 0 } }) end, { 2, 3, 5, 3 },
    ramp({ 2, 2, 5, 6 }, 0.4) },
  ["conv2d with groups"] = { function(eng) return nn.Conv2d(eng, 4, 6, 3, { padding = 1, groups = 2 }) end, { 2, 6, 4, 4 }, ramp({ 2, 4, 4, 4 }, 0.4) },
  ["max pool"] = { function(eng) return nn.Sequential(nn.Conv2d(eng, 2, 3, 2), nn.MaxPool2d(2, { stride = 1, padding = 1 })) end, { 2, 3, 5, 5 }, IMAGES },
  ["mean pool"] = { function(eng) return nn.Sequential(nn.Conv2d(eng, 2, 3, 2), nn.AvgPool2d(2, { padding = 1 })) end, { 2, 3, 3, 3 }, IMAGES },
  ["max pool 1d"] = { function(eng) return nn.Sequential(nn.Conv1d(eng, 2, 3, 2), nn.MaxPool1d(3)) end, { 2, 3, 3 }, ramp({ 2, 2, 10 }, 0.4) },
  ["mean pool 1d"] = { function(eng) return nn.Sequential(nn.Conv1d(eng, 2, 3, 2), nn.AvgPool1d(3, { stride = 2, padding = 1 })) end, { 2, 3, 5 },
    ramp({ 2, 2, 10 }, 0.4) },
  ["global mean pool"] = { function(eng) return nn.Sequential(nn.Conv2d(eng, 2, 3, 2), nn.GlobalAvgPool()) end, { 2, 3 }, IMAGES },
  ["attention"] = { function(eng) return nn.MultiheadAttention(eng, 8, 2) end, { 2, 4, 8 }, ROWS },
  ["causal attention"] = { function(eng) return attention(eng, nil, function(a, x) return a(x, { causal = true }) end) end, { 2, 4, 8 }, ROWS },
  ["attention with padding"] = { function(eng)
    return attention(eng, nil, function(a, x) return a(x, { causal = true, keys = keys(eng) }) end)
  end, { 3, 5, 8 }, ramp({ 3, 5, 8 }, 0.4) },
  ["cross attention"] = { function(eng) return attention(eng, nil, function(a, x, c) return a(x, { context = c }) end) end, { 2, 4, 8 }, ROWS,
    ramp({ 2, 3, 8 }, 1.4) },
  ["attention without bias"] = { function(eng) return nn.MultiheadAttention(eng, 8, 4, { bias = false }) end, { 2, 4, 8 }, ROWS },
  ["rotary attention"] = { function(eng) return attention(eng, { rotary = true }, function(a, x) return a(x, { causal = true }) end) end, { 2, 4, 8 }, ROWS },
  ["rnn"] = { function(eng) return nn.RNN(eng, 3, 4) end, { 5, 2, 4 }, ramp({ 5, 2, 3 }, 0.4) },
  ["rnn relu"] = { function(eng) return nn.RNN(eng, 3, 4, { activation = "relu", batch_first = true }) end, { 2, 5, 4 }, ramp({ 2, 5, 3 }, 0.4) },
  ["gru"] = { function(eng) return nn.GRU(eng, 3, 4, { layers = 2 }) end, { 5, 2, 4 }, ramp({ 5, 2, 3 }, 0.4) },
  ["lstm"] = { function(eng)
    return wrap(nn.LSTM(eng, 3, 4, { layers = 2 }), function(a, x, h, c) return eng:concat { a(x, h, c) } end)
  end, { 9, 2, 4 }, ramp({ 5, 2, 3 }, 0.4), ramp({ 2, 2, 4 }, 0.6, 0.5), ramp({ 2, 2, 4 }, 0.8, 0.5) },
}

local TARGET, UNIT, LABELS = ramp({ 6, 4 }, 0.9), ramp({ 6, 4 }, 0.9, 0.5, 0.5), classes({ 6 }, 4)
local WEIGHT = { 0.5, 1, 2, 1.5, shape = { 4 } }

local LOSSES = {
  ["cross_entropy"] = function(x, t) return nn.loss.cross_entropy(x, t.labels) end,
  ["cross_entropy smoothed, one class ignored"] = function(x, t)
    return nn.loss.cross_entropy(x, t.labels, { ignore_index = 3, label_smoothing = 0.1 })
  end,
  ["cross_entropy weighted, summed"] = function(x, t) return nn.loss.cross_entropy(x, t.labels, { weight = t.weight, reduction = "sum" }) end,
  ["mse"] = function(x, t) return nn.loss.mse(x, t.target) end,
  ["l1"] = function(x, t) return nn.loss.l1(x, t.target) end,
  ["huber"] = function(x, t) return nn.loss.huber(x, t.target, { delta = 0.3 }) end,
  ["bce_with_logits"] = function(x, t) return nn.loss.bce_with_logits(x, t.unit) end,
  ["bce_with_logits weighted"] = function(x, t) return nn.loss.bce_with_logits(x, t.unit, { pos_weight = t.weight }) end,
  ["kl_div"] = function(x, t) return nn.loss.kl_div(x:log_softmax(), t.target:softmax(), { reduction = "batchmean" }) end,
  ["kl_div of logs"] = function(x, t) return nn.loss.kl_div(x:log_softmax(), t.target:log_softmax(), { log_target = true, reduction = "sum" }) end,
  ["kl_div with zeros"] = function(x, t) return nn.loss.kl_div(x:log_softmax(), t.labels:one_hot(4):to "f32") end,
}

local OPTIMIZERS = {
  ["sgd"] = function(m) return optim.SGD(m, { lr = 0.1 }) end,
  ["sgd with decay"] = function(m) return optim.SGD(m, { lr = 0.1, weight_decay = 0.05 }) end,
  ["sgd with momentum"] = function(m) return optim.SGD(m, { lr = 0.02, momentum = 0.9, weight_decay = 0.01 }) end,
  ["sgd with nesterov"] = function(m) return optim.SGD(m, { lr = 0.02, momentum = 0.9, nesterov = true }) end,
  ["adamw"] = function(m) return optim.AdamW(m, { lr = 0.01 }) end,
  ["adamw with options"] = function(m) return optim.AdamW(m, { lr = 0.02, beta1 = 0.8, beta2 = 0.95, eps = 1e-6, weight_decay = 0.1 }) end,
  ["lion"] = function(m) return optim.Lion(m, { lr = 0.003 }) end,
  ["lion with decay"] = function(m) return optim.Lion(m, { lr = 0.003, beta1 = 0.85, beta2 = 0.95, weight_decay = 0.1 }) end,
}

local CLIPS = {
  norm = function(params) optim.clip_grad_norm(params, 0.1) end,
  value = function(params) optim.clip_grad_value(params, 0.02) end,
}

local SCHEDULES = {
  ["cosine"] = function(opt) return optim.cosine(opt, { steps = 50 }) end,
  ["cosine with warm-up"] = function(opt) return optim.cosine(opt, { steps = 40, warmup = 8, least = 0.001 }) end,
  ["step"] = function(opt) return optim.step(opt, { every = 12, gamma = 0.5 }) end,
  ["step with warm-up"] = function(opt) return optim.step(opt, { every = 12, gamma = 0.5, warmup = 5 }) end,
  ["warm-up"] = function(opt) return optim.warmup(opt, { warmup = 20 }) end,
}

local function two_layers(eng)
  local target = place(eng, TARGET)
  return nn.Sequential(nn.Linear(eng, 5, 6), nn.Tanh(), nn.Linear(eng, 6, 4)), function(y) return nn.loss.mse(y, target) end
end

local GROUPS = { layers = {}, losses = {}, optimizers = {}, clips = {}, schedules = {} }

for name, layer in pairs(LAYERS) do
  GROUPS.layers[name] = { inputs = { unpack(layer, 3) }, make = function(eng)
    local target = place(eng, ramp(layer[2], 0.9))
    return layer[1](eng), function(y) return nn.loss.mse(y, target) end
  end }
end
for name, loss in pairs(LOSSES) do
  GROUPS.losses[name] = { inputs = { X }, make = function(eng)
    local targets = { target = place(eng, TARGET), unit = place(eng, UNIT), labels = place(eng, LABELS), weight = place(eng, WEIGHT) }
    return linear(eng), function(y) return loss(y, targets) end
  end }
end
for name, make in pairs(OPTIMIZERS) do GROUPS.optimizers[name] = { inputs = { X }, make = two_layers, optimizer = make } end
for name, clip in pairs(CLIPS) do GROUPS.clips[name] = { inputs = { X }, make = two_layers, clip = clip } end
for name, schedule in pairs(SCHEDULES) do
  GROUPS.schedules[name] = { inputs = { X }, make = two_layers, optimizer = OPTIMIZERS.adamw, schedule = schedule }
end

local function sorted(map)
  local names = {}
  for name in pairs(map) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local KINDS = {}
engines.each(function(name, open)
  KINDS[#KINDS + 1] = { name = name, open = open, host = engines.is_host(name) }
end)

describe("training agrees with " .. record.made_by, function()
  after_each(engines.close)

  for group, all in pairs(GROUPS) do
    it("in as many " .. group .. " as were recorded", function() assert.same(sorted(record[group]), sorted(all)) end)

    for _, name in ipairs(sorted(all)) do
      it(("in %s: %s"):format(group, name), function()
        local want = record[group][name]
        local bits
        for _, kind in ipairs(KINDS) do
          local losses, parameters, bytes = train(kind.open(), all[name])
          close(losses, want.losses, "loss")
          assert.equal(#want.parameters, #parameters)
          for k, values in ipairs(want.parameters) do close(parameters[k], values, "parameter " .. k .. " element") end
          if kind.host then
            bits = bits or bytes
            assert.is_true(bits == bytes, kind.name .. " gives other bits than cpu")
          end
        end
      end)
    end
  end
end)
