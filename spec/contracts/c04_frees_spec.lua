-- SPDX-License-Identifier: MIT
-- C4: late frees do nothing but count, double frees do nothing, and neither results nor peak memory depend on the collector.

local engines = require "spec.support.engines"

describe("C4 frees", function()
  after_each(engines.close)

  engines.each_arena(function(name, open)
    describe("on " .. name, function()
      it("returns a freed block for reuse within the epoch", function()
        local eng = open()
        local x = eng:full({ 100 }, 1)
        local address = x:address()
        local after = eng:full({ 100 }, 2)
        eng:free(x)
        local y = eng:full({ 100 }, 3)
        assert.equal(address, y:address())
        assert.equal(2, after:get(100))
        assert.equal(1, eng:stats().reuses)
      end)

      it("says where a tensor was freed, for its views too", function()
        local eng = open()
        local x = eng:tensor { { 1, 2 }, { 3, 4 } }
        local v = x:t()
        eng:free(v) -- ends the storage and all its views
        local line = debug.getinfo(1, "l").currentline - 1
        for _, t in ipairs { x, v } do
          local ok, message = pcall(function() return t + 1 end)
          assert.is_false(ok)
          assert.matches("freed at [^ ]*c04_frees_spec.lua:" .. line, message)
        end
      end)

      it("does nothing on a double free", function()
        local eng = open()
        local x = eng:tensor { 1 }
        eng:free(x)
        local y = eng:tensor { 2 } -- perhaps in the same memory
        eng:free(x)
        assert.equal(2, y:item())
        assert.equal("", eng.arena:check())
      end)

      it("does nothing but count when the free comes after the reset", function()
        local eng = open()
        local x = eng:tensor { 1, 2, 3, 4 }
        eng:reset()
        local y = eng:full({ 4 }, 5)
        eng:free(x)
        assert.same({ 5, 5, 5, 5 }, y:totable())
        assert.equal(1, eng:stats().stale_frees)
        local z = eng:full({ 4 }, 6)
        assert.is_true(z:address() ~= y:address())
      end)

      it("ignores finalizers that run after the reset", function()
        -- more than half of the arena, so that handles have finalizers
        local eng = open { arena = "64KiB" }
        local function fill() for _ = 1, 60 do eng:full({ 256 }, 1) end end
        fill()
        eng:reset()
        local kept = {}
        for i = 1, 60 do kept[i] = eng:full({ 256 }, i) end
        collectgarbage() collectgarbage()
        for i = 1, 60 do assert.equal(i, kept[i]:get(256)) end
        assert.is_true(eng:stats().stale_frees > 0, "no finalizer came late")
        local more = {}
        for i = 1, 20 do more[i] = eng:full({ 256 }, -i) end
        for i = 1, 60 do assert.equal(i, kept[i]:get(1)) end
        assert.equal("", eng.arena:check())
      end)

      it("survives 10,000 rounds of resets with random collector steps", function()
        local eng = open { arena = "64KiB" }
        local seed = 1
        local function random(n)
          seed = (seed * 1103515245 + 12345) % 2147483648
          return math.floor(seed / 65536) % n
        end
        for round = 1, 10000 do
          local a = eng:full({ 1 + random(300) }, round)
          local b = random(3) == 0 and eng:full({ 1 + random(2000) }, -round) or nil
          if random(4) == 0 then eng:free(a) a = nil end
          if random(5) == 0 then collectgarbage("step", random(50)) end
          if a then assert(a:get(1) == round) end
          if b then assert(b:get(1) == -round) end
          if random(3) == 0 then eng:reset() end
        end
        assert.equal("", eng.arena:check())
      end)

      it("gives the same bits and peak memory whatever the collector does", function()
        local function run(before_op)
          local eng = open { arena = "1MiB", poison = true }
          local w = eng:persistent({ 8, 8 }, 0.1)
          for step = 1, 40 do
            local x = eng:full({ 4, 8 }, step / 40)
            for _ = 1, 20 do
              before_op()
              x = (x + 1) * 0.5
              x = x:tanh()
            end
            before_op()
            eng:add(w, x[1], w)
            eng:reset()
          end
          return w:bytes(), eng:stats().high_water
        end
        local usual_bits, usual_peak = run(function() end)
        collectgarbage "stop"
        local stopped_bits, stopped_peak = run(function() end)
        collectgarbage "restart"
        local full_bits, full_peak = run(function() collectgarbage() end)
        assert.equal(usual_bits, stopped_bits)
        assert.equal(usual_bits, full_bits)
        assert.equal(usual_peak, stopped_peak)
        assert.equal(usual_peak, full_peak)
      end)
    end)
  end)

  engines.each(function(name, open)
    it("bounds 1,000,000 dropped temporaries without a collection by the user on " .. name, function()
      local eng = open()
      local x = eng:persistent({ 64 }, 1)
      local function resident()
        for line in io.lines "/proc/self/status" do
          local kb = line:match "^VmRSS:%s+(%d+)"
          if kb then return tonumber(kb) end
        end
      end
      for _ = 1, 50000 do local _ = x + 1 end
      local before = resident()
      for _ = 1, 1000000 do local _ = x + 1 end
      assert.is_true(resident() - before < 200 * 1024, ("grew by %d KiB"):format(resident() - before))
    end)
  end)
end)
