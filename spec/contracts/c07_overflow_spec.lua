-- SPDX-License-Identifier: MIT
-- C7: a full arena overflows into the device's pool with an arena block's lifetime; the first overflow of an epoch is reported.

local perilune = require "perilune"
local engines = require "spec.support.engines"

describe("C7 overflow", function()
  after_each(function()
    perilune.on_report(nil)
    engines.close()
  end)

  engines.each_arena(function(name, open)
    describe("on " .. name, function()
      it("serves blocks beyond the arena and takes them back at the reset", function()
        perilune.on_report(false)
        local eng = open { arena = "64KiB" }
        for step = 1, 100 do
          local all = {}
          for i, n in ipairs { 12, 100, 1000, 10000, 40000, 100000 } do all[i] = eng:full({ n }, step + i) end
          for i, n in ipairs { 12, 100, 1000, 10000, 40000, 100000 } do assert.equal(step + i, all[i]:get(n)) end
          assert.is_true(eng:stats().overflow_bytes >= 500000)
          eng:reset()
          assert.equal(0, eng:stats().overflow_bytes)
          assert.is_false(pcall(function() return all[6] + 1 end))
        end
        assert.is_true(eng:stats().overflow_high_water < 2000000)
      end)

      it("reports the first overflow of each epoch, once", function()
        local reports = {}
        perilune.on_report(function(r) reports[#reports + 1] = r end)
        local eng = open { arena = "4KiB" }
        for epoch = 1, 3 do
          for _ = 1, 5 do eng:full({ 2000 }, 1) end
          assert.equal(epoch, #reports)
          eng:reset()
        end
        local r = reports[3]
        assert.equal("overflow", r.kind)
        assert.equal(4096, r.capacity)
        assert.equal(8000, r.first_overflow)
        assert.equal(8000, r.largest_alloc)
        assert.equal(2, r.resets)
        assert.is_number(r.offset)
        assert.is_true(r.allocs >= 11)
        assert.matches("8000 bytes", r.message, 1, true)
      end)

      it("keeps a pinned overflow block until unpin and reset", function()
        perilune.on_report(false)
        local eng = open { arena = "4KiB" }
        local x = eng:full({ 5000 }, 3)
        eng:pin(x)
        for _ = 1, 5 do
          eng:reset()
          eng:full({ 6000 }, 1)
          assert.equal(3, x:get(5000))
        end
        eng:unpin(x)
        eng:reset()
        assert.equal(0, eng:stats().overflow_bytes)
        assert.is_false(x:is_valid())
      end)

      it("raises when memory is out, says what was asked, and the next op works", function()
        perilune.on_report(false)
        local eng = open { arena = "64KiB" }
        local ok, message = pcall(eng.empty, eng, { 2 ^ 40 })
        assert.is_false(ok)
        assert.matches("out of memory", message, 1, true)
        assert.matches(("%d"):format(2 ^ 42), message, 1, true)
        assert.matches("largest free block", message, 1, true)
        ok, message = pcall(eng.zeros, eng, { 2 ^ 31, 2 ^ 31, 2 ^ 31 })
        assert.is_false(ok)
        assert.matches("too many elements", message, 1, true)
        assert.equal(3, (eng:tensor { 1 } + 2):item())
      end)

      it("refuses arenas below 4 KiB and takes any size above", function()
        for _, size in ipairs { 4096, 4097, 5000, "7.5KiB", "1MiB" } do
          local eng = open { arena = size }
          assert.equal(6, eng:full({ 3 }, 2):sum():item())
          eng:close()
        end
        local ok, message = pcall(open, { arena = 1000 })
        assert.is_false(ok)
        assert.matches("4096", message, 1, true)
      end)
    end)
  end)
end)
