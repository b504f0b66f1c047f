-- SPDX-License-Identifier: MIT
-- The optimizers against the same steps in Lua's doubles: values, state, tiny gradients, step and lr as numbers and as tensors.

local reference = require "spec.support.reference"
local engines = require "spec.support.engines"
local layouts = require "spec.support.layouts"

local fails = layouts.fails

local DEFAULTS = { lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01 }

-- One AdamW step of one element, as the paper writes it.
local function adamw(s, g, step, options)
  local o = setmetatable(options or {}, { __index = DEFAULTS })
  s.p = s.p - o.lr * o.weight_decay * s.p
  s.m = o.beta1 * s.m + (1 - o.beta1) * g
  s.v = o.beta2 * s.v + (1 - o.beta2) * g * g
  local m, v = s.m / (1 - o.beta1 ^ step), s.v / (1 - o.beta2 ^ step)
  s.p = s.p - o.lr * m / (math.sqrt(v) + o.eps)
end

local function near(want, got, rtol)
  assert.is_true(math.abs(want - got) <= rtol * math.max(1e-30, math.abs(want)), ("%.17g against %.17g"):format(got, want))
end

engines.each(function(kind, open)
  describe("sgd on " .. kind, function()
    local e
    before_each(function() e = open() end)
    after_each(engines.close)

    it("steps in place, in every layout and dtype", function()
      for _, dtype in ipairs { "f32", "f64" } do
        for _, shape in ipairs { {}, { 1 }, { 0, 3 }, { 2, 3 }, { 3, 11001 } } do
          local p, g = reference.random(shape, dtype, -3, 3, 1), reference.random(shape, dtype, -3, 3, 2)
          local want = reference.new(shape, dtype)
          for i = 1, #p do want[i] = p[i] - 0.1 * g[i] end
          want = reference.round(want)
          for _, make in pairs(layouts.make) do
            local x = make(e, p)
            assert.is_true(rawequal(x, e:sgd(x, make(e, g), { lr = 0.1 })))
            layouts.same(want, x)
            local y = make(e, p)
            e:sgd(y, make(e, g), e:tensor({ 0.1 }, { dtype = "f64" }))
            layouts.same(want, y)
          end
        end
      end
    end)

    it("takes 0.001 for the lr, its own operand for the gradient, and overlaps", function()
      local x = e:tensor { 1, 2, 3 }
      layouts.same(reference.round(reference.array { 0.999, 1.998, 2.997 }), e:sgd(x, x))
      local y = e:tensor { 1, 2, 3, 4 }
      e:sgd(y:narrow(1, 2, 3), y:narrow(1, 1, 3), 1)
      assert.same({ 1, 1, 1, 1 }, y:totable())
      local z = e:tensor { 1, 2, 0.5 }
      e:sgd(z, e:ones { 3 }, z[3])
      assert.same({ 0.5, 1.5, 0 }, z:totable())
    end)

    it("follows a tensor's lr from step to step", function()
      local x, lr = e:zeros { 2 }, e:tensor { 1 }
      for i = 1, 3 do
        lr:fill(i)
        e:sgd(x, e:ones { 2 }, lr)
      end
      assert.same({ -6, -6 }, x:totable())
    end)

    it("names what does not fit, and changes nothing", function()
      local x, before = e:ones { 2, 3 }, layouts.text(e:ones { 2, 3 })
      fails("argument 'g': expected shape (2, 3) as of 'p', got (3)", e.sgd, e, x, e:ones { 3 }, 0.1)
      fails("argument 'g': expected f32, got f64", e.sgd, e, x, e:ones({ 2, 3 }, { dtype = "f64" }), 0.1)
      fails("argument 'lr': expected a number that is not negative, got -1", e.sgd, e, x, x, -1)
      fails("argument 'lr': expected a number that is not negative, got", e.sgd, e, x, x, 0 / 0)
      fails("argument 'lr': expected a number or a tensor of one element", e.sgd, e, x, x, e:ones { 2 })
      fails("takes no other destination", e.sgd, e, x, x, 0.1, { out = e:ones { 2, 3 } })
      fails("broadcast view", e.sgd, e, e:ones({ 3 }):expand { 2, 3 }, x, 0.1)
      assert.equal(before, layouts.text(x))
    end)
  end)

  describe("adamw on " .. kind, function()
    local e
    before_each(function() e = open() end)
    after_each(engines.close)

    -- n steps with the gradient fn(step); returns the engine's p and the doubles'.
    local function train(n, p0, gradient, dtype, state_dtype, options)
      local p = e:full({ 3 }, p0, { dtype = dtype })
      local m, v = e:zeros({ 3 }, { dtype = state_dtype }), e:zeros({ 3 }, { dtype = state_dtype })
      local s = { p = p:get(1), m = 0, v = 0 }
      for step = 1, n do
        local g = e:full({ 3 }, gradient(step), { dtype = dtype })
        e:adamw(p, g, m, v, step, options)
        adamw(s, g:get(1), step, options)
      end
      return p:get(2), s, m:get(3), v:get(1)
    end

    it("walks as the doubles do", function()
      local function wave(step) return math.sin(step) end
      local p, s, m, v = train(50, 0.7, wave, "f64", "f64")
      near(s.p, p, 1e-13)
      near(s.m, m, 1e-13)
      near(s.v, v, 1e-13)
      p, s, m, v = train(50, 0.7, wave, "f32", "f32", { lr = 0.01, beta1 = 0.8, beta2 = 0.99, eps = 1e-6, weight_decay = 0.1 })
      near(s.p, p, 1e-6)
      near(s.m, m, 1e-6)
      near(s.v, v, 1e-6)
    end)

    it("takes tiny gradients: 100 steps of 1e-10, then of 1e-25, whose square no f32 holds", function()
      for _, state in ipairs { "f32", "f64" } do
        local p, s = train(100, 1, function() return 1e-10 end, "f32", state, { weight_decay = 0 })
        near(s.p, p, 1e-6)
        assert.is_true(math.abs(1 - p) < 0.05)
        p, s = train(100, 0, function() return -1e-10 end, "f32", state)
        near(s.p, p, 1e-6)
      end
      local p, s = train(100, 0, function() return 1e-25 end, "f32", "f64", { eps = 1e-30 })
      near(s.p, p, 1e-6)
    end)

    it("takes step and lr as tensors, of any dtype, and any layout", function()
      local values, grads = reference.random({ 4, 5 }, "f32", -1, 1, 1), reference.random({ 4, 5 }, "f32", -1, 1, 2)
      local function run(make, step, lr)
        local p, m, v = make(e, values), make(e, reference.ops.full({ 4, 5 }, 0)), make(e, reference.ops.full({ 4, 5 }, 0))
        for i = 1, 3 do e:adamw(p, make(e, grads), m, v, step(i), { lr = lr }) end
        return layouts.text(p) .. layouts.text(m) .. layouts.text(v)
      end
      local want = run(layouts.make.contiguous, function(i) return i end, 0.125)
      for _, dtype in ipairs { "i64", "i32", "f32", "f64" } do
        local count = e:zeros({}, { dtype = dtype })
        for _, make in pairs(layouts.make) do
          count:fill(0)
          assert.equal(want, run(make, function() return e:add(count, 1, count) end, e:tensor { 0.125 }))
        end
      end
    end)

    it("returns what it changed, and steps alike with any number of threads", function()
      local bits
      for threads = 1, 3 do
        local engine = open { threads = threads }
        local p, m, v = engine:ones { 3, 22001 }, engine:zeros { 3, 22001 }, engine:zeros { 3, 22001 }
        local g = engine:linspace(-1, 1, 66003):view { 3, 22001 }
        local a, b, c = engine:adamw(p, g, m, v, 1)
        assert.is_true(rawequal(p, a) and m:same_storage(b) and v:same_storage(c))
        local text = layouts.text(p)
        bits = bits or text
        assert.is_true(bits == text)
      end
    end)

    it("names what does not fit", function()
      local x, s = e:ones { 2 }, function() return e:zeros { 2 } end
      local m, v = s(), s()
      fails("argument 'm': expected shape (2) as of 'p', got (3)", e.adamw, e, x, x, e:zeros { 3 }, v, 1)
      fails("argument 'g': expected f32, got f64", e.adamw, e, x, e:ones({ 2 }, { dtype = "f64" }), m, v, 1)
      fails("argument 'm': expected f64, got f32", e.adamw, e, x:to "f64", x:to "f64", m, v, 1)
      fails("argument 'v': expected f64 as of 'm', got f32", e.adamw, e, x, x, m:to "f64", v, 1)
      fails("argument 'step': expected a number that is at least 1 (steps are counted from 1), got 0", e.adamw, e, x, x, m, v, 0)
      fails("argument 'beta1': expected 0 <= beta1 < 1, got 1", e.adamw, e, x, x, m, v, 1, { beta1 = 1 })
      fails("argument 'eps'", e.adamw, e, x, x, m, v, 1, { eps = -1 })
      fails("two destinations share memory", e.adamw, e, x, e:ones { 2 }, m, m, 1)
      e:adamw(x, e:ones { 2 }, m, v, e:zeros({}, { dtype = "i64" }))
      fails("element 1 of 'step' is 0", e.sync, e)
      assert.same({ 1, 1 }, x:totable())
    end)
  end)
end)
