-- SPDX-License-Identifier: MIT
-- C5: everything is ordered on the engine's stream; reads wait, writes are staged. `stress` shows it: its ops run late.

local engines = require "spec.support.engines"

describe("C5 order", function()
  after_each(engines.close)

  it("queues ops on stress: N ops queued after N ops, none after a read", function()
    local eng = engines.open "stress"
    local x = eng:persistent({ 4 }, 1)
    eng:sync()
    for n = 1, 25 do
      x = x + 1
      assert.equal(n, eng:stats().queued)
    end
    assert.equal(26, x:get(1))
    assert.equal(0, eng:stats().queued)
  end)

  it("reads poison on stress where the wait is left out", function()
    local core = require "perilune.core"
    local eng = engines.open "stress"
    eng:sync() -- the arena is poisoned from its start
    local x = eng:full({ 4 }, 2) + 3
    local early = core.library.peek(x, 1) -- no wait
    assert.is_true(early ~= early, "poison was expected, got " .. tostring(early))
    assert.equal(5, x:get(1))
    assert.equal(5, core.library.peek(x, 1))
  end)

  engines.each(function(name, open)
    describe("on " .. name, function()
      it("lets every kind of read see all ops before it", function()
        local eng = open()
        local x = eng:persistent({ 2, 2 }, 0)
        for i = 1, 200 do eng:add(x, 1, x) end
        assert.equal(200, x:get(2, 2))
        eng:add(x, 1, x)
        assert.same({ { 201, 201 }, { 201, 201 } }, x:totable())
        eng:add(x, 1, x)
        assert.same({ 202, 202 }, x[1]:totable())
        eng:add(x, 1, x)
        assert.equal(203 * 4, x:sum():item())
        eng:add(x, 1, x)
        assert.matches("204", tostring(x), 1, true)
        eng:add(x, 1, x)
        assert.equal(205, eng:tensor { 0 }:copy(x[{ 1, { 1, 1 } }]):item())
      end)

      it("copies Lua values before a write returns", function()
        local eng = open()
        local values = { 1, 2, 3 }
        local x = eng:tensor(values)
        values[1] = 100
        values = nil -- luacheck: ignore
        collectgarbage()
        assert.same({ 1, 2, 3 }, x:totable())
        local big = {}
        for i = 1, 5000 do big[i] = i end
        local y = eng:tensor(big)
        for i = 1, 5000 do big[i] = -1 end
        collectgarbage()
        assert.equal(5000, y:get(5000))
      end)

      it("orders writes among ops", function()
        local eng = open()
        local x = eng:persistent({ 3 }, 1)
        local y = x + 1
        x:set(2, 50)
        local z = x + 1
        x[3] = 7
        local w = x + 1
        assert.same({ 2, 2, 2 }, y:totable())
        assert.same({ 2, 51, 2 }, z:totable())
        assert.same({ 2, 51, 8 }, w:totable())
      end)

      it("copies between engines in order of both", function()
        local eng, other = open(), engines.open "cpu"
        local x = eng:persistent({ 64 }, 1)
        for _ = 1, 50 do eng:mul(x, 1.01, x) end
        local there = x:to(other)
        eng:zero(x)
        assert.is_true(there:get(1) > 1.6)
        other:add(there, 1, there)
        local back = there:to(eng)
        other:zero(there)
        assert.is_true(back:get(64) > 2.6)
        assert.equal(0, x:get(1))
        assert.equal(other, there.engine)
      end)

      it("does not let a table of a read tensor change the tensor", function()
        local eng = open()
        local x = eng:tensor { 1, 2 }
        local t = x:totable()
        t[1] = 99
        assert.same({ 1, 2 }, x:totable())
      end)

      it("keeps scratch and temporaries alive until their ops ran", function()
        local eng = open()
        local x = eng:full({ 37, 41 }, 1)
        local sum
        for _ = 1, 30 do -- each makes temporaries: casts, overlapping destinations
          local i = x:to "i32"
          eng:add(x, i, x)
          eng:mul(x, 0.5, x)
          sum = x:t():sum(1)
        end
        assert.equal(37 * 1 ~= 0 and 41, #sum > 0 and #x:t())
        assert.equal(1, x:get(37, 41))
      end)
    end)
  end)
end)
