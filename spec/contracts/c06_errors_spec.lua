-- SPDX-License-Identifier: MIT
-- C6: what cannot be captured is an error by name, and a capture that fails leaves all as it was.

local perilune = require "perilune"
local core = require "perilune.core"
local engines = require "spec.support.engines"
local footing = require "spec.support.footing"

local library = core.library
local check_arena = footing.check_arena

local function collect() for _ = 1, 4 do collectgarbage() end end

local function fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected: " .. text)
  assert.matches(text, message, 1, true)
  return message
end

describe("C6 capture errors", function()
  after_each(engines.close)

  engines.each(function(name, open)
    describe("on " .. name, function()
      local function set_first(x) x:set(1, 1) end
      for what, fn in pairs {
        ["item: reading a tensor"] = function(_, x) return x:sum():item() end,
        ["get: reading a tensor"] = function(_, x) return x:get(1) end,
        ["totable: reading a tensor"] = function(_, x) return x:totable() end,
        ["bytes: reading a tensor"] = function(_, x) return x:bytes() end,
        ["reading a tensor"] = function(_, x) return tostring(x) end,
        ["set: writing values"] = function(_, x) set_first(x) end,
        ["set_bytes: uploading values"] = function(_, x) x:set_bytes(("x"):rep(8)) end,
        ["tensor: uploading values"] = function(eng) eng:tensor { 1 } end,
        ["persistent: uploading values"] = function(eng) eng:persistent({ 2 }, 0) end,
        ["param: uploading values"] = function(eng) eng:param { 2 } end,
        ["reset: ending the epoch"] = function(eng) eng:reset() end,
        ["sync: waiting for the stream"] = function(eng) eng:sync() end,
        ["close: closing the engine"] = function(eng) eng:close() end,
        ["scope: opening a scope"] = function(eng) eng:scope(function() end) end,
        ["rng: setting the random state"] = function(eng) eng:rng { 0, 0 } end,
        ["a capture"] = function(eng) eng:capture(function() end) end,
      } do
        it(("refuses %q inside, swallowed or not, and goes on"):format(what), function()
          local eng = open()
          local x = eng:persistent({ 2 }, { 1, 2 })
          local y
          local function program()
            y = x * 3
            eng:rand { 2 }
            fn(eng, x)
          end
          for _, f in ipairs { program, function() pcall(program) end } do
            collect()
            local before = footing.of(eng)
            local message = fails("is not possible during a capture", eng.capture, eng, f)
            assert.matches(what, message, 1, true)
            if what ~= "reading a tensor" then assert.matches("c06_errors_spec.lua:%d+: ", message) end -- tostring is Lua's
            fails("was freed at", y.totable, y)
            y = nil
            collect()
            assert.same(before, footing.of(eng))
            check_arena(eng)
          end
          local step, z = eng:capture(function() return x * 3 end)
          step:replay()
          assert.same({ 3, 6 }, z:totable())
        end)
      end

      it("refuses a replay and a release inside another capture and a capture inside a backward", function()
        local eng = open()
        local x = eng:param({ 2 }, 1)
        local step = eng:capture(function() return x * 2 end)
        fails("a replay is not possible during a capture", eng.capture, eng, function() step:replay() end)
        fails("a release is not possible during a capture", eng.capture, eng, function() step:release() end)
        local op = perilune.op {
          name = "op",
          forward = function(_, v) return v * 1 end,
          backward = function(_, g)
            eng:capture(function() return g * 2 end)
            return g
          end,
        }
        local y = op(x):sum()
        fails("a capture is not possible during a backward", y.backward, y)
        step:replay()
      end)

      it("passes the function's own errors on and leaves all as it was", function()
        local eng = open()
        local w = eng:param({ 3 }, 2)
        local keep = eng:ones { 2 }
        local values = { {}, "text" }
        for i, f in ipairs {
          function()
            local y = (w:dropout(0.5) * 2):sum()
            y:backward()
            eng:sgd(w, w.grad, 0.1)
            error(values[1])
          end,
          function() return w:matmul(keep) end,
          function() coroutine.yield() end,
          function()
            eng:pin(w:exp())
            error(values[2], 0)
          end,
        } do
          collect()
          local before = footing.of(eng)
          local ok, message
          coroutine.wrap(function() ok, message = pcall(eng.capture, eng, f) end)()
          assert.is_false(ok)
          if i == 1 then assert.equal(values[1], message) end
          if i == 2 then assert.matches("matmul: ", message, 1, true) end
          if i == 3 then assert.matches("yield", message, 1, true) end
          if i == 4 then assert.equal("text", message) end
          collect()
          assert.same(before, footing.of(eng))
          assert.same({ 2, 2, 2 }, w:totable())
          assert.same({ 0, 0, 0 }, w.grad:totable())
          check_arena(eng)
        end
        assert.same({ 1, 1 }, keep:totable())
        fails("a function was expected, got the number 3", eng.capture, eng, 3)
        local op = eng:capture(function() pcall(w.matmul, w, keep) end) -- an eager step would have gone on after it, too
        op:replay()
      end)

      it("checks its arguments", function()
        local eng = open()
        local step = eng:capture(function() end)
        step:replay()
        fails("argument 'n': a number of steps was expected, got -1", step.replay, step, -1)
        fails("replay: argument 'n'", step.replay, step, 1.5)
        fails("replay: argument 'n'", step.replay, step, "many")
        fails("replay: a capture was expected (call it with a colon: step:replay()), got nothing", step.replay)
        fails("has no method 'repaly' (did you mean 'replay'?)", function() return step.repaly end)
        fails("has no field 'x' to set", function() step.x = 1 end)
        assert.matches("captured step of 0 calls, replayed 1 times", tostring(step), 1, true)
        step:release()
        assert.matches("ended", tostring(step), 1, true)
        assert.is_false(step:is_valid())
      end)

      it("leaves nothing behind when any allocation in it fails", function()
        local function program(eng, w, x)
          return function()
            local y = (x:matmul(w):dropout(0.2) + eng:rand { 3 }):tanh()
            y:sum():backward()
            eng:sgd(w, w.grad, 0.1)
            return y
          end
        end
        local n, failures = 1, 0
        repeat
          local eng = open()
          local w, x = eng:param({ 4, 3 }, 0.5), eng:tensor { { 1, 2, 3, 4 }, { 4, 3, 2, 1 } }
          local before = footing.of(eng)
          library.alloc_fail_at(n)
          local ok, message = pcall(eng.capture, eng, program(eng, w, x))
          local made = library.alloc_fail_at(0)
          if not ok then
            failures = failures + 1
            assert.matches("memory", message, 1, true)
            collect()
            assert.same(before, footing.of(eng))
            check_arena(eng)
          end
          local step = eng:capture(program(eng, w, x))
          step:replay()
          assert.is_true(w:get(1, 1) ~= 0.5)
          eng:close()
          n = n + 1
          assert.is_true(n < 500)
        until made < n - 1
        assert.is_true(failures > 10)
      end)
    end)
  end)

  engines.each_arena(function(name, open)
    it("does not overflow during a capture on " .. name, function()
      local eng = open { arena = "64KiB" }
      local x = eng:persistent({ 1024 }, 1)
      local before = footing.of(eng)
      local function program()
        local y = x
        for _ = 1, 40 do y = y + 1 end
        return y
      end
      local message = fails("add: out of memory", eng.capture, eng, program)
      assert.matches("must not overflow now", message, 1, true)
      fails("the function went on after an error: add: out of memory", eng.capture, eng, function() pcall(program) end)
      collect()
      assert.same(before, footing.of(eng))
      assert.equal("", eng.arena:check())
      local step, y = eng:capture(function() return x + 1 end)
      for i = 1, 100 do eng:full({ 512 }, i) end -- outside it may
      step:replay()
      assert.equal(2, y:get(1024))
    end)

    it("refuses a stale tensor in the function on " .. name, function()
      for _, stale in ipairs { "error", "allow" } do
        local eng = open { stale = stale }
        local x = eng:tensor { 1 }
        eng:reset()
        fails("stale", eng.capture, eng, function() return x + 1 end)
        assert.equal("", eng.arena:check())
        local y = eng:tensor { 1 }
        local step, z = eng:capture(function() return y + 1 end)
        eng:reset()
        step:replay()
        assert.equal(2, z:item())
        eng:close()
      end
    end)
  end)
end)
