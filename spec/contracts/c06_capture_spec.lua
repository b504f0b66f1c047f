-- SPDX-License-Identifier: MIT
-- C6: a function is recorded once, executes nothing, and its replays give the bits of as many eager steps, whatever the arena and the collector
-- do in between.

local perilune = require "perilune"
local core = require "perilune.core"
local engines = require "spec.support.engines"
local footing = require "spec.support.footing"
local hooks = require "perilune.hooks"
local steps = require "spec.support.steps"

local library = core.library
local check_arena = footing.check_arena

local function collect() for _ = 1, 4 do collectgarbage() end end

local function fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected: " .. text)
  assert.matches(text, message, 1, true)
  return message
end

--- A counter, a row of data that it picks, and a sum.
local function small(eng)
  local data = eng:persistent({ 4, 2 }, { 1, 2, 3, 4, 5, 6, 7, 8 })
  local counter, sum = eng:persistent({ 1 }, 1, { dtype = "i64" }), eng:persistent { 2 }
  local p = { data = data, counter = counter, sum = sum }
  p.step = function()
    p.row = data:index_select(1, counter)
    eng:add(sum, p.row[1] * 2, sum)
    eng:add(counter, 1, counter)
  end
  return p
end

describe("C6 capture", function()
  after_each(engines.close)

  engines.each(function(name, open)
    local arena = name ~= "cpu"

    describe("on " .. name, function()
      it("runs the function once and executes nothing", function()
        local eng, ran = open(), 0
        local p = small(eng)
        local versions = { p.sum:version(), p.counter:version(), p.data:version() }
        local before = footing.of(eng)
        local step, value = eng:capture(function()
          ran = ran + 1
          p.step()
          eng:rand { 2 }
          return "value"
        end)
        assert.equal("value", value)
        assert.equal(1, ran)
        local after = footing.of(eng)
        for _, what in ipairs { "calls", "queued", "draw" } do assert.equal(before[what], after[what], what) end
        assert.same({ 0, 0 }, p.sum:totable())
        assert.equal(1, p.counter:item())
        assert.same(versions, { p.sum:version(), p.counter:version(), p.data:version() })
        step:replay()
        assert.same({ 2, 4 }, p.sum:totable())
        step:replay(2)
        assert.same({ 18, 24 }, p.sum:totable())
        assert.same({ { 5, 6 } }, p.row:totable())
        assert.equal(1, ran)
        assert.equal(3, step:stats().replays)
        assert.equal(4, p.counter:item())
        step:replay(0)
        assert.equal(4, p.counter:item())
        p.counter:set(1, 1)
        local calls = eng:stats().calls
        step:replay(3)
        assert.equal(calls + 3 * step:stats().calls, eng:stats().calls)
      end)

      for program, make in pairs { hazard = steps.hazard, attention = steps.attention, mlp = steps.mlp } do
        it(("gives the bits of 1000 eager steps of the %s loop through resets, garbage and collections"):format(program), function()
          local eager, captured = open(), open()
          local a, b = make(eager), make(captured)
          for _ = 1, 1000 do
            a.step()
            eager:reset()
          end
          local step, made = captured:capture(b.step)
          local done = 0
          while done < 1000 do
            local n = math.min(done % 7 + 1, 1000 - done)
            step:replay(n)
            done = done + n
            if done % 3 > 0 then captured:reset() end
            for i = 1, done % 5 do captured:full({ (done * i) % 300 + 1 }, 0 / 0) end
            if done % 50 < 4 then collectgarbage() end
          end
          local want, got = steps.read(a), steps.read(b)
          for what in pairs(want) do assert.is_true(want[what] == got[what], what .. " differs") end
          assert.same(eager:rng(), captured:rng())
          local result = a.step()
          step:replay()
          assert.equal(result:bytes(), made:bytes())
          check_arena(captured)
        end)
      end

      if arena then
        it("leaves red zones alone", function()
          local eager, captured = open(), open { poison = { redzone = 64 } }
          local a, b = steps.mlp(eager), steps.mlp(captured)
          local step = captured:capture(b.step)
          for _ = 1, 20 do
            a.step()
            eager:reset()
            step:replay()
            captured:reset()
            captured:full({ 50 }, 1)
          end
          captured:sync()
          local want, got = steps.read(a), steps.read(b)
          for what in pairs(want) do assert.is_true(want[what] == got[what], what .. " differs") end
          step:release()
          captured:reset()
          captured:sync()
        end)
      end

      it("goes on where eager steps left off and the other way round", function()
        local eager, mixed = open(), open()
        local a, b = steps.mlp(eager), steps.mlp(mixed)
        local step
        for i = 1, 40 do
          a.step()
          eager:reset()
          if i == 10 then step = mixed:capture(b.step) end
          if i < 10 or i % 4 == 0 then b.step() else step:replay() end
          mixed:reset()
        end
        local want, got = steps.read(a), steps.read(b)
        for what in pairs(want) do assert.is_true(want[what] == got[what], what .. " differs") end
        assert.same(eager:rng(), mixed:rng())
      end)

      it("draws the numbers of eager steps whatever the state of the generator is set to", function()
        local eng = open()
        local function program() return eng:rand { 3 }, eng:randn { 2 }, eng:randint(1, 7, { 4 }), eng:ones { 40 }:dropout(0.5) end
        local step, a, b, c, d = eng:capture(program)
        for _, state in ipairs { { 0, 0 }, { 5, 100 }, { 5, 7 }, { 9, 2 ^ 40 } } do
          eng:rng(state)
          local want = {}
          for i = 1, 3 do
            local made = { program() }
            for k = 1, 4 do want[i * 4 + k] = made[k]:bytes() end
          end
          local after = eng:rng()
          eng:rng(state)
          for i = 1, 3 do
            step:replay()
            for k, t in ipairs { a, b, c, d } do assert.is_true(want[i * 4 + k] == t:bytes(), "draw " .. k) end
          end
          assert.same(after, eng:rng())
        end
      end)

      it("takes more draw numbers than lie in one tensor", function()
        local eng = open()
        local function program()
          local sum = eng:zeros { 2 }
          for _ = 1, 70 do sum = sum + eng:rand { 2 } end
          return sum
        end
        local step, sum = eng:capture(program)
        for _ = 1, 3 do
          step:replay(2)
          local after = eng:rng()
          local replayed = sum:bytes()
          eng:rng { after[1], after[2] - 70 }
          assert.is_true(program():bytes() == replayed)
        end
      end)

      it("draws a checkpoint's numbers twice", function()
        local results = {}
        for round = 1, 2 do
          local eng = open()
          local w = eng:param({ 6 }, { 1, 2, 3, 4, 5, 6 })
          local function program()
            perilune.checkpoint(function(x) return (x * x):dropout(0.5) end, w):sum():backward()
            return eng:rand { 2 }
          end
          if round == 1 then
            for _ = 1, 3 do program() end
          else
            eng:capture(program):replay(3)
          end
          results[round] = { w.grad:totable(), eng:rng()[2] }
        end
        assert.same(results[1], results[2])
      end)

      it("freezes Lua's numbers and control flow, not tensors", function()
        local eng = open()
        local x, n, taken = eng:persistent({ 2 }, { 1, 2 }), 3, true
        local step, y = eng:capture(function()
          if taken then return x * n end
          return x + n
        end)
        n, taken = 100, false
        step:replay()
        assert.same({ 3, 6 }, y:totable())
        x:set(1, 5)
        x[2] = 7
        step:replay()
        assert.same({ 15, 21 }, y:totable())
      end)

      it("keeps what it made valid until the release, then until the next reset", function()
        local eng = open()
        local x, shown = eng:tensor { 1, 2 }, eng:tensor { 5, 3 }
        local step, y, view = eng:capture(function()
          local y = x + 1
          return y, shown[{ { 2, 2 } }]
        end)
        local addresses = { x:address(), y:address() }
        for i = 1, 20 do
          eng:reset()
          for k = 1, 30 do eng:full({ 2 }, -k) end
          x:set(1, i)
          step:replay()
          assert.same({ i + 1, 3 }, y:totable())
          assert.same({ 3 }, view:totable())
          assert.same(addresses, { x:address(), y:address() })
        end
        step:release()
        assert.same({ 21, 3 }, y:totable())
        check_arena(eng)
        eng:reset()
        if arena then
          assert.is_false(y:is_valid())
          assert.is_false(x:is_valid())
          assert.is_false(view:is_valid())
          assert.equal(0, eng:stats().live_blocks)
          assert.equal(0, eng:stats().pinned_bytes)
        else
          assert.same({ 21, 3 }, y:totable())
        end
        check_arena(eng)
      end)

      it("refuses to free what it uses, and lets go of it with the release", function()
        local eng = open()
        local w, x = eng:persistent({ 2 }, 1), eng:tensor { 1, 2 }
        local step, y = eng:capture(function() return w * x end)
        for _, t in ipairs { w, x, y, w[1] } do fails("free: the tensor is used by a capture", eng.free, eng, t) end
        step:replay()
        assert.same({ 1, 2 }, y:totable())
        step:release()
        eng:free(w)
        fails("was freed at", w.totable, w)
        fails("replay: the capture was released at", step.replay, step)
        step:release()
      end)

      it("holds a persistent tensor that nobody else refers to any more", function()
        local eng = open()
        local before = eng:stats().owned_bytes
        local step, y = (function()
          local w = eng:persistent({ 1000 }, 2)
          return eng:capture(function() return w * 3 end)
        end)()
        collect()
        for _ = 1, 10 do eng:persistent({ 1000 }, -1) end
        step:replay()
        assert.equal(6, y:get(1000))
        step:release()
        y, step = nil, nil -- luacheck: ignore
        collect()
        eng:sync()
        if arena then assert.equal(before, eng:stats().owned_bytes) end
      end)

      it("is released by the collector only when its tensors are gone, too", function()
        local eng = open()
        local y = (function()
          local x = eng:tensor { 4 }
          local step, y = eng:capture(function() return x * 2 end)
          step:replay()
          return y
        end)()
        collect()
        eng:reset()
        for i = 1, 50 do eng:full({ 1 }, i) end
        assert.equal(8, y:item())
        y = nil -- luacheck: ignore
        collect()
        eng:reset()
        assert.equal(0, eng:stats().pinned_bytes)
        check_arena(eng)
        local w = eng:param({ 1 }, 3)
        local recorded = w * 2 -- before and after: the graph that is under way outside has no part in it
        y = (function()
          local step, inside = eng:capture(function() return (w * 5):exp() end)
          step:replay()
          return inside
        end)()
        local later = w * 4
        collect()
        eng:reset()
        for i = 1, 50 do eng:full({ 1 }, i) end
        assert.is_true(math.abs(y:item() - math.exp(15)) < 1)
        y = nil -- luacheck: ignore
        collect()
        later:backward()
        recorded:backward()
        assert.equal(6, w.grad:item())
        eng:reset()
        assert.equal(0, eng:stats().pinned_bytes)
      end)

      it("lets several captures share what they use", function()
        local eng = open()
        local x, sum = eng:tensor { 1, 2 }, eng:persistent { 2 }
        local one = eng:capture(function() eng:add(sum, x, sum) end)
        local two = eng:capture(function() eng:add(sum, x * 10, sum) end)
        eng:reset()
        one:replay()
        two:replay(2)
        one:release()
        eng:reset()
        two:replay()
        assert.same({ 31, 62 }, sum:totable())
        fails("used by a capture", eng.free, eng, sum)
        two:release()
        eng:free(sum)
      end)

      it("raises the version of what a replay writes", function()
        local eng = open()
        local x, out = eng:param({ 2 }, { 1, 2 }), eng:persistent { 2 }
        local step, y = eng:capture(function()
          eng:no_grad(function() eng:add(out, 1, out) end)
          return out * 2
        end)
        step:replay()
        local versions = { out:version(), y:version(), x:version() }
        step:replay()
        assert.is_true(out:version() > versions[1])
        assert.is_true(y:version() > versions[2])
        assert.equal(versions[3], x:version())
        for _, saved in ipairs { out, y } do
          local loss = (x * saved):sum()
          step:replay()
          fails("which was changed in place by", loss.backward, loss)
        end
        local loss = (x * out):sum()
        loss:backward()
        assert.same(out:totable(), x.grad:totable())
      end)

      it("uses the memory of temporaries again within the step, not what Lua has seen", function()
        local eng = open()
        local w = eng:param({ 1000 }, 0.5)
        local kept
        local step = eng:capture(function()
          local y = w
          for _ = 1, 20 do y = y:tanh() end
          kept = y
          y:sum():backward()
          eng:sgd(w, w.grad, 0.1)
          eng:zero(w.grad)
        end)
        local s = step:stats()
        assert.is_true(s.bytes < 30 * 4096, s.bytes .. " bytes are held") -- 20 results, some gradients, w and its gradient
        local other = open()
        local v, want = other:param({ 1000 }, 0.5)
        for _ = 1, 3 do
          want = v
          for _ = 1, 20 do want = want:tanh() end
          want:sum():backward()
          other:sgd(v, v.grad, 0.1)
          other:zero(v.grad)
        end
        step:replay(3)
        assert.is_true(v:bytes() == w:bytes())
        assert.is_true(want:bytes() == kept:bytes())
      end)

      it("holds as much whatever the collector does in the function", function()
        local held = {}
        for round = 1, 2 do
          local eng = open()
          local x = eng:persistent({ 1000 }, 1)
          local step = eng:capture(function()
            for _ = 1, 20 do
              local _ = x * 2 + 1
              if round == 2 then collect() end
            end
          end)
          held[round] = step:stats().bytes
        end
        assert.equal(held[1], held[2])
      end)

      it("is made and replayed within a scope and survives its end", function()
        local eng = open()
        local sum = eng:persistent { 2 }
        local step, y, x
        eng:scope(function()
          x = eng:tensor { 1, 2 }
          step, y = eng:capture(function()
            eng:add(sum, x, sum)
            return x * 2
          end)
          step:replay()
          eng:reset()
          eng:full({ 2 }, 9)
          step:replay()
        end)
        for i = 1, 10 do eng:full({ 2 }, i) end
        eng:scope(function() step:replay() end)
        eng:reset()
        step:replay()
        assert.same({ 4, 8 }, sum:totable())
        assert.same({ 2, 4 }, y:totable())
        step:release()
        eng:reset()
        if arena then assert.is_false(y:is_valid()) end
        check_arena(eng)
      end)

      it("raises what only data can tell at a later replay, with op and place", function()
        local eng = open()
        local p = small(eng)
        local step = eng:capture(p.step)
        step:replay(4)
        p.counter:set(1, 9)
        local ok, message = pcall(step.replay, step)
        if ok then
          assert.is_nil(name:match "^cpu") -- else it is known at once
          ok, message = pcall(eng.sync, eng)
        end
        assert.is_false(ok)
        assert.matches("index_select %(at [^ ]*c06_capture_spec.lua:%d+%): element 1 of 'index' is 9, valid are 1 to 4", message)
        p.counter:set(1, 2)
        eng:zero(p.sum)
        step:replay()
        assert.same({ 6, 8 }, p.sum:totable())
        p.data:index_select(1, eng:tensor({ 7 }, { dtype = "i64" }))
        local counter = p.counter:version()
        ok, message = pcall(step.replay, step)
        if ok then ok, message = pcall(eng.sync, eng) else assert.equal(counter, p.counter:version()) end
        assert.is_false(ok)
        assert.matches("is 7, valid are 1 to 4", message, 1, true)
      end)

      it("needs no Lua to replay", function()
        local eng = open()
        local p = steps.mlp(eng)
        local step = eng:capture(p.step)
        local replay, before = step.replay, p.state.p1:totable()
        local function run() for _ = 1, 20 do replay(step) end end
        hooks.watch(function(op) error("an op was called: " .. op) end, run)
        -- and with every function of the library and of the program replaced
        local undo = {}
        local function raise() error "Lua was called" end
        for module, t in pairs(package.loaded) do
          if module:match "^perilune" and type(t) == "table" then
            for key, value in pairs(t) do
              if type(value) == "function" then
                undo[#undo + 1] = { t, key, value }
                t[key] = raise
              end
            end
          end
        end
        p.step = raise
        local ok, message = pcall(run)
        for _, u in ipairs(undo) do u[1][u[2]] = u[3] end
        assert.is_true(ok, message)
        assert.is_true(#undo > 50)
        assert.is_not.same(before, p.state.p1:totable())
        assert.equal(40, step:stats().replays)
      end)

      it("ends with the engine", function()
        local eng = open()
        local x = eng:persistent({ 2 }, 1)
        local step = eng:capture(function() return x * eng:rand { 2 } end)
        step:replay(3)
        eng:close()
        fails("replay: the engine \"" .. name:match "^[%a-]+" .. "\" was closed at", step.replay, step)
        step:release()
        assert.is_false(step:is_valid())
      end)

      it("stops between two steps when interrupted", function()
        local eng = open()
        local p = small(eng)
        local step = eng:capture(function() eng:add(p.counter, 1, p.counter) end)
        library.interrupt(true)
        fails("replay: interrupted after 1 of 1000000000 steps", step.replay, step, 1e9)
        assert.equal(2, p.counter:item())
        step:replay()
        assert.equal(3, p.counter:item())
      end)
    end)
  end)
end)
