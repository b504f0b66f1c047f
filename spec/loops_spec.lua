-- SPDX-License-Identifier: MIT
-- Training loops, number for number: the hazard loop by recorded gradients, attention under resets, and the trajectories of both on every
-- engine and under every schedule, bit for bit where bits are promised.

local perilune = require "perilune"
local schedule = require "perilune.schedule"
local samples = require "perilune.samples"
local engines = require "spec.support.engines"
local hazard = dofile "examples/hazard_loop.lua"
local attention = dofile "examples/attention_loop.lua"

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

local function config(of, changes) return setmetatable(changes or {}, { __index = of.defaults }) end

local function command(arguments)
  local pipe = assert(io.popen(("'%s' %s 2>&1; echo status $?"):format(launcher, arguments)))
  local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  return output, tonumber(status)
end

describe("hazard loop with recorded gradients", function()
  after_each(engines.close)

  it("is within 1e-6 of the one with written gradients on cpu", function()
    local by_hand = hazard.train(engines.open "cpu", config(hazard, { batches = 6 }))
    local recorded = hazard.train_autograd(engines.open "cpu", config(hazard, { batches = 6 }))
    for _, name in ipairs { "W1", "W2" } do
      for i, row in ipairs(by_hand[name]) do
        for j, want in ipairs(row) do assert.is_true(math.abs(recorded[name][i][j] - want) <= 1e-6) end
      end
    end
    for b, want in ipairs(by_hand.losses) do assert.is_true(math.abs(recorded.losses[b] - want) <= 1e-6 * 4) end
  end)

  engines.each(function(name, open)
    it("gives the bits of cpu on " .. name, function()
      local cpu = hazard.train_autograd(engines.open "cpu", config(hazard))
      local run = hazard.train_autograd(open(), config(hazard))
      assert.is_true((hazard.compare(run, cpu)))
      assert.equal(0, run.stats.pins)
      if not engines.is_host(name) then return end
      for _, what in ipairs { "W1", "W2", "losses" } do assert.same(cpu[what], run[what]) end
    end)
  end)

  it("runs as a script", function()
    local output, status = command "examples/hazard_loop.lua --engine stress --autograd"
    assert.equal(0, status, output)
    assert.matches("autograd  loss per batch", output, 1, true)
    assert.is_nil(output:match "FAIL")
  end)
end)

-- The same training by PyTorch 1.13.0 in double: losses per batch and the diagonals of the parameters.
local TORCH = {
  losses = { 35.18834077081754, 26.64146944168919, 26.876908955828434, 37.802699033682714 },
  Wq = { 0.2993251105640322, 0.3065340620159001, 0.31890375458913517, 0.3422546400899189, 0.3640195697248144, 0.374098680373474,
    0.38161847130119797, 0.3997739047399219 },
  Wk = { 0.18795732983207822, 0.19226821603286476, 0.2099432656415069, 0.2390190162481034, 0.2585111952860012, 0.26324227770140485,
    0.272428833034835, 0.2977731036212337 },
  Wv = { 0.5327402879130696, 0.570054761566467, 0.5863250263741947, 0.5957318998950597, 0.6095870854058317, 0.6219096764802635,
    0.6336322466540671, 0.6470194857460684 },
}

describe("attention under resets", function()
  after_each(engines.close)

  engines.each(function(name, open)
    it("trains as PyTorch does on " .. name, function()
      local run = attention.train(open(), config(attention))
      for b, want in ipairs(TORCH.losses) do assert.is_true(math.abs(run.losses[b] - want) < 1e-5 * want) end
      for _, what in ipairs { "Wq", "Wk", "Wv" } do
        for i, want in ipairs(TORCH[what]) do assert.is_true(math.abs(run[what][i][i] - want) < 1e-6) end
      end
      assert.equal(28, run.stats.resets)
      assert.equal(0, run.stats.pins)
    end)

    it("gives the bits of cpu on " .. name, function()
      local cpu = attention.train(engines.open "cpu", config(attention))
      local run = attention.train(open(), config(attention))
      assert.is_true((attention.compare(run, cpu)))
      if not engines.is_host(name) then return end
      for _, what in ipairs { "Wq", "Wk", "Wv", "losses" } do assert.same(cpu[what], run[what]) end
    end)
  end)

  engines.each_arena(function(name, open)
    it("without the saves raises on " .. name .. " and names op, place and reset", function()
      local ok, message = pcall(attention.train, open { places = true }, config(attention, { twin = "unsaved" }))
      assert.is_false(ok)
      assert.matches("mul: argument 'b' is stale: made at [^ ]*attention_loop.lua:%d+", message)
      assert.matches("reset at [^ ]*attention_loop.lua:%d+", message)
    end)

    it("without the saves is NaN on " .. name .. " when stale reads are let through", function()
      local eng = open { stale = "allow", poison = true }
      local ran, run = pcall(attention.train, eng, config(attention, { twin = "unsaved" }))
      if ran then
        assert.is_false((attention.compare(run, attention.train(engines.open "cpu", config(attention)))))
        assert.is_false(run.finite)
      else
        assert.matches("stale", run, 1, true)
      end
    end)
  end)

  it("runs as a script, on every engine, and exits accordingly", function()
    local output, status = command "examples/attention_loop.lua --all"
    assert.equal(0, status, output)
    for _, e in ipairs(perilune.engines()) do assert.matches(e.kind, output, 1, true) end
    output, status = command "examples/attention_loop.lua --engine stress --twin unsaved"
    assert.equal(1, status, output)
    assert.matches("FAIL", output, 1, true)
    for _, wrong in ipairs { "--tea", "--twin tea", "--epochs 0", "--engine tea", "--rate" } do
      output, status = command("examples/attention_loop.lua " .. wrong)
      assert.equal(2, status, output)
    end
  end)
end)

