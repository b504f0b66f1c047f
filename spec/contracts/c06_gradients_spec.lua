-- SPDX-License-Identifier: MIT
-- C6 and gradients: what a captured step records is its own, and its backwards add up as those of eager steps do.

local perilune = require "perilune"
local engines = require "spec.support.engines"

local function fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected: " .. text)
  assert.matches(text, message, 1, true)
  return message
end

describe("C6 capture of gradients", function()
  after_each(engines.close)

  engines.each(function(name, open)
    describe("on " .. name, function()
      it("records no gradients outside: what it made are plain tensors", function()
        local eng = open()
        local w = eng:param({ 2 }, 3)
        local inner
        local step, loss = eng:capture(function()
          inner = w * w
          local loss = inner:sum()
          loss:backward()
          return loss
        end)
        assert.same({ 0, 0 }, w.grad:totable())
        assert.is_false(loss:requires_grad())
        assert.is_false(inner:requires_grad())
        step:replay(2)
        assert.same({ 12, 12 }, w.grad:totable())
        assert.equal(18, loss:item())
        fails("does not require grad", loss.backward, loss)
        assert.is_true(eng:recording())
        local y = (w * inner):sum()
        y:backward()
        assert.same({ 21, 21 }, w.grad:totable())
        assert.equal(0, eng:stats().pins)
      end)

      it("does not run a forward's graph that no backward went through", function()
        local eng = open()
        local w = eng:param({ 2 }, 3)
        local step, y = eng:capture(function() return (w * 2):tanh() end)
        assert.equal(0, eng:stats().pins)
        step:replay()
        assert.is_false(y:requires_grad())
        assert.same({ 0, 0 }, w.grad:totable())
      end)

      it("begins the sum of a leaf from outside once, that of one made inside with each replay", function()
        local results = {}
        for round = 1, 2 do
          local eng = open()
          local w = eng:persistent({ 2 }, 3):requires_grad(true)
          local inside
          local function program()
            local v = w:detach():requires_grad(true)
            ;(w * v * 2):sum():backward()
            inside = v.grad
          end
          if round == 1 then
            for _ = 1, 3 do program() end
          else
            eng:capture(program):replay(3)
          end
          results[round] = { w.grad:totable(), inside:totable() }
        end
        assert.same({ { 18, 18 }, { 6, 6 } }, results[1])
        assert.same(results[1], results[2])
      end)

      it("starts each replay's backward from 1, whatever has been written to it", function()
        local results = {}
        for round = 1, 2 do
          local eng = open()
          local w = eng:param({}, 3)
          local double = perilune.op {
            name = "double",
            forward = function(_, x) return x * 2 end,
            backward = function(_, g) return eng:mul(g, 2, g) end,
          }
          local function program() double(w):backward() end
          if round == 1 then
            for _ = 1, 3 do program() end
          else
            eng:capture(program):replay(3)
            w:sum():backward()
            eng:sub(w.grad, 1, w.grad)
          end
          results[round] = w.grad:item()
        end
        assert.same({ 6, 6 }, results)
      end)

      it("captures ops written in Lua and gradients of gradients", function()
        local results = {}
        local cube = perilune.op {
          name = "cube",
          forward = function(ctx, x)
            local x2 = x * x
            ctx:save(x2)
            return x2 * x
          end,
          backward = function(ctx, g) return g * ctx:saved() * 3 end,
        }
        for round = 1, 2 do
          local eng = open()
          local w = eng:param({ 2 }, { 1, 2 })
          local function program()
            local g = perilune.grad((cube(w) + w * w * w):sum(), w, { create_graph = true })
            g:sum():backward()
            eng:no_grad(function() eng:sub(w, w.grad * 0.01, w) end)
          end
          if round == 1 then
            for _ = 1, 4 do program() end
          else
            eng:capture(program):replay(4)
          end
          results[round] = { w:totable(), w.grad:totable() }
        end
        assert.same(results[1], results[2])
      end)
    end)
  end)
end)
