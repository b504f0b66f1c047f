-- SPDX-License-Identifier: MIT
-- Optimizers and schedules: where their state lives, captured steps, state that continues bit for bit, clipping, wrong arguments.
-- Their numbers: spec/nn/training_spec.lua.

local nn = require "perilune.nn"
local optim = require "perilune.optim"
local engines = require "spec.support.engines"

local function message_of(fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected")
  return message
end

local MAKERS = {
  sgd = function(m) return optim.SGD(m, { lr = 0.05, momentum = 0.9, nesterov = true, weight_decay = 0.01 }) end,
  adamw = function(m) return optim.AdamW(m, { lr = 0.01 }) end,
  lion = function(m) return optim.Lion(m, { lr = 0.01, weight_decay = 0.1 }) end,
}

local SCHEDULES = {
  sgd = function(opt) return optim.cosine(opt, { steps = 9, warmup = 3, least = 0.001 }) end,
  adamw = function(opt) return optim.step(opt, { every = 3, gamma = 0.5 }) end,
  lion = function(opt) return optim.warmup(opt, { warmup = 4 }) end,
}

--- A model with dropout, its optimizer and schedule, and a step.
local function training(eng, kind)
  local t = { model = nn.Sequential(nn.Linear(eng, 3, 5), nn.Dropout(0.2), nn.GELU(), nn.Linear(eng, 5, 2)) }
  t.optimizer = MAKERS[kind](t.model)
  t.schedule = SCHEDULES[kind](t.optimizer)
  local x = eng:persistent({ 4, 3 }, { 1, -2, 3, 0.5, 0, 1, -1, 2, 2, 0.3, 0.2, 0.1 })
  local y = eng:persistent({ 4, 2 }, { 1, 0, 0, 1, 1, 1, 0, 0 })
  function t.step()
    local loss = nn.loss.bce_with_logits(t.model(x), y)
    t.optimizer:zero_grad()
    loss:backward()
    optim.clip_grad_norm(t.model, 0.5)
    t.optimizer:step()
    t.schedule:step()
    return loss
  end
  function t.bits()
    local all = {}
    for _, part in ipairs { t.model, t.optimizer, t.schedule } do
      local names = {}
      for name in pairs(part:state()) do names[#names + 1] = name end
      table.sort(names)
      for _, name in ipairs(names) do all[#all + 1] = name .. part:state()[name]:bytes() end
    end
    return table.concat(all)
  end
  return t
end

describe("optimizers", function()
  after_each(engines.close)

  for _, kind in ipairs { "sgd", "adamw", "lion" } do
    engines.each(function(name, open)
      it(("%s on %s keeps its state persistent and in place, over resets"):format(kind, name), function()
        local eng = open { seed = 5 }
        local t = training(eng, kind)
        local homes = {}
        for part, state in pairs { o = t.optimizer:state(), s = t.schedule:state(), m = t.model:state() } do
          for key, tensor in pairs(state) do
            assert.equal("persistent", tensor.home)
            homes[part .. key] = tensor:address()
          end
        end
        for _ = 1, 3 do
          t.step()
          eng:reset()
        end
        for part, state in pairs { o = t.optimizer:state(), s = t.schedule:state(), m = t.model:state() } do
          for key, tensor in pairs(state) do assert.equal(homes[part .. key], tensor:address()) end
        end
        assert.equal(3, t.optimizer.steps:item())
        assert.equal(0, eng:stats().pins)
      end)

      it(("%s on %s gives the same bits captured and eager"):format(kind, name), function()
        local eager, replayed = training(open { seed = 5 }, kind), training(open { seed = 5 }, kind)
        local before = replayed.bits()
        local captured, loss = replayed.model["1"].weight.engine:capture(replayed.step)
        assert.equal(before, replayed.bits())
        for i = 1, 10 do
          local want = eager.step()
          captured:replay()
          assert.equal(want:bytes(), loss:bytes(), "step " .. i)
        end
        assert.equal(eager.bits(), replayed.bits())
        assert.is_true(eager.bits() ~= before)
      end)

      it(("%s on %s continues from its state bit for bit"):format(kind, name), function()
        local first_engine, second_engine = open { seed = 5 }, open { seed = 6 }
        local first, second = training(first_engine, kind), training(second_engine, kind)
        for _ = 1, 5 do first.step() end
        second.model:load(first.model:state())
        second.optimizer:load(first.optimizer:state())
        second.schedule:load(first.schedule:state())
        second_engine:rng(first_engine:rng())
        for _ = 1, 5 do assert.equal(first.step():bytes(), second.step():bytes()) end
        assert.equal(first.bits(), second.bits())
      end)
    end)
  end

  engines.each(function(name, open)
    it("follow a schedule to its end on " .. name, function()
      local eng = open()
      local model = nn.Linear(eng, 2, 2)
      local opt = optim.SGD(model, { lr = 1 })
      local schedule = optim.cosine(opt, { steps = 6, warmup = 2, least = 0.1 })
      local rates = {}
      for i = 1, 9 do
        rates[i] = opt.lr:item()
        schedule:step()
      end
      for i, want in ipairs { 0.5, 1, 1, 0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2, 0.55, 0.1 + 0.9 * (1 - math.cos(math.pi / 4)) / 2, 0.1, 0.1, 0.1 } do
        assert.is_true(math.abs(rates[i] - want) < 1e-12, ("rate %d is %.17g"):format(i, rates[i]))
      end
      opt:set_lr(0.25)
      assert.equal(0.25, opt.lr:item())
    end)

    it("clip gradients and tell the norm on " .. name, function()
      local eng = open()
      local a, b = eng:param({ 2 }, 1), eng:param({ 2 }, 1)
      a.grad, b.grad = eng:tensor { 3, 0 }, eng:tensor { 0, -4 }
      assert.equal(5, optim.clip_grad_norm({ a, b }, 10):item())
      assert.same({ 3, 0 }, a.grad:totable())
      assert.equal(5, optim.clip_grad_norm({ a, b }, 1):item())
      assert.is_true(math.abs(a.grad:get(1) - 0.6) < 1e-6 and math.abs(b.grad:get(2) + 0.8) < 1e-6)
      optim.clip_grad_value({ a, b }, 0.5)
      assert.same({ 0.5, 0, 0, -0.5 }, { a.grad:get(1), a.grad:get(2), b.grad:get(1), b.grad:get(2) })
    end)

    it("refuse wrong arguments on " .. name .. " and change nothing", function()
      local eng = open()
      local p, q = eng:param({ 2 }, 1), engines.open("cpu"):param({ 2 }, 1)
      local opt = optim.AdamW { p }
      for text, fn in pairs {
        ["SGD: there are no parameters"] = function() optim.SGD({}) end,
        ["SGD: a module or a list of parameters was expected, got number"] = function() optim.SGD(3) end,
        ["SGD: parameter 1 is no parameter: it must be persistent and require grad (eng:param)"] = function() optim.SGD { eng:persistent { 2 } } end,
        ["SGD: parameter 2 is a number, not a tensor"] = function() optim.SGD { p, 3 } end,
        ["SGD: parameter 2 was given before"] = function() optim.SGD { p, p } end,
        ["SGD: parameter 2 is on another engine than the first"] = function() optim.SGD { p, q } end,
        ["SGD: nesterov needs a momentum"] = function() optim.SGD({ p }, { nesterov = true }) end,
        ["SGD: momentum is a number from 0 to below 1, got 1"] = function() optim.SGD({ p }, { momentum = 1 }) end,
        ["SGD: lr is a number from 0 to below inf, got -1"] = function() optim.SGD({ p }, { lr = -1 }) end,
        ["AdamW: beta2 is a number from 0 to below 1, got nan"] = function() optim.AdamW({ p }, { beta2 = 0 / 0 }) end,
        ["Lion: there is no option 'beta3'"] = function() optim.Lion({ p }, { beta3 = 1 }) end,
        ["cosine: steps is a whole number of at least 1, got nil"] = function() optim.cosine(opt) end,
        ["cosine: 5 steps leave none after a warm-up of 5"] = function() optim.cosine(opt, { steps = 5, warmup = 5 }) end,
        ["step: argument 1 is an optimizer"] = function() optim.step({}, { every = 3 }) end,
        ["step: gamma is a number from 1e-30 to below inf, got 0"] = function() optim.step(opt, { every = 3, gamma = 0 }) end,
        ["warmup: warmup is a whole number of at least 0, got -1"] = function() optim.warmup(opt, { warmup = -1 }) end,
        ["load: 'lr' is missing"] = function() opt:load { steps = opt.steps, ["m.1"] = opt.slots[1].m, ["v.1"] = opt.slots[1].v } end,
        ["clip_grad_norm: the largest norm is a number"] = function() optim.clip_grad_norm({ p }) end,
      } do
        local message = message_of(fn)
        assert.matches(text, message, 1, true)
        assert.matches("^spec/nn/optim_spec.lua:%d+: ", message)
      end
      local state = opt:state()
      state["m.1"] = eng:persistent { 3 }
      assert.matches("load: 'm.1' has shape (3), expected (2)", message_of(opt.load, opt, state), 1, true)
      state["m.1"] = eng:persistent({ 2 }, 1, { dtype = "f64" })
      assert.matches("load: 'm.1' is f64, expected f32", message_of(opt.load, opt, state), 1, true)
      state["m.1"], state.more = opt.slots[1].m, opt.lr
      assert.matches("load: 'more' is not known here", message_of(opt.load, opt, state), 1, true)
      assert.equal(0, opt.steps:item())
      opt:step()
      assert.equal(1, opt.steps:item())
    end)
  end)
end)
