-- SPDX-License-Identifier: MIT
-- Autograd: recording, backward and its options, lifetimes of what is saved, destinations. Each op's derivative: spec/gradients_spec.lua.

local perilune = require "perilune"
local engines = require "spec.support.engines"

local function message_of(fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected")
  return tostring(message)
end

local function pins(eng) return eng:stats().pins end

describe("autograd", function()
  after_each(engines.close)

  engines.each(function(name, open)
    describe("on " .. name, function()
      it("gives a parameter a zero gradient from the start and adds up in its storage", function()
        local eng = open()
        local p = eng:param({ 2 }, { 1, 2 })
        assert.same({ 0, 0 }, p.grad:totable())
        assert.equal("persistent", p.grad.home)
        assert.is_true(p:requires_grad())
        local g, address = p.grad, p.grad:address()
        for k = 1, 3 do
          (p * p):sum():backward()
          assert.same({ 2 * k, 4 * k }, p.grad:totable())
        end
        assert.equal(address, p.grad:address())
        assert.is_true(g:same_storage(p.grad))
        p.grad = eng:tensor { 5, 6 }
        assert.same({ 5, 6 }, g:totable())
        assert.matches("expected shape %(2%)", message_of(function() p.grad = eng:tensor { 1 } end))
      end)

      it("gives the bits of adding the gradient k times in order", function()
        local eng = open()
        local p = eng:param({ 5 }, { 0.1, 0.7, -1.3, 2.9, 1e-3 })
        local function loss() return ((p * 3.1):tanh() + p:exp() * p):sum() end
        local once = perilune.grad(loss(), p)
        local sum = eng:persistent({ 5 })
        once = eng:persistent({ 5 }, once)
        for _ = 1, 20 do
          loss():backward()
          eng:add(sum, once, sum)
          assert.equal(sum:bytes(), p.grad:bytes())
        end
      end)

      it("takes a gradient for what is not a scalar", function()
        local eng = open()
        local x = eng:tensor({ 1, 2, 3 }):requires_grad(true)
        local y = x * x
        assert.matches("only of one element", message_of(y.backward, y), 1, true)
        y:backward(eng:tensor { 1, 10, 100 })
        assert.same({ 2, 40, 600 }, x.grad:totable())
        local z = x * 2
        assert.matches("the gradient has shape (2), the tensor (3)", message_of(z.backward, z, eng:tensor { 1, 2 }), 1, true)
        assert.matches("the gradient is f64", message_of(z.backward, z, eng:zeros({ 3 }, { dtype = "f64" })), 1, true)
        z:backward(eng:ones { 3 }) -- the errors have changed nothing
        assert.same({ 4, 42, 602 }, x.grad:totable())
      end)

      it("refuses a second backward through the same nodes, unless they are retained", function()
        local eng = open()
        local p = eng:param({ 2 }, { 1, 2 })
        local loss = (p * p):sum()
        loss:backward { retain = true }
        loss:backward { retain = true }
        assert.same({ 4, 8 }, p.grad:totable())
        loss:backward()
        assert.matches("second backward", message_of(loss.backward, loss), 1, true)
        assert.equal(0, pins(eng))
        assert.matches("no option 'retian'", message_of(loss.backward, loss, { retian = true }), 1, true)
      end)

      it("stops at detach and inside no_grad, which nests and ends with errors", function()
        local eng = open()
        local p = eng:param({ 2 }, { 1, 2 })
        assert.is_false(p:detach():requires_grad())
        assert.is_true(p:detach():same_storage(p))
        local y, z = eng:no_grad(function()
          local inner = eng:no_grad(function() return p * 2 end)
          assert.is_false(eng:recording())
          return inner, p * 3
        end)
        assert.is_false(y:requires_grad() or z:requires_grad())
        assert.is_true(eng:recording())
        assert.matches("boom", message_of(eng.no_grad, eng, function() error "boom" end), 1, true)
        assert.is_true(eng:recording())
        local co = coroutine.create(function() eng:no_grad(coroutine.yield) end)
        local ok, message = coroutine.resume(co)
        assert.is_false(ok)
        assert.matches("yield", message, 1, true)
        assert.is_true(eng:recording())
        assert.matches("does not require grad", message_of(y.backward, y), 1, true)
      end)

      it("never lets integers require grad", function()
        local eng = open()
        assert.matches("only floating point", message_of(function() eng:zeros({ 2 }, { dtype = "i64" }):requires_grad(true) end), 1, true)
        local p = eng:param({ 3 }, { 3, 1, 2 })
        assert.is_false(p:argmax():requires_grad())
        assert.is_false((p:gt(1)):requires_grad())
        assert.is_false(p:to "i64":requires_grad())
        local values, indices = p:max(1)
        assert.is_true(values:requires_grad())
        assert.is_false(indices:requires_grad())
      end)

      it("sums gradients of broadcast operands to their shapes", function()
        local eng = open()
        local a, b, c = eng:param({ 2, 1 }, { 1, 2 }), eng:param({ 3 }, { 1, 2, 3 }), eng:param({}, 2);
        ((a + b) * c):sum():backward()
        assert.same({ { 6 }, { 6 } }, a.grad:totable())
        assert.same({ 4, 4, 4 }, b.grad:totable())
        assert.equal(2 * 6 + 3 * 3, c.grad:item())
      end)

      it("differentiates through indexing, views, splits and joins", function()
        local eng = open()
        local x = eng:param({ 3, 4 }, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 })
        local y = x[2]:sum() + x[{ { 1, 3, 2 }, 4 }]:sum() * 10 + x:t()[1][3] * 100
        y:backward()
        assert.same({ { 0, 0, 0, 10 }, { 1, 1, 1, 1 }, { 100, 0, 0, 10 } }, x.grad:totable())
        x.grad = nil
        local a, b = x:split(2)
        eng:concat({ b, a * 2 }):sum():backward()
        assert.same({ { 2, 2, 2, 2 }, { 2, 2, 2, 2 }, { 1, 1, 1, 1 } }, x.grad:totable())
        x.grad = nil
        local _, second = x:split(1)
        second:sum():backward()
        assert.same({ { 0, 0, 0, 0 }, { 1, 1, 1, 1 }, { 0, 0, 0, 0 } }, x.grad:totable())
      end)

      it("gives gradients to several inputs without touching .grad", function()
        local eng = open()
        local a, b = eng:param({ 2 }, { 1, 2 }), eng:param({ 2 }, { 3, 4 })
        local mid = a * b
        local g = perilune.grad((mid * mid):sum(), { a, mid, b })
        assert.same({ 18, 64 }, g[1]:totable())
        assert.same({ 6, 16 }, g[2]:totable())
        assert.same({ 6, 32 }, g[3]:totable())
        assert.same({ 0, 0 }, a.grad:totable())
        assert.equal(0, pins(eng))
        local y = a * 2
        assert.matches("input 1 was not used", message_of(perilune.grad, y, b, { grad_outputs = eng:ones { 2 } }), 1, true)
        y = a * 2
        assert.same({ 0, 0 }, perilune.grad(y, b, { grad_outputs = eng:ones { 2 }, allow_unused = true }):totable())
        local dy = eng:ones { 2 }
        local passed = perilune.grad(a + 0, a, { grad_outputs = dy })
        eng:fill(dy, 7)
        assert.same({ 1, 1 }, passed:totable()) -- shares nothing with dy
      end)

      it("differentiates gradients", function()
        local eng = open()
        local x = eng:param({ 3 }, { 0.5, -1, 2 }, { dtype = "f64" })
        local y = (x * x * x):sum()
        local g = perilune.grad(y, x, { create_graph = true })
        local gg = perilune.grad(g:sum(), x, { create_graph = true })
        local ggg = perilune.grad(gg:sum(), x)
        assert.same({ 0.75, 3, 12 }, g:totable())
        assert.same({ 3, -6, 12 }, gg:totable())
        assert.same({ 6, 6, 6 }, ggg:totable());
        (x * x):sum():backward { create_graph = true }
        assert.is_true(x.grad:requires_grad())
        assert.same({ 2, 2, 2 }, perilune.grad(x.grad:sum(), x):totable())
        x.grad = nil
        assert.is_false(x.grad:requires_grad())
      end)

      it("refuses to write what requires grad, but not to update parameters", function()
        local eng = open()
        local p, plain = eng:param({ 2 }, { 1, 2 }), eng:zeros { 2 }
        local y = p * 2
        for what, write in pairs {
          destination = function() eng:add(p, 1, plain) end, into = function() eng:add(plain, 1, p) end,
          fill = function() eng:fill(p, 1) end, zero = function() eng:zero(y) end, copy = function() plain:copy(p) end,
          assign = function() y[1] = 3 end, set = function() p:set(1, 5) end, assigned = function() plain[1] = p[1] end,
          compare = function() eng:gt(p, 1, eng:zeros({ 2 }, { dtype = "bool" })) end,
        } do
          assert.matches("not allowed", message_of(write), 1, true, what)
        end
        eng:no_grad(function()
          eng:fill(p, 1)
          eng:add(p, 1, p)
          p[1] = 7
        end)
        assert.same({ 7, 2 }, p:totable())
        eng:sgd(p, eng:ones { 2 }, 1)
        assert.same({ 6, 1 }, p:totable())
        eng:add(plain, 1, plain)
      end)

      it("finds what was changed in place after it was saved, and names both ops", function()
        local eng = open { places = true }
        local p = eng:param({ 2 }, { 1, 2 })
        local y = p:exp() local saved_at = debug.getinfo(1, "l").currentline
        eng:no_grad(function() eng:fill(y, 3) end) local written_at = debug.getinfo(1, "l").currentline
        local message = message_of(function() y:sum():backward() end)
        assert.matches("exp (at ", message, 1, true)
        assert.matches("autograd_spec.lua:" .. saved_at, message, 1, true)
        assert.matches("saved its result", message, 1, true)
        assert.matches("changed in place by fill (at ", message, 1, true)
        assert.matches("autograd_spec.lua:" .. written_at, message, 1, true)
        assert.equal(0, pins(eng)) -- the error ended the backward
        local z = p * p
        eng:sgd(p, eng:ones { 2 }, 0.1)
        assert.matches("saved 'a', which was changed in place by sgd", message_of(function() z:sum():backward() end), 1, true)
        local w = p + p -- saves nothing
        eng:no_grad(function() eng:fill(w, 1) end)
        w:sum():backward()
      end)

      it("reads and copies what requires grad, whatever its layout", function()
        local eng = open()
        local p = eng:param({ 2, 2 }, { 1, 2, 3, 4 })
        assert.same({ { 1, 3 }, { 2, 4 } }, p:t():totable())
        assert.same({ { 2, 6 }, { 4, 8 } }, (p * 2):t():totable())
        assert.is_string(tostring(p:t()))
        assert.same({ { 1, 3 }, { 2, 4 } }, eng:persistent({ 2, 2 }, p:t()):totable())
        assert.same({ { 1, 2 }, { 3, 4 } }, eng:tensor(p):totable())
        assert.is_false(eng:tensor(p):requires_grad())
        assert.is_true(p:clone():requires_grad())
        assert.equal(2, p:t():get(2, 1))
      end)

      it("frees nothing that is saved", function()
        local eng = open()
        local p = eng:param({ 2 }, { 1, 2 })
        local y = p:exp()
        local z = y:sum()
        assert.matches("saved", message_of(eng.free, eng, y), 1, true)
        assert.matches("not pinned", message_of(eng.unpin, eng, y), 1, true)
        eng:pin(y)
        eng:unpin(y)
        assert.matches("not pinned", message_of(eng.unpin, eng, y), 1, true)
        z:backward()
        eng:free(y)
        assert.equal(0, pins(eng))
      end)

      it("knows when the op has no gradient to give", function()
        local eng = open()
        local x = eng:tensor { 1, 2 }
        assert.matches("requires grad", message_of(function() (x * 2):sum():backward() end), 1, true)
        local p = eng:param({ 2 }, 1)
        local y = (p * 2):detach()
        assert.matches("does not require grad", message_of(y.backward, y), 1, true)
        assert.matches("is the result of a recorded op", message_of(function() (p * 2):requires_grad(false) end), 1, true)
        p:requires_grad(false)
        assert.is_false((p * 2):requires_grad())
      end)

      it("gives the same trajectory with resets wherever they may be", function()
        local function train(eng, reset)
          local w, b = eng:param({ 4, 3 }, { 0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 0.8, -0.9, 0.1, 0.2, 0.3 }), eng:param({ 3 })
          local losses = {}
          for step = 1, 12 do
            for sample = 1, 3 do
              local x = eng:tensor { { step / 10, sample / 3, -0.5, step * sample / 20 } }
              local target = eng:tensor({ (step + sample) % 3 + 1 }, { dtype = "i64" })
              local hidden = (x:matmul(w) + b):tanh()
              local loss = (hidden * hidden):log_softmax():mul(-1):cross_entropy(target)
              if sample == 1 then losses[step] = loss:item() end
              if reset == "between" then eng:reset() end
              loss:backward()
              if reset then eng:reset() end
            end
            eng:sgd(w, w.grad, 0.1)
            eng:sgd(b, b.grad, 0.1)
            w.grad, b.grad = 0, 0
          end
          return losses, w:bytes()
        end
        local want, final = train(engines.open "cpu")
        for _, reset in ipairs { false, "after", "between" } do
          local losses, w = train(open(), reset)
          assert.same(want, losses)
          assert.equal(final, w)
        end
      end)

      it("leaves nothing behind", function()
        local eng = open()
        local p = eng:param({ 8, 8 }, 0.5)
        collectgarbage() collectgarbage()
        local owned = eng:stats().owned_bytes
        for i = 1, 300 do
          local y = p:matmul(p):tanh()
          if i % 2 == 0 then y:sum():backward() end
          if i % 3 == 0 then eng:reset() end
        end
        collectgarbage() collectgarbage() collectgarbage()
        assert.equal(0, pins(eng))
        assert.equal(owned, eng:stats().owned_bytes)
      end)
    end)
  end)

  engines.each_arena(function(name, open)
    describe("and resets on " .. name, function()
      it("runs back from a stale tensor, with what was saved and dy alone", function()
        local eng = open()
        local p = eng:param({ 4 }, { 0.1, 0.2, 0.3, 0.4 })
        local y = (p:exp() * p):tanh() + 0 -- itself saved by nothing
        local dy = eng:persistent({ 4 }, 1)
        local want = perilune.grad((p:exp() * p):tanh(), p, { grad_outputs = dy }):totable()
        eng:reset()
        for i = 1, 50 do eng:full({ 4 }, i) end -- other tensors take headers and memory
        assert.is_false(y:is_valid())
        y:backward(dy)
        assert.same(want, p.grad:totable())
        assert.equal(0, pins(eng))
        assert.matches("its backward has run", message_of(y.backward, y, dy), 1, true)
        local z, stale = p * 2, eng:ones { 4 }
        eng:reset()
        assert.matches("argument 'dy' is stale", message_of(z.backward, z, stale), 1, true)
      end)

      it("keeps the gradient of a leaf that is stale", function()
        local eng = open()
        local x = eng:tensor({ 1, 2 }):requires_grad(true)
        local loss = (x * x):sum()
        eng:reset()
        loss:backward()
        assert.same({ 2, 4 }, x.grad:totable())
      end)

      it("drops graphs older than graph_resets, and says so", function()
        local eng = open { graph_resets = 3 }
        local p = eng:param({ 4 }, 1)
        local y = p:exp()
        for _ = 1, 3 do eng:reset() end
        assert.is_true(pins(eng) > 0)
        eng:reset()
        assert.equal(0, pins(eng))
        assert.matches("older than 3 resets", message_of(y.backward, y, eng:ones { 4 }), 1, true)
        for _ = 1, 20 do eng:zeros { 4 } end
        assert.matches("older than 3 resets", message_of(y.backward, y, eng:ones { 4 }), 1, true)
      end)

      it("leaks no pins of forwards, with the collector or without", function()
        for _, collect in ipairs { false, true } do
          local eng = open()
          local p = eng:param({ 16, 16 }, 0.1)
          if not collect then collectgarbage "stop" end
          for _ = 1, 5 do p:matmul(p):tanh():exp() end
          for i = 1, 1000 do
            eng:reset()
            if collect and i % 100 == 0 then collectgarbage() end
          end
          collectgarbage "restart"
          local stats = eng:stats()
          assert.equal(0, stats.pins)
          assert.equal(0, stats.offset)
        end
      end)

      it("lets the collector drop a graph without any reset", function()
        local eng = open()
        local p = eng:param({ 16, 16 }, 0.1)
        local y = p:matmul(p):tanh()
        local keep = p:exp()
        assert.is_true(pins(eng) > 0)
        y = nil -- luacheck: ignore
        collectgarbage() collectgarbage()
        assert.is_true(keep:requires_grad()) -- it was recorded with y and keeps both
        keep = nil -- luacheck: ignore
        collectgarbage() collectgarbage()
        assert.equal(0, pins(eng))
      end)

      it("bounds what forwards without backward hold", function()
        local eng = open()
        local p = eng:param({ 16, 16 }, 0.1)
        local most = 0
        for _ = 1, 400 do
          p:matmul(p):tanh()
          eng:reset()
          most = math.max(most, pins(eng))
        end
        assert.is_true(most <= 65 * 4)
      end)

      it("lives in scopes and beyond them", function()
        local eng = open()
        local p = eng:param({ 3 }, { 1, 2, 3 })
        local y = eng:scope(function() return p:exp() * p end)
        y:backward(eng:ones { 3 })
        local want = {}
        for i = 1, 3 do want[i] = math.exp(i) * (1 + i) end
        for i, v in ipairs(p.grad:totable()) do assert.near(want[i], v, 1e-4) end
        assert.equal(0, pins(eng))
      end)
    end)
  end)
end)
