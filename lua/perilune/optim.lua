-- SPDX-License-Identifier: MIT
-- optim: optimizers, gradient clipping and learning rate schedules. All state is persistent, all updates are in place, and what varies from
-- step to step (rate, step count) lies in tensors of one f64: a step may be captured, and its replays go on counting.
--
--   local opt = optim.AdamW(model, { lr = 1e-3, weight_decay = 0.1 })
--   local schedule = optim.cosine(opt, { steps = 1000, warmup = 100 })
--   for ... do
--     opt:zero_grad()
--     loss():backward()
--     optim.clip_grad_norm(opt.params, 1)
--     opt:step()
--     schedule:step()
--   end

local core = require "perilune.core"
local caller = require "perilune.caller"
local check = require "perilune.nn.check"
local is_module = require("perilune.nn.module").is_module

local T, A, ops = core.tensor, core.autograd, core.ops
local fail = caller.fail
local optim = {}

local F64 = { dtype = "f64" }

--- The parameters of a module or of a list, checked.
local function parameters(what, given)
  local list = is_module(given) and given:parameters() or given
  if type(list) ~= "table" then fail("%s: a module or a list of parameters was expected, got %s", what, type(given)) end
  local seen, copy, eng = {}, {}, nil
  for i, p in ipairs(list) do
    if not T.is_tensor(p) then fail("%s: parameter %d is a %s, not a tensor", what, i, type(p)) end
    if T.home(p) ~= "persistent" or not A.requires_grad(p) then
      fail("%s: parameter %d is no parameter: it must be persistent and require grad (eng:param)", what, i)
    end
    if seen[p] then fail("%s: parameter %d was given before", what, i) end
    eng, seen[p], copy[i] = eng or T.engine(p), true, p
    if T.engine(p) ~= eng then fail("%s: parameter %d is on another engine than the first", what, i) end
  end
  if not eng then fail("%s: there are no parameters", what) end
  return copy, eng
end

---@class perilune.Optimizer
---@field params userdata[]
---@field lr userdata  the learning rate, a persistent f64
---@field steps userdata  how many steps were made, a persistent f64
local Optimizer = {}

--- Writes 0 into all gradients.
function Optimizer:zero_grad()
  for _, p in ipairs(self.params) do ops.zero(p.grad) end
end

--- One step: all parameters move by their gradients.
function Optimizer:step()
  self.engine:no_grad(function()
    ops.add(self.steps, 1, self.steps)
    for i, p in ipairs(self.params) do self.update(self, p, p.grad, self.slots[i]) end
  end)
end

--- Sets the learning rate; captured steps see it, too.
---@param lr number
function Optimizer:set_lr(lr)
  check.number("set_lr", "lr", lr, 0, math.huge)
  ops.fill(self.lr, lr)
end

--- What a file of the optimizer holds: its tensors by name; they are its own, not copies.
---@return table<string, userdata>
function Optimizer:state()
  local state = { lr = self.lr, steps = self.steps }
  for i, slot in ipairs(self.slots) do
    for name, t in pairs(slot) do state[("%s.%d"):format(name, i)] = t end
  end
  return state
end

--- Writes tensors (of any engine) into those of the same names; all must agree in shape and dtype, else nothing changes.
local function load(self, state)
  if type(state) ~= "table" then fail("load: a table of tensors by name was expected, got %s", type(state)) end
  local own = self:state()
  for name, t in pairs(own) do
    local given = state[name]
    if not T.is_tensor(given) then fail("load: '%s' is missing", name) end
    local want, got = check.shape_text(T.shape(t)), check.shape_text(T.shape(given))
    if want ~= got then fail("load: '%s' has shape %s, expected %s", name, got, want) end
    if T.dtype(t) ~= T.dtype(given) then fail("load: '%s' is %s, expected %s", name, T.dtype(given), T.dtype(t)) end
  end
  for name in pairs(state) do
    if not own[name] then fail("load: '%s' is not known here", tostring(name)) end
  end
  for name, t in pairs(own) do T.set_bytes(t, T.bytes(state[name])) end
end

--- Goes on from a state: writes its tensors (of any engine) into those of the same names; all must agree in shape and dtype, else nothing changes.
---@type fun(self, state: table<string, userdata>)
Optimizer.load = load

