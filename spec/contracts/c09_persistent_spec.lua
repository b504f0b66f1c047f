-- SPDX-License-Identifier: MIT
-- C9: persistent storage lives outside the arena; scopes are nested lifetimes.

local engines = require "spec.support.engines"

describe("C9 persistent storage and scopes", function()
  after_each(engines.close)

  engines.each(function(name, open)
    describe("on " .. name, function()
      it("keeps persistent tensors at their address through resets and accumulation", function()
        local eng = open()
        local p = eng:persistent { 64 }
        local address, want = p:address(), 0
        for i = 1, 3 do
          local g = eng:full({ 64 }, i)
          assert.equal(p, eng:add(p, g, p))
          want = want + i
          eng:reset()
        end
        assert.equal(address, p:address())
        assert.equal("persistent", p.home)
        for _, v in ipairs(p:totable()) do assert.equal(want, v) end
        eng:fill(p, 3)
        eng:zero(p)
        p:copy(eng:full({ 64 }, 9))
        eng:matmul(eng:ones { 8, 8 }, eng:ones { 8, 8 }, p:view { 8, 8 })
        assert.equal(address, p:address())
        assert.equal(8, p:get(64))
      end)

      it("makes persistent tensors of numbers, tables and tensors", function()
        local eng = open()
        assert.same({ 0, 0 }, eng:persistent({ 2 }):totable())
        assert.same({ 3, 3 }, eng:persistent({ 2 }, 3):totable())
        assert.same({ { 1, 2 }, { 3, 4 } }, eng:persistent({ 2, 2 }, { 1, 2, 3, 4 }):totable())
        assert.same({ { 1, 2 }, { 3, 4 } }, eng:persistent({ 2, 2 }, { { 1, 2 }, { 3, 4 } }):totable())
        assert.same({ 5, 6 }, eng:persistent({ 2 }, eng:tensor { 5, 6 }):totable())
        assert.equal("f64", eng:persistent({ 2 }, 1, { dtype = "f64" }).dtype)
        assert.has_error(function() eng:persistent({ 3 }, { 1, 2 }) end)
        assert.has_error(function() eng:persistent() end)
      end)

      it("returns what the scope's function returns and lets outer tensors live on", function()
        local eng = open()
        local x = eng:tensor { 1 }
        local a, b, c = eng:scope(function() return (x + 1):item(), nil, "c" end)
        assert.equal(2, a)
        assert.is_nil(b)
        assert.equal("c", c)
        assert.equal(1, x:item())
        assert.equal(0, eng:stats().depth)
      end)

      it("passes errors on and ends the scope all the same", function()
        local eng = open()
        local x = eng:tensor { 1 }
        for _ = 1, 3 do
          local ok, message = pcall(eng.scope, eng, function()
            eng:scope(function() error("inside", 0) end)
          end)
          assert.is_false(ok)
          assert.equal("inside", message)
          assert.equal(0, eng:stats().depth)
        end
        local value = { "an error value" }
        local _, got = pcall(eng.scope, eng, function() error(value) end)
        assert.equal(value, got)
        assert.equal(1, x:item())
      end)

      it("refuses a yield out of a scope, which ends then", function()
        local eng = open()
        local co = coroutine.create(function() eng:scope(function() coroutine.yield() end) end)
        local ok, message = coroutine.resume(co)
        assert.is_false(ok)
        assert.matches("yield", message)
        assert.equal(0, eng:stats().depth)
      end)
    end)
  end)

  engines.each_arena(function(name, open)
    describe("on " .. name, function()
      it("ends only what was made in the scope", function()
        local eng = open()
        local outer = eng:full({ 50 }, 1)
        local inner, pinned, copied
        copied = eng:persistent { 50 }
        eng:scope(function()
          inner = eng:full({ 50 }, 2)
          pinned = eng:full({ 50 }, 3)
          eng:pin(pinned)
          copied:copy(inner)
          eng:add(outer, inner, outer)
        end)
        assert.is_false(inner:is_valid())
        assert.equal(3, outer:get(50))
        assert.equal(2, copied:get(50))
        for i = 1, 20 do eng:full({ 50 }, -i) end
        assert.equal(3, pinned:get(50))
        eng:unpin(pinned)
        assert.equal(3, pinned:get(1)) -- valid until the outer reset
        eng:reset()
        assert.is_false(pinned:is_valid())
        assert.is_false(outer:is_valid())
        assert.equal("", eng.arena:check())
      end)

      it("names the end of the scope in the error", function()
        local eng = open { places = true }
        local inner
        eng:scope(function() inner = eng:tensor { 1 } end)
        local line = debug.getinfo(1, "l").currentline - 1
        local ok, message = pcall(function() return inner + 1 end)
        assert.is_false(ok)
        assert.matches("end of the scope at [^ ]*c09_persistent_spec.lua:" .. line, message)
      end)

      it("limits a reset inside to the scope", function()
        local eng = open()
        local outer = eng:full({ 8 }, 1)
        local old
        eng:scope(function()
          local middle = eng:full({ 8 }, 2)
          eng:scope(function()
            old = eng:full({ 8 }, 3)
            eng:reset()
            assert.is_false(old:is_valid())
            assert.equal(2, middle:get(8))
            assert.equal(1, outer:get(8))
          end)
          eng:reset()
          assert.is_false(middle:is_valid())
          assert.equal(1, outer:get(8))
        end)
        assert.equal(1, outer:get(8))
      end)

      it("keeps a view made in a scope of a tensor made before it", function()
        local eng = open()
        local x = eng:tensor { { 1, 2 }, { 3, 4 } }
        local v
        eng:scope(function()
          v = x:t()
          for _ = 1, 200 do eng:full({ 4 }, 9) end
        end)
        for _ = 1, 200 do eng:full({ 4 }, 8) end
        assert.same({ { 1, 3 }, { 2, 4 } }, v:totable())
        eng:reset()
        assert.is_false(v:is_valid())
        for _ = 1, 300 do eng:full({ 4 }, 7) end
        assert.equal("", eng.arena:check())
      end)

      it("holds memory constant over 200 steps of 500 allocations", function()
        local eng = open()
        eng:full({ 10 }, 1)
        local offset = eng:stats().offset
        for _ = 1, 200 do
          eng:scope(function() for _ = 1, 500 do eng:empty { 16 } end end)
          assert.equal(offset, eng:stats().offset)
        end
      end)

      it("refuses to close the engine inside a scope", function()
        local eng = open()
        eng:scope(function()
          local ok, message = pcall(eng.close, eng)
          assert.is_false(ok)
          assert.matches("scope", message, 1, true)
        end)
      end)
    end)
  end)
end)
