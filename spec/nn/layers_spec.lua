-- SPDX-License-Identifier: MIT
-- What layers do beyond what training shows: shapes, caches, dropout, first values, gradients in f64, and being captured.

local nn = require "perilune.nn"
local gradcheck = require "perilune.gradcheck"
local samples = require "perilune.samples"
local engines = require "spec.support.engines"

local function message_of(fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected")
  return message
end

local function near(want, got, tolerance)
  local a, b = want:reshape({ -1 }):totable(), got:reshape({ -1 }):totable()
  assert.equal(#a, #b)
  for i, v in ipairs(a) do assert.is_true(math.abs(v - b[i]) <= (tolerance or 1e-6), ("%g and %g at %d"):format(v, b[i], i)) end
end

local function quiet(eng, layer, ...)
  return eng:no_grad(function(...) return layer(...) end, ...)
end

--- Moments of a tensor's elements.
local function moments(t) return t:mean():item(), t:var():sqrt():item(), t:min():item(), t:max():item() end

describe("layers", function()
  after_each(engines.close)

  engines.each(function(name, open)
    describe("on " .. name, function()
      it("generate from a cache what they compute at once, over a reset per token", function()
        local eng = open()
        local layers = {}
        for i = 1, 2 do layers[i] = nn.MultiheadAttention(eng, 8, 2, { rotary = i == 1 }) end
        local x = eng:persistent({ 2, 6, 8 }, eng:randn { 2, 6, 8 })
        local whole
        eng:no_grad(function()
          local y = x
          for _, layer in ipairs(layers) do y = y + layer(y, { causal = true }) end
          whole = eng:persistent(y.shape, y)
        end)
        for _, cuts in ipairs { { 1, 1, 1, 1, 1, 1 }, { 3, 1, 2 }, { 6 } } do
          local caches = {}
          for i, layer in ipairs(layers) do caches[i] = layer:cache(2, 6) end
          local at = 1
          for _, n in ipairs(cuts) do
            eng:no_grad(function()
              local y = x:narrow(2, at, n)
              for i, layer in ipairs(layers) do y = y + layer(y, { causal = true, cache = caches[i] }) end
              near(whole:narrow(2, at, n), y)
            end)
            at = at + n
            eng:reset()
          end
          assert.equal(6, caches[1].length)
          local full = message_of(quiet, eng, layers[1], x:narrow(2, 1, 1), { causal = true, cache = caches[1] })
          assert.matches("the cache holds 6 positions: 6 are in use and 1 more do not fit", full, 1, true)
        end
        local cache = layers[1]:cache(2, 6)
        assert.matches("a cache keeps no gradients", message_of(layers[1], x, { cache = cache }), 1, true)
        assert.equal(0, cache.length)
        assert.matches("for a batch of 1, x has 2", message_of(quiet, eng, layers[1], x, { cache = layers[1]:cache(1, 9) }), 1, true)
        collectgarbage() -- graphs that nobody went back through
        collectgarbage()
        assert.equal(0, eng:stats().pins)
      end)

      it("see neither padding nor the future, with bool and float masks alike", function()
        local eng = open()
        local a = nn.MultiheadAttention(eng, 8, 2)
        local x = eng:persistent({ 2, 5, 8 }, eng:randn { 2, 5, 8 })
        local keys = eng:tensor({ { true, true, true, true, true }, { true, true, true, false, false } }, { dtype = "bool" })
        local bool = eng:ones({ 5, 5 }, { dtype = "bool" }):tril()
        local float = eng:zeros({ 5, 5 }):masked_fill(bool:logical_not(), -math.huge)
        eng:no_grad(function()
          local want = a(x, { causal = true, keys = keys })
          near(want, a(x, { mask = bool, keys = keys }))
          near(want, a(x, { mask = float, keys = keys }))
          near(a(x, { causal = true }), a(x, { mask = float }))
          local changed = x:clone()
          changed[{ 2, { 4, 5 } }] = 100
          near(want[{ 2, { 1, 3 } }], a(changed, { causal = true, keys = keys })[{ 2, { 1, 3 } }])
          near(want[1], a(changed, { causal = true, keys = keys })[1])
          local cache = a:cache(2, 5)
          a(x:narrow(2, 1, 2), { causal = true, cache = cache })
          near(a(x, { causal = true, keys = keys })[{ {}, { 3, 5 } }], a(x:narrow(2, 3, 3), { causal = true, cache = cache, keys = keys }))
        end)
        assert.matches("keys is (2, 5), got shape (5, 2)", message_of(a, x, { keys = keys:t() }), 1, true)
        assert.matches("x is (B, L, 8), got shape (5, 8)", message_of(a, x[1]), 1, true)
        assert.matches("there is no option 'casual' (did you mean 'causal'?)", message_of(a, x, { casual = true }), 1, true)
      end)

      it("drop only while training, pass when not", function()
        local eng = open()
        local drop, x = nn.Dropout(0.25), eng:ones { 4000 }
        local y = drop(x)
        local zeros = y:eq(0):sum():item()
        assert.is_true(zeros > 850 and zeros < 1150, zeros)
        assert.is_true(math.abs(y:max():item() - 1 / 0.75) < 1e-6)
        assert.equal(x, drop:eval()(x))
        assert.equal(x, nn.Dropout(0)(x))
      end)

      it("start from values of the right size", function()
        local eng = open()
        local w = eng:param { 200, 50 }
        local mean, deviation, low, high = moments(nn.init.uniform(w, -2, 4))
        assert.is_true(math.abs(mean - 1) < 0.1 and math.abs(deviation - 6 / math.sqrt(12)) < 0.1 and low >= -2 and high < 4)
        mean, deviation = moments(nn.init.normal(w, 3, 0.5))
        assert.is_true(math.abs(mean - 3) < 0.05 and math.abs(deviation - 0.5) < 0.05)
        for init, want in pairs { xavier_uniform = math.sqrt(2 / 250), xavier_normal = math.sqrt(2 / 250), kaiming_uniform = math.sqrt(2 / 50),
          kaiming_normal = math.sqrt(2 / 50) } do
          mean, deviation = moments(nn.init[init](w))
          assert.is_true(math.abs(mean) < 0.05 * want * 3 and math.abs(deviation / want - 1) < 0.05, init)
        end
        for _, shape in ipairs { { 4, 6 }, { 6, 4 }, { 3, 3 } } do
          local q = nn.init.orthogonal(eng:param(shape), 2):detach()
          local unit = shape[1] <= shape[2] and q:matmul(q:t()) or q:t():matmul(q)
          near(eng:eye(math.min(unpack(shape))) * 4, unit, 1e-5)
        end
        assert.same({ 7, 7 }, nn.init.constant(eng:param { 2 }, 7):totable())
        assert.same({ 0, 1 }, { nn.init.zeros(eng:param { 1 }):item(), nn.init.ones(eng:param { 1 }):item() })
        assert.same({ 50, 200 }, { nn.init.fans(w) })
        assert.same({ 18, 36 }, { nn.init.fans(eng:param { 4, 2, 3, 3 }) })
        assert.matches("fans need a tensor of at least 2 dimensions, got shape (3)", message_of(nn.init.xavier_normal, eng:param { 3 }), 1, true)
        assert.matches("init: a tensor was expected, got number", message_of(nn.init.zeros, 3), 1, true)
        collectgarbage() -- graphs that nobody went back through
        collectgarbage()
        assert.equal(0, eng:stats().pins)
      end)

      it("take batches of size 0 and refuse what does not fit", function()
        local eng = open()
        assert.same({ 0, 3, 4, 4 }, nn.Conv2d(eng, 2, 3, 3, { padding = 1 })(eng:zeros { 0, 2, 4, 4 }).shape)
        assert.same({ 0, 2, 2, 2 }, nn.MaxPool2d(2)(eng:zeros { 0, 2, 4, 4 }).shape)
        assert.same({ 0, 3, 8 }, nn.MultiheadAttention(eng, 8, 2)(eng:zeros { 0, 3, 8 }).shape)
        for text, fn in pairs {
          ["in Conv2d(2, 3, kernel = 3x3): x has 4 dimensions (N, C, H, W), got shape (2, 4, 4)"] = function() nn.Conv2d(eng, 2, 3, 3)(eng:zeros { 2, 4, 4 }) end,
          ["x has 5 channels, expected 2"] = function() nn.Conv1d(eng, 2, 3, 3)(eng:zeros { 1, 5, 4 }) end,
          ["a window of 5 does not fit into a size of 2 with a padding of 1"] = function()
            nn.Conv1d(eng, 2, 3, 3, { dilation = 2, padding = 1 })(eng:zeros { 1, 2, 2 })
          end,
          ["x is (T, B, 3), got shape (5, 3)"] = function() nn.GRU(eng, 3, 4)(eng:zeros { 5, 3 }) end,
          ["x is (B, T, 3), got shape (5, 3)"] = function() nn.GRU(eng, 3, 4, { batch_first = true })(eng:zeros { 5, 3 }) end,
          ["x has no steps, its shape is (0, 2, 3)"] = function() nn.LSTM(eng, 3, 4)(eng:zeros { 0, 2, 3 }) end,
          ["h is (1, 2, 4), got shape (1, 1, 4)"] = function() nn.RNN(eng, 3, 4)(eng:zeros { 5, 2, 3 }, eng:zeros { 1, 1, 4 }) end,
          ["rotary: x is (.., rows, an even width), got shape (2, 3)"] = function() nn.rotary(eng:zeros { 2, 3 }) end,
          ["x has at least 3 dimensions (N, C, ..), got shape (2, 3)"] = function() nn.GlobalAvgPool()(eng:zeros { 2, 3 }) end,
        } do
          assert.matches(text, message_of(fn), 1, true)
        end
      end)

      it("lose nothing to a captured step", function()
        local eng = open { seed = 3 }
        local model = nn.Sequential(nn.Conv2d(eng, 1, 4, 3, { padding = 1 }), nn.GELU(), nn.MaxPool2d(2), nn.GroupNorm(eng, 2, 4),
          function(x) return x:reshape { 2, 4, 4 } end, nn.Residual(nn.RMSNorm(eng, 4), nn.MultiheadAttention(eng, 4, 2, { rotary = true })),
          nn.Dropout(0.3), nn.LSTM(eng, 4, 3))
        local x = eng:persistent({ 2, 1, 4, 4 }, eng:randn { 2, 1, 4, 4 })
        local function step()
          local loss = model(x):square():sum()
          loss:backward()
          return loss
        end
        local rng = eng:rng()
        local eager = {}
        for i = 1, 3 do
          eager[i] = step():bytes()
          eng:reset()
        end
        local grad = model["1"].weight.grad:bytes()
        model:zero_grad()
        eng:rng(rng)
        local captured, loss = eng:capture(step)
        for i = 1, 3 do
          captured:replay()
          assert.equal(eager[i], loss:bytes())
        end
        assert.equal(grad, model["1"].weight.grad:bytes())
        captured:release()
      end)
    end)
  end)

  it("have the gradients of central differences", function()
    local cases = {}
    local function case(what, shape, make)
      cases[#cases + 1] = { op = "nn", name = what, rtol = 1e-5, grad_rtol = 1e-5, dtype = "f64",
        inputs = function()
          local array = { shape = shape, dtype = "f64" }
          local n = 1
          for _, size in ipairs(shape) do n = n * size end
          for i = 1, n do array[i] = math.sin(1.3 * i) end
          return { { array = samples.decode(samples.encode(array), shape, "f64"), grad = true, slot = "x" } }
        end,
        run = function(eng, x) return make(eng)(x) end }
    end
    local double = { dtype = "f64" }
    local made = {}
    local function once(what, make) -- one set of parameters for all calls
      return function(eng)
        made[what] = made[what] or make(eng)
        return made[what]
      end
    end
    case("conv2d", { 2, 2, 4, 3 }, once("conv2d", function(eng)
      return nn.Conv2d(eng, 2, 4, { 2, 3 }, { stride = { 2, 1 }, padding = 1, dilation = { 1, 2 }, groups = 2, dtype = "f64" })
    end))
    case("max pool", { 1, 2, 4, 4 }, once("max", function() return nn.MaxPool2d(2, { stride = 1 }) end))
    case("mean pool", { 1, 2, 6 }, once("mean", function() return nn.AvgPool1d(3, { stride = 2, padding = 1 }) end))
    case("attention", { 2, 3, 4 }, once("attention", function(eng) return nn.MultiheadAttention(eng, 4, 2, { rotary = true, dtype = "f64" }) end))
    case("swiglu", { 3, 4 }, once("swiglu", function(eng) return nn.SwiGLU(eng, 4, 5, double) end))
    for _, kind in ipairs { "RNN", "GRU", "LSTM" } do
      case(kind, { 3, 2, 3 }, once(kind, function(eng) return nn[kind](eng, 3, 2, { layers = 2, dtype = "f64" }) end))
    end
    local report = gradcheck.run { ops = cases, engine = engines.open "cpu", log = false }
    assert.equal(#cases, report.passed)
  end)
end)
