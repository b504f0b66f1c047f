-- SPDX-License-Identifier: MIT
-- Ops written in Lua: contexts, nesting, several results, resets and errors inside, cycles; checkpoints; the node hook.

local perilune = require "perilune"
local core = require "perilune.core"
local engines = require "spec.support.engines"

local function message_of(fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected")
  return tostring(message)
end

local function pins(eng) return eng:stats().pins end

local cube = perilune.op {
  name = "cube",
  forward = function(ctx, x)
    local x2 = x * x
    ctx:save(x2)
    return x2 * x
  end,
  backward = function(ctx, g)
    local x2 = ctx:saved()
    return g * x2 * 3
  end,
}

describe("ops in Lua", function()
  after_each(engines.close)

  engines.each(function(name, open)
    describe("on " .. name, function()
      it("run forward unrecorded and backward with what they saved", function()
        local eng = open()
        local x = eng:param({ 3 }, { 1, 2, -3 })
        local recorded
        local op = perilune.op {
          name = "op",
          forward = function(_, v) recorded = (v * 2):requires_grad() return v * 2 end,
          backward = function(_, g) recorded = recorded or g:requires_grad() return g * 2 end,
        }
        local y = cube(op(x))
        assert.same({ 8, 64, -216 }, y:totable())
        eng:reset()
        y:backward(eng:ones { 3 })
        assert.same({ 24, 96, 216 }, x.grad:totable())
        assert.is_false(recorded)
        assert.equal(0, pins(eng))
      end)

      it("take other arguments, give several results and may leave gradients out", function()
        local eng = open()
        local a, b = eng:param({ 2 }, { 1, 2 }), eng:param({ 2 }, { 3, 4 })
        local got
        local op = perilune.op {
          name = "mixed",
          forward = function(ctx, k, x, t, y)
            assert.equal("t", t.name)
            assert.is_true(ctx:needs(1) and ctx:needs(2))
            ctx:save(x, k, y)
            return x * k, t, y * y, x:argmax()
          end,
          backward = function(ctx, g1, g2, g3)
            local _, k, y = ctx:saved()
            got = { g1:totable(), g2:totable(), g3 }
            return g1 * k, g2 * y * 2
          end,
        }
        local p, t, q, m = op(5, a, { name = "t" }, b)
        assert.equal("t", t.name)
        assert.is_false(m:requires_grad())
        assert.equal(2, m:item())
        p:sum():backward() -- the other result's gradient is zero
        assert.same({ { 1, 1 }, { 0, 0 } }, got)
        assert.same({ 5, 5 }, a.grad:totable())
        assert.same({ 0, 0 }, b.grad:totable())
        p, t, q = op(5, a, t, b)
        local sum = p:sum() + q:sum()
        sum:backward()
        assert.same({ 10, 10 }, a.grad:totable())
        assert.same({ 6, 8 }, b.grad:totable())
        local none = perilune.op { name = "none", forward = function(_, x) return x + 1 end, backward = function() end }
        none(a):sum():backward()
        assert.same({ 10, 10 }, a.grad:totable())
      end)

      it("show a result that is an argument or comes twice by tensors of their own", function()
        local eng = open()
        local x = eng:param({ 2 }, { 1, 2 })
        local plain = eng:ones { 2 }
        local op = perilune.op {
          name = "pass", forward = function(_, v, w) local y = v * 2 return v, w, y, y end,
          backward = function(_, g1, g2, g3, g4) return g1 + g3 * 2 + g4 * 2, g2 end,
        }
        local a, b, c, d = op(x, plain)
        assert.is_true(a:same_storage(x) and b:same_storage(plain) and c:same_storage(d))
        assert.is_false(plain:requires_grad())
        local sum = (a + b + c + d * 10):sum()
        sum:backward()
        assert.same({ 23, 23 }, x.grad:totable())
      end)

      it("nest by ctx:call, whose saves belong to the outer op", function()
        local eng = open()
        local x = eng:param({ 2 }, { 0.5, 2 }, { dtype = "f64" })
        local op = perilune.op {
          name = "outer",
          forward = function(ctx, v)
            local inner = ctx:call(cube, v)
            local squashed = ctx:call(perilune.tanh, inner * 0.1)
            return squashed * 3
          end,
          backward = function(ctx, g) return ctx:back(ctx:back(g * 3) * 0.1) end,
        }
        local function want() return (x * x * x * 0.1):tanh() * 3 end
        local expected = perilune.grad(want():sum(), x):totable()
        local y = op(x)
        assert.is_true(pins(eng) > 0)
        local dy = eng:persistent({ 2 }, 1, { dtype = "f64" })
        eng:reset()
        y:backward(dy)
        for i, v in ipairs(x.grad:totable()) do assert.near(expected[i], v, 1e-12) end
        assert.equal(0, pins(eng))
        y = op(x) -- dropped without a backward: the inner saves go as well
        y = nil -- luacheck: ignore
        collectgarbage() collectgarbage() collectgarbage()
        assert.equal(0, pins(eng))
      end)

      it("may reset the engine in the middle of a backward", function()
        local eng = open()
        local x = eng:param({ 64 }, 0.5)
        local resets = perilune.op {
          name = "resets", forward = function(_, v) return v + 0 end,
          backward = function(_, g)
            g = eng:persistent({ 64 }, g)
            eng:reset()
            for i = 1, 20 do eng:full({ 64 }, i) end
            return g
          end,
        }
        local function loss(op) local h = op(x) * 2 return (op(h * x) + op(h) * op(x)):sum() end
        local want = perilune.grad(loss(function(v) return v + 0 end), x):totable()
        loss(resets):backward()
        assert.same(want, x.grad:totable())
        assert.equal(0, pins(eng))
      end)

      it("release everything when they fail", function()
        local eng = open()
        local x = eng:param({ 4 }, 0.5)
        local function failing(where)
          return perilune.op {
            name = "failing",
            forward = function(ctx, v) ctx:save(v * 2) if where == "forward" then error "in forward" end return v * 3 end,
            backward = function(ctx, g)
              if where == "backward" then error "in backward" end
              if where == "shape" then return g:sum() end
              if where == "type" then return 3 end
              if where == "more" then return g, g end
              if where == "yield" then coroutine.yield() end
              if where == "close" then eng:close() end
              return g
            end,
          }
        end
        for where, text in pairs {
          forward = "in forward", backward = "in backward", shape = "expected shape (4)", type = "a tensor or nil was expected",
          more = "2 gradients for 1 tensor argument", close = "backward is under way",
        } do
          assert.matches(text, message_of(function() failing(where)(x:exp() * 2):exp():sum():backward() end), 1, true)
          if where == "forward" then collectgarbage() collectgarbage() end -- x:exp() had no backward
          assert.equal(0, pins(eng), where)
          assert.is_true(eng:recording())
          assert.same({ 0, 0, 0, 0 }, x.grad:totable())
        end
        local ok, message = coroutine.resume(coroutine.create(function() failing "yield"(x):sum():backward() end))
        assert.is_false(ok)
        assert.matches("yield", message, 1, true);
        (x * x):sum():backward()
        assert.same({ 1, 1, 1, 1 }, x.grad:totable())
        assert.equal(0, pins(eng))
      end)

      it("lives through collections inside its forward", function()
        local eng = open()
        local x = eng:param({ 2 }, { 2, 3 })
        local op = perilune.op { name = "square",
          forward = function(ctx, v)
            for _ = 1, 4 do collectgarbage() end -- nothing but the running op holds its graph yet
            ctx:save(v)
            local y = v * v
            for _ = 1, 4 do collectgarbage() end
            return y
          end,
          backward = function(ctx, g) return g * ctx:saved() * 2 end }
        for _ = 1, 3 do
          local y = op(x)
          collectgarbage() collectgarbage()
          y:backward(eng:ones { 2 })
          eng:reset()
        end
        assert.same({ 12, 18 }, x.grad:totable())
      end)

      it("are seen by the collector through every cycle", function()
        local eng = open()
        local x = eng:param({ 4 }, 0.5)
        local gone = setmetatable({}, { __mode = "k" })
        for _ = 1, 10 do
          local y, marker = nil, {}
          gone[marker] = true
          local op = perilune.op {
            name = "cycle", forward = function(ctx, v) ctx:save(v) ctx.own = function() return y, marker end return v * 2 end,
            backward = function(_, g) return g * 2, y end,
          }
          y = op(x)
        end
        collectgarbage() collectgarbage() collectgarbage()
        assert.is_nil(next(gone))
        assert.equal(0, pins(eng))
      end)

      it("have gradients of gradients when their derivative is made of ops", function()
        local eng = open()
        local x = eng:param({ 2 }, { 2, 3 }, { dtype = "f64" })
        local op = perilune.op {
          name = "square", forward = function(ctx, v) ctx:save(v) return v * v end,
          backward = function(ctx, g) return g * ctx:saved() * 2 end,
        }
        local g = perilune.grad(op(op(x)):sum(), x, { create_graph = true })
        assert.same({ 32, 108 }, g:totable())
        assert.same({ 48, 108 }, perilune.grad(g:sum(), x):totable())
      end)

      it("may run backwards of their own", function()
        local eng = open()
        local x, w = eng:param({ 2 }, { 1, 2 }), eng:param({ 2 }, { 3, 4 })
        local op = perilune.op {
          name = "inner", forward = function(_, v) return v + 0 end,
          backward = function(_, g)
            local before = core.autograd.record_on(eng, true);
            (w * w):sum():backward()
            core.autograd.record_on(eng, before)
            return g
          end,
        };
        (op(x) * x):sum():backward()
        assert.same({ 2, 4 }, x.grad:totable())
        assert.same({ 6, 8 }, w.grad:totable())
      end)

      it("are refused when they are no ops", function()
        assert.matches("name is a string", message_of(perilune.op, {}), 1, true)
        assert.matches("backward is a function", message_of(perilune.op, { name = "x", forward = print }), 1, true)
        assert.matches("no field", message_of(perilune.op, { name = "x", forwards = print }), 1, true)
      end)
    end)

    describe("checkpoint on " .. name, function()
      it("equals the function itself, with the same dropout, across resets", function()
        local eng = open()
        local w, x = eng:param({ 6, 6 }, 0.1), eng:param({ 4, 6 })
        eng:no_grad(function()
          for i = 1, 4 do for k = 1, 6 do x:set(i, k, math.sin(7 * i + k)) end end
          for i = 1, 6 do for k = 1, 6 do w:set(i, k, math.cos(5 * i + k)) end end
        end)
        local function block(v, scale) return (v:matmul(w):tanh():dropout(0.4):matmul(w) * scale):sigmoid(), v * 2 end
        local state = eng:rng()
        local a, b = block(x, 0.5);
        (a:sum() + b:sum()):backward()
        local want, gx, gw = a:bytes(), x.grad:bytes(), w.grad:bytes()
        x.grad, w.grad = 0, 0
        eng:rng(state)
        a, b = perilune.checkpoint(block, x, 0.5)
        assert.equal(want, a:bytes())
        local draw = eng:rng()
        local loss = a:sum() + b:sum()
        assert.is_true(pins(eng) <= 3) -- x, nothing of what is between
        eng:reset()
        loss:backward()
        assert.equal(gx, x.grad:bytes())
        assert.equal(gw, w.grad:bytes())
        assert.same(draw, eng:rng())
        assert.equal(0, pins(eng))
      end)

      it("reaches parameters when no argument requires grad", function()
        local eng = open()
        local w = eng:param({ 3 }, 2)
        perilune.checkpoint(function(v) return (v * w):sum() end, eng:tensor { 1, 2, 3 }):backward()
        assert.same({ 1, 2, 3 }, w.grad:totable())
      end)
    end)

    it("tells the node hook on " .. name .. " each node before it runs", function()
      local eng = open()
      local x = eng:param({ 2 }, 1)
      local seen = {}
      core.autograd.on_node(eng, function(op) seen[#seen + 1] = op eng:reset() end)
      cube(x:exp()):sum():backward()
      core.autograd.on_node(eng, nil)
      assert.same({ "sum", "cube", "exp" }, seen)
      cube(x:exp()):sum():backward()
      assert.equal(3, #seen)
      assert.equal(0, pins(eng))
    end)
  end)
end)