-- Trajectories: a few steps of training in which each step's passes run under a schedule. Parameters and losses are those of `cpu` in peace.

local function ramp(phase, n)
  local values = {}
  for i = 0, n - 1 do values[i + 1] = math.sin(phase + 0.7 * i) end
  return values
end

local function array(shape, values, dtype)
  values.shape, values.dtype = shape, dtype or "f32"
  return samples.decode(samples.encode(values), shape, values.dtype)
end

local STEPS, RATE = 4, 0.05

--- A loop as steps of a case: its parameters, its data at a step and for a set of samples, and its loss.
local loops = {
  hazard = {
    params = { { "W1", { 8, 8 }, 0.31 }, { "W2", { 8, 4 }, 0.17 } },
    data = function(step, set)
      return { array({ 1, 8 }, ramp(0.41 + 0.07 * (4 * step + set), 8)), array({ 1 }, { (step + set) % 4 + 1 }, "i64") }
    end,
    run = function() return function(_, W1, W2, x, target) return x:matmul(W1):tanh():matmul(W2):cross_entropy(target) end end,
  },
  attention = {
    params = { { "Wq", { 8, 8 }, 0.31 }, { "Wk", { 8, 8 }, 0.17 }, { "Wv", { 8, 8 }, 0.59 } },
    data = function(step, set)
      local classes = {}
      for r = 1, 6 do classes[r] = (step + set + r) % 8 + 1 end
      return { array({ 6, 8 }, attention.input(attention.defaults, 3 * step + set)), array({ 6 }, classes, "i64") }
    end,
    run = function()
      local node, residual_rms = attention.nodes()
      return function(_, Wq, Wk, Wv, x, target) return residual_rms(x, node(x, Wq, Wk, Wv)):cross_entropy(target) end
    end,
  },
}

--- The bytes of all losses and parameters on the way.
local function trajectory(eng, loop, plan)
  local state, trace = {}, {}
  for set = 1, 2 do
    state[set] = {}
    for k, p in ipairs(loop.params) do state[set][k] = array(p[2], ramp(p[3] + set, 64)) end
    for k, p in ipairs(loop.params) do state[set][k] = array(p[2], { unpack(state[set][k], 1, p[2][1] * p[2][2]) }) end
  end
  local run = loop.run()
  for step = 1, STEPS do
    local case = { op = "loop", name = "loop", rtol = 0, grad_rtol = 0, run = run, inputs = function(set)
      local list = {}
      for k, p in ipairs(loop.params) do list[k] = { array = state[set][k], grad = true, slot = p[1] } end
      for _, data in ipairs(loop.data(step, set)) do list[#list + 1] = { array = data, grad = false } end
      return list
    end }
    local outcome = schedule.run(eng, case, plan)
    assert(not outcome.trouble, outcome.trouble)
    for _, t in ipairs(outcome.tensors) do
      trace[#trace + 1] = t.name .. " " .. t.copy.bytes
      local set, slot = t.name:match "^set (%d) gradient of (%w+)$"
      for k, p in ipairs(loop.params) do
        if slot == p[1] then
          local w = eng:persistent(p[2], samples.layouts.contiguous.make(eng, state[tonumber(set)][k]))
          local g = samples.layouts.contiguous.make(eng, samples.decode(t.copy.bytes, t.copy.shape, t.copy.dtype))
          eng:sgd(w, g, { lr = RATE })
          state[tonumber(set)][k] = samples.read(w)
          trace[#trace + 1] = p[1] .. " " .. w:bytes()
        end
      end
    end
    eng:reset()
  end
  return trace
end

describe("the trajectory of the", function()
  after_each(engines.close)

  local PEACE = { name = "peace", run = function(s) s:forward_all() s:backward_all() end }

  for name, loop in pairs(loops) do
    local reference

    lazy_setup(function()
      local cpu = perilune.engine { "cpu", arena = 0, poison = false }
      reference = trajectory(cpu, loop, PEACE)
      cpu:close()
    end)

    it(name .. " loop moves", function()
      assert.is_true(#reference > 8 * STEPS)
      local seen = {}
      for _, line in ipairs(reference) do
        assert.is_nil(seen[line])
        seen[line] = true
      end
    end)

    for fault, plan in pairs { double_count = "no-reset", unpin_early = "reset-between-fwd-bwd", draw_frozen = false } do
      it(("%s loop %s with the fault %s"):format(name, plan and "is stopped or another" or "is the same", fault), function()
        local fault_point = require("perilune.core").library.fault
        fault_point(fault, true)
        local ran, got = pcall(trajectory, engines.open("stress", { arena = "1MiB" }), loop, schedule.load(plan or "no-reset"))
        fault_point(fault, false)
        if not plan then return assert.same(reference, got) end -- neither loop draws numbers
        if ran then assert.is_not.same(reference, got) else assert.matches("loop", got) end
      end)
    end

    for _, shipped in ipairs(schedule.shipped) do
      it(("%s loop is the same on stress under %s"):format(name, shipped), function()
        local plan = schedule.load(shipped)
        local spec = { arena = "1MiB" }
        for k, v in pairs(plan.engine or {}) do spec[k] = v end
        local on_report = require("perilune.report").on_report
        local heard = on_report(false)
        local ok, got = pcall(trajectory, engines.open("stress", spec), loop, plan)
        on_report(heard)
        assert.is_true(ok, got)
        assert.same(reference, got)
      end)
    end
  end
end)
