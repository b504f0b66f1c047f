-- SPDX-License-Identifier: MIT
-- C3: pins are counted; a pinned block survives resets unpoisoned and is never issued again until its last unpin and the next reset.

local engines = require "spec.support.engines"

describe("C3 pins", function()
  after_each(engines.close)

  engines.each_arena(function(name, open)
    describe("on " .. name, function()
      it("keeps a pinned block through resets, with its values and its handle", function()
        local eng = open()
        local before = eng:tensor { 9, 9 }
        local x = eng:tensor { 1, 2, 3 }
        local address = x:address()
        eng:pin(x)
        for i = 1, 20 do
          eng:reset()
          for _ = 1, 50 do eng:full({ 3 }, -i) end
          assert.same({ 1, 2, 3 }, x:totable())
          assert.equal(address, x:address())
        end
        assert.is_false(before:is_valid())
        assert.equal(1, eng:stats().pins)
      end)

      it("leaves the block valid after the last unpin until the next reset", function()
        local eng = open()
        local x = eng:tensor { 1, 2 }
        eng:pin(x)
        eng:reset()
        eng:unpin(x)
        assert.same({ 1, 2 }, x:totable())
        eng:reset()
        assert.is_false(x:is_valid())
        assert.equal("", eng.arena:check())
      end)

      it("counts", function()
        local eng = open()
        local x = eng:tensor { 7 }
        eng:pin(x)
        eng:pin(x)
        eng:unpin(x)
        eng:reset()
        assert.equal(7, x:item())
        eng:unpin(x)
        local ok, message = pcall(eng.unpin, eng, x)
        assert.is_false(ok)
        assert.matches("one unpin too many", message, 1, true)
        assert.equal(0, eng:stats().pins)
        assert.equal(7, x:item()) -- the refused unpin changed nothing
      end)

      it("pins the base's block through a view, and every view of it lives on", function()
        local eng = open()
        local x = eng:tensor { { 1, 2 }, { 3, 4 } }
        local v = x:t()[2]
        eng:pin(v)
        eng:reset()
        assert.same({ 2, 4 }, v:totable())
        assert.same({ { 1, 2 }, { 3, 4 } }, x:totable())
        eng:unpin(x)
        eng:reset()
        assert.is_false(v:is_valid())
        assert.is_false(x:is_valid())
      end)

      it("refuses to free a pinned block", function()
        local eng = open()
        local x = eng:tensor { 1 }
        eng:pin(x)
        local ok, message = pcall(eng.free, eng, x)
        assert.is_false(ok)
        assert.matches("pinned", message, 1, true)
        assert.equal(1, x:item())
      end)

      it("uses the gaps between pinned blocks again", function()
        local eng = open { arena = "64KiB" }
        local pinned, gaps = {}, {}
        for i = 1, 16 do
          gaps[i] = eng:full({ 256 }, i)
          pinned[i] = eng:full({ 16 }, i)
          eng:pin(pinned[i])
        end
        eng:reset()
        local capacity = eng:stats().capacity
        local free = eng:stats().free_bytes
        assert.is_true(free < capacity and free > 16 * 1024)
        local filled = 0
        while eng:stats().overflow_blocks == 0 do
          eng:full({ 256 }, -1)
          filled = filled + 1
        end
        assert.is_true(filled * 1024 > free / 2, "the gaps were not used")
        for i = 1, 16 do assert.equal(i, pinned[i]:get(16)) end
        assert.equal("", eng.arena:check())
      end)

      it("bounds the arena when every step pins one tensor late", function()
        local eng = open { arena = "256KiB" }
        local last
        for step = 1, 300 do
          for _ = 1, 10 do eng:full({ 64 }, step) end
          local keep = eng:full({ 64 }, step)
          eng:pin(keep)
          if last then
            assert.equal(step - 1, last:get(64))
            eng:unpin(last)
          end
          last = keep
          eng:reset()
        end
        local s = eng:stats()
        assert.equal(1, s.pins)
        assert.is_true(s.high_water < 32 * 1024, "high water " .. s.high_water)
        assert.equal(0, s.overflow_blocks)
      end)
    end)
  end)

  it("only counts on an engine without an arena", function()
    local eng = engines.open "cpu"
    local x = eng:tensor { 1 }
    eng:pin(x)
    assert.equal(1, eng:stats().pins)
    assert.is_false(pcall(eng.free, eng, x))
    eng:unpin(x)
    assert.equal(0, eng:stats().pins)
    assert.is_false(pcall(eng.unpin, eng, x))
  end)
end)
