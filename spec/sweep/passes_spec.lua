-- SPDX-License-Identifier: MIT
-- Backwards that are remembered (src/autograd/pass.h): through every op again and again with new values, bits are those of an engine that
-- remembers nothing; graphs that only look alike are told apart; and every check of a backward still holds.

local perilune = require "perilune"
local samples = require "perilune.samples"
local engines = require "spec.support.engines"
local sweep = require "spec.support.sweep"

local LIMIT = 600
local ROUNDS = 5

local function float(t) return perilune.is_tensor(t) and t.dtype:match "^f" end

--- The arguments with one more op in front of each leaf, so that graphs have several nodes.
local function through(args, leaves, n)
  local new = {}
  for k = 1, n do new[k] = leaves[k] and leaves[k] * 1.25 or args[k] end
  return new
end

--- A sample's op with all its operands as leaves, whose values each round replaces: gradients and losses after some rounds.
local function train(eng, row, sample, dtype)
  local leaves, seen = {}, {}
  for round = 1, ROUNDS do
    if row.random then eng:rng { 7, round } end
    local values = samples.values(row, sample, { dtype = dtype, seed = round })
    local args = samples.build(eng, row, sample, values)
    for k = 1, values.n do
      if float(args[k]) then
        if leaves[k] then
          eng:no_grad(function() leaves[k]:copy(args[k]) end)
        else
          leaves[k] = eng:param(args[k].shape, args[k], { dtype = args[k].dtype })
        end
      end
    end
    if not next(leaves) then return nil end
    local loss
    for i, r in ipairs(samples.call(eng, row, through(args, leaves, values.n))) do
      if float(r) and r:requires_grad() then
        local part = (r:to "f64" * (0.5 + 0.25 * i)):sum()
        loss = loss and loss + part or part
      end
    end
    if not loss then return nil end
    loss:backward()
    seen[#seen + 1] = loss:bytes()
    eng:reset()
  end
  for k, leaf in pairs(leaves) do seen[#seen + 1] = leaf.grad and leaf.grad:bytes() or "none " .. k end
  return seen
end

describe("backwards through", function()
  local remembers, fresh

  setup(function()
    remembers = engines.open("cpu", { arena = "64MiB" })
    fresh = engines.open("cpu", { arena = "64MiB", plans = false })
  end)
  teardown(engines.close)

  local ran, passed = 0, 0
  for _, row in ipairs(sweep.rows) do
    if row.differentiable and not row.inplace and #samples.of(row) > 0 then
      it(row.name, function()
        sweep.each(row, LIMIT, function(sample, dtype, _, what)
          if not dtype:match "^f" then return end
          local before = remembers:stats().passed
          local ok, got = pcall(train, remembers, row, sample, dtype)
          local also, want = pcall(train, fresh, row, sample, dtype)
          assert.equal(also, ok, what .. ": an error on one engine only: " .. tostring(not ok and got or want))
          if not ok or not want then return end
          assert.same(want, got, what)
          ran = ran + 1
          if remembers:stats().passed > before then passed = passed + 1 end
        end)
      end)
    end
  end

  it("most ops came from memory", function() -- not those without elements, nor with draws
    assert.is_true(ran > 1000)
    assert.is_true(passed > 0.75 * ran, passed .. " of " .. ran)
  end)
end)

describe("a remembered backward", function()
  after_each(engines.close)

  local function open() return engines.open("cpu", { arena = "1MiB" }) end

  --- fn(eng, round) makes a loss from leaves; ran on both kinds of engines, which must give the same numbers.
  local function both(make, rounds, none)
    local numbers = {}
    for i, options in ipairs { { arena = "1MiB" }, { arena = "1MiB", plans = false } } do
      local eng = engines.open("cpu", options)
      local leaves, fn = make(eng)
      local list = {}
      for round = 1, rounds or 8 do
        local loss = fn(round)
        loss:backward()
        list[#list + 1] = loss:item()
        eng:reset()
      end
      for _, leaf in ipairs(leaves) do list[#list + 1] = leaf.grad:bytes() end
      numbers[i] = list
      if i == 1 then assert.equal(not none, eng:stats().passed > 0) end
    end
    assert.same(numbers[2], numbers[1])
  end

  it("tells a tensor saved twice from two alike", function()
    both(function(eng)
      local w = eng:param({ 3 }, { 1, 2, 3 })
      return { w }, function(round)
        local x, y = eng:tensor { round, 2, 3 }, eng:tensor { 4, round, 6 }
        if round % 3 == 0 then y = x end
        return ((w * x):tanh() * y):sum()
      end
    end, 18)
  end)

  it("tells views of one block from each other", function()
    both(function(eng)
      local all = eng:persistent({ 4, 3 }, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 })
      local w = eng:param({ 3 }, { 1, 2, 3 })
      return { w }, function(round)
        local i, j = round % 4 + 1, (round * 3) % 4 + 1
        return ((w * all[i]):sin() * all[j]):sum()
      end
    end, 16, true)
  end)

  it("tells which leaf an operand is", function()
    both(function(eng)
      local a, b = eng:param({ 3 }, { 1, 2, 3 }), eng:param({ 3 }, { 3, 2, 1 })
      return { a, b }, function(round)
        local x = eng:tensor { round, 1, 2 }
        if round % 3 == 0 then return (a * x):mul(b):sum() end
        if round % 3 == 1 then return (b * x):mul(a):sum() end
        return (a * x):mul(a):sum() + (b * 0):sum()
      end
    end, 18)
  end)

  it("tells orders of the same ops apart", function()
    both(function(eng)
      local w = eng:param({ 3 }, { 0.1, 0.2, 0.3 })
      return { w }, function(round)
        local h = w * eng:tensor { round, 1, 2 }
        local s, c = h:sin(), h:cos()
        if round % 2 == 0 then return ((s * c) * s):sum() end
        return ((s * c) * c):sum()
      end
    end, 12)
  end)

  it("tells which result an operand is where nothing is saved", function()
    both(function(eng)
      local w = eng:param({ 3 }, { 0.1, 0.2, 0.3 })
      return { w }, function(round)
        local a, b = w * eng:tensor { round, 1, 2 }, w * eng:tensor { 3, round, 1 }
        local c = a + b
        if round % 3 == 0 then return (c + a):sum() end
        if round % 3 == 1 then return (c + b):sum() end
        return (a + c):sum()
      end
    end, 24)
  end)

  it("goes past nodes that are not its own", function()
    both(function(eng)
      local w, v = eng:param({ 3 }, { 0.1, 0.2, 0.3 }), eng:param({ 3 }, { 1, 1, 1 })
      return { w, v }, function(round)
        local h = w * eng:tensor { round, 1, 2 }
        local aside = (v * h):exp() -- recorded in between, never used
        local y = (h:sin() * v):sum()
        return y, aside
      end
    end)
  end)

  it("adds to gradients that were zeroed, replaced by values, or grew", function()
    both(function(eng)
      local w = eng:param({ 3 }, { 0.1, 0.2, 0.3 })
      return { w }, function(round)
        if round == 4 then w.grad = nil end
        if round == 6 then w.grad = eng:tensor { 7, 8, 9 } end
        return (w * w * eng:tensor { round, 1, 2 }):sum()
      end
    end, 9)
  end)

  local function warmed(eng, w, n)
    for _ = 1, n or 4 do
      (w * w):sin():sum():backward()
      eng:reset()
    end
    assert.is_true(eng:stats().passed > 0)
  end

  it("finds what was changed in place, and changes nothing then", function()
    local eng = open()
    local w = eng:param({ 3 }, { 0.1, 0.2, 0.3 })
    warmed(eng, w)
    local before = w.grad:totable()
    local h = w * w
    local loss = h:sin():sum()
    eng:no_grad(function() eng:fill(w, 1) end)
    assert.error_matches(function() loss:backward() end, "saved .* which was changed in place by fill")
    assert.same(before, w.grad:totable())
    warmed(eng, w)
  end)

  it("happens once", function()
    local eng = open()
    local w = eng:param({ 3 }, { 0.1, 0.2, 0.3 })
    warmed(eng, w)
    local loss = (w * w):sin():sum()
    loss:backward()
    local before = w.grad:totable()
    assert.error_matches(function() loss:backward() end, "a second backward through the same nodes")
    assert.same(before, w.grad:totable())
  end)

  it("leaves no pin and no memory behind", function()
    local eng = open()
    local w = eng:param({ 3 }, { 0.1, 0.2, 0.3 })
    warmed(eng, w)
    local pins, live = eng:stats().pins, eng:stats().live_bytes
    for _ = 1, 10 do
      (w * w):sin():sum():backward()
      eng:reset()
    end
    assert.equal(pins, eng:stats().pins)
    assert.equal(live, eng:stats().live_bytes)
  end)

  it("gives way where gradients are given, kept, recorded, or asked for by name", function()
    local eng = open()
    local w = eng:param({ 2 }, { 0.5, 0.25 })
    warmed(eng, w)
    local function loss() return (w * w):sin():sum() end
    local passed = eng:stats().passed
    assert.is_true(passed > 0)
    eng:zero(w.grad)
    loss():backward(eng:tensor(2))
    local l = loss()
    l:backward(nil, { retain = true })
    l:backward()
    loss():backward(nil, { create_graph = true })
    local found = perilune.grad(loss(), w)
    assert.equal(passed + 1, eng:stats().passed) -- the one without options
    local want = found * 5
    for i = 1, 2 do assert.near(want:get(i), w.grad:get(i), 1e-6) end
  end)

  it("is not used with poison, with places, or while a graph's node is in Lua", function()
    for _, options in ipairs { { poison = true }, { places = true }, { plans = false } } do
      options.arena = "1MiB"
      local eng = engines.open("cpu", options)
      local w = eng:param({ 3 }, { 0.1, 0.2, 0.3 })
      for _ = 1, 5 do (w * w):sin():sum():backward() end
      assert.equal(0, eng:stats().passed)
    end
    local eng = open()
    local w = eng:param({ 3 }, { 0.1, 0.2, 0.3 })
    local double = perilune.op { name = "double", forward = function(_, x) return x * 2 end, backward = function(_, g) return g * 2 end }
    for _ = 1, 5 do double(w):sin():sum():backward() end
    assert.equal(0, eng:stats().passed)
    for i, x in ipairs { 0.1, 0.2, 0.3 } do assert.near(10 * math.cos(2 * x), w.grad:get(i), 1e-5) end
  end)

  it("holds for graphs of hundreds of nodes, and its tensors may be large", function()
    both(function(eng)
      local w = eng:param({ 16 }, 0.01)
      return { w }, function(round)
        local h = w * eng:full({ 16 }, round)
        for _ = 1, 150 do h = (h + w):tanh() end
        return h:sum()
      end
    end)
    local eng = engines.open("cpu", { arena = "64MiB" })
    local w = eng:param({ 512, 512 }, 0.01)
    for _ = 1, 5 do
      (w * w):sin():sum():backward()
      eng:reset()
    end
    assert.near(5 * 0.02 * math.cos(1e-4), w.grad:get(512, 512), 1e-6)
  end)
end)