--- An optimizer: its name, options, the names of what it keeps for each parameter, and update(self, p, g, slot).
local function optimizer(name, defaults, slots_of, update)
  local methods = setmetatable({ update = update }, { __index = Optimizer })
  local meta = { __index = methods, __tostring = function(self) return ("%s of %d parameters"):format(name, #self.params) end }
  return function(given, options)
    options = check.options(name, options, defaults)
    check.number(name, "lr", options.lr, 0, math.huge)
    check.number(name, "weight_decay", options.weight_decay, 0, math.huge)
    local names = slots_of(options)
    local list, eng = parameters(name, given)
    local self = { params = list, engine = eng, options = options, slots = {} }
    for i, p in ipairs(list) do
      self.slots[i] = {}
      for _, slot in ipairs(names) do self.slots[i][slot] = eng:persistent(T.shape(p), nil, { dtype = T.dtype(p) }) end
    end
    self.lr, self.steps = eng:persistent({}, options.lr, F64), eng:persistent({}, 0, F64)
    return setmetatable(self, meta)
  end
end

--- Stochastic gradient descent as PyTorch's: with momentum b = momentum * b + g and p -= lr * b, or with nesterov p -= lr * (g + momentum * b).
--- Options: lr (0.01), momentum (0), nesterov (false), weight_decay (0, added to g as decay * p).
---@type fun(params: perilune.Module|userdata[], options?: table): perilune.Optimizer
optim.SGD = optimizer("SGD", { lr = 0.01, momentum = 0, nesterov = false, weight_decay = 0 },
  function(o)
    check.number("SGD", "momentum", o.momentum, 0, 1)
    if o.nesterov and o.momentum == 0 then fail("SGD: nesterov needs a momentum") end
    return o.momentum > 0 and { "momentum" } or {}
  end,
  function(self, p, g, slot)
    local o, b = self.options, slot.momentum
    if o.weight_decay > 0 then g = g + p * o.weight_decay end
    if b then
      ops.mul(b, o.momentum, b)
      ops.add(b, g, b)
      g = o.nesterov and g + b * o.momentum or b
    end
    ops.sgd(p, g, self.lr)
  end)

--- AdamW (Loshchilov and Hutter 2019). Options: lr (0.001), beta1 (0.9), beta2 (0.999), eps (1e-8), weight_decay (0.01).
---@type fun(params: perilune.Module|userdata[], options?: table): perilune.Optimizer
optim.AdamW = optimizer("AdamW", { lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01 },
  function(o)
    check.number("AdamW", "beta1", o.beta1, 0, 1)
    check.number("AdamW", "beta2", o.beta2, 0, 1)
    check.number("AdamW", "eps", o.eps, 0, math.huge)
    return { "m", "v" }
  end,
  function(self, p, g, slot)
    local o = self.options
    ops.adamw(p, g, slot.m, slot.v, self.steps, self.lr, o.beta1, o.beta2, o.eps, o.weight_decay)
  end)

--- Lion (Chen et al. 2023): p -= lr * (sign(beta1 * m + (1 - beta1) * g) + decay * p), then m = beta2 * m + (1 - beta2) * g.
--- Options: lr (0.0001), beta1 (0.9), beta2 (0.99), weight_decay (0).
---@type fun(params: perilune.Module|userdata[], options?: table): perilune.Optimizer
optim.Lion = optimizer("Lion", { lr = 0.0001, beta1 = 0.9, beta2 = 0.99, weight_decay = 0 },
  function(o)
    check.number("Lion", "beta1", o.beta1, 0, 1)
    check.number("Lion", "beta2", o.beta2, 0, 1)
    return { "m" }
  end,
  function(self, p, g, slot)
    local o, m = self.options, slot.m
    local direction = (m * o.beta1 + g * (1 - o.beta1)):sign()
    if o.weight_decay > 0 then direction = direction + p * o.weight_decay end
    ops.sgd(p, direction, self.lr)
    ops.mul(m, o.beta2, m)
    ops.add(m, g * (1 - o.beta2), m)
  end)

-- Gradients -----------------------------------------------------------------------------------------

--- Scales all gradients so that the 2-norm of all together is at most `most`; returns that norm as it was, a tensor. Numbers are PyTorch's:
--- the factor is most / (norm + 1e-6) where that is below 1.
---@param given perilune.Module|userdata[]
---@param most number
function optim.clip_grad_norm(given, most)
  local list, eng = parameters("clip_grad_norm", given)
  check.number("clip_grad_norm", "the largest norm", most, 0, math.huge)
  return eng:no_grad(function()
    local sum
    for _, p in ipairs(list) do
      local square = p.grad:square():sum()
      sum = sum and sum + square or square
    end
    local norm = sum:sqrt()
    local factor = (most / (norm + 1e-6)):clamp(nil, 1)
    for _, p in ipairs(list) do ops.mul(p.grad, factor, p.grad) end
    return norm
  end)
end

--- Clamps all gradients to -most .. most.
function optim.clip_grad_value(given, most)
  local list, eng = parameters("clip_grad_value", given)
  check.number("clip_grad_value", "the largest value", most, 0, math.huge)
  eng:no_grad(function()
    for _, p in ipairs(list) do ops.clamp(p.grad, -most, most, p.grad) end
  end)
end

-- Schedules -----------------------------------------------------------------------------------------
-- A schedule takes the optimizer's rate at the time when it is made as the one to start from: make it before loading a state.

---@class perilune.LrSchedule
---@field done userdata  how many steps were made, a persistent f64
local Schedule = {}
local schedule_meta = { __index = Schedule }

local function apply(self)
  self.engine:no_grad(function()
    local factor = self.factor(self.done)
    if self.warmup > 0 then -- a line from 1 / warmup at the first step to 1
      factor = factor * ((self.done + 1) * (1 / self.warmup)):clamp(nil, 1)
    end
    ops.mul(factor, self.base, self.optimizer.lr)
  end)
end

--- After each step of the optimizer: sets the rate of the next.
function Schedule:step()
  ops.add(self.done, 1, self.done)
  apply(self)
end

--- What a file of the schedule holds.
---@return table<string, userdata>
function Schedule:state() return { done = self.done } end

--- Goes on from a state.
---@type fun(self, state: table<string, userdata>)
Schedule.load = load

local function schedule(what, optimizer_given, options, defaults, factor_of)
  defaults.warmup = 0
  options = check.options(what, options, defaults)
  if type(optimizer_given) ~= "table" or not T.is_tensor(optimizer_given.lr) then fail("%s: argument 1 is an optimizer", what) end
  check.count(what, "warmup", options.warmup, 0)
  local self = { optimizer = optimizer_given, engine = optimizer_given.engine, warmup = options.warmup, base = T.item(optimizer_given.lr) }
  self.factor = factor_of(options, self.base)
  self.done = self.engine:persistent({}, 0, F64)
  setmetatable(self, schedule_meta)
  apply(self)
  return self
end

--- From the optimizer's rate down to `least` (0) along half a cosine, within `steps` after the warm-up; then it stays. Options: steps, warmup (0), least.
function optim.cosine(opt, options)
  return schedule("cosine", opt, options, { steps = check.none, least = 0 }, function(o, base)
    local n = check.count("cosine", "steps", o.steps) - o.warmup
    if n < 1 then fail("cosine: %d steps leave none after a warm-up of %d", o.steps, o.warmup) end
    local low = base > 0 and o.least / base or 0
    return function(done)
      local t = ((done - o.warmup) * (1 / n)):clamp(0, 1)
      return (t * math.pi):cos() * ((1 - low) / 2) + (1 + low) / 2
    end
  end)
end

--- The optimizer's rate times gamma (0.1) after each `every` steps. Options: every, gamma, warmup (0).
function optim.step(opt, options)
  return schedule("step", opt, options, { every = check.none, gamma = 0.1 }, function(o)
    local every = check.count("step", "every", o.every)
    local gamma = check.number("step", "gamma", o.gamma, 1e-30, math.huge)
    return function(done) return opt.engine:pow(gamma, (done / every):floor()) end
  end)
end

--- The optimizer's rate after a line up to it. Options: warmup.
function optim.warmup(opt, options)
  return schedule("warmup", opt, options, {}, function(o)
    check.count("warmup", "warmup", o.warmup)
    return function(done) return done * 0 + 1 end
  end)
end

return optim
