-- SPDX-License-Identifier: MIT
-- C8: memory that becomes reusable or is handed out uninitialized holds the word 0x7FF8, NaN for every float dtype.

local engines = require "spec.support.engines"

local function is_nan(v) return v ~= v end

describe("C8 poison", function()
  after_each(engines.close)

  engines.each_arena(function(name, open)
    describe("on " .. name, function()
      it("fills what empty hands out", function()
        local eng = open { poison = { on = { "alloc" } } }
        for _, v in ipairs(eng:empty({ 100 }):totable()) do assert.is_true(is_nan(v)) end
        for _, v in ipairs(eng:empty({ 9 }, { dtype = "f64" }):totable()) do assert.is_true(is_nan(v)) end
        for _, v in ipairs(eng:empty({ 9 }, { dtype = "i32" }):totable()) do assert.equal(2146992120, v) end
      end)

      it("fills on reset, and not pinned blocks nor outer scopes", function()
        local eng = open { stale = "allow", poison = { on = { "reset" } } }
        local x, p = eng:full({ 33 }, 1), eng:full({ 33 }, 2)
        eng:pin(p)
        local outer, inner
        eng:reset()
        for _, v in ipairs(x:totable()) do assert.is_true(is_nan(v)) end
        for _, v in ipairs(p:totable()) do assert.equal(2, v) end
        outer = eng:full({ 33 }, 3)
        eng:scope(function()
          inner = eng:full({ 33 }, 4)
          eng:reset()
          for _, v in ipairs(inner:totable()) do assert.is_true(is_nan(v)) end
          inner = eng:full({ 33 }, 5)
        end)
        for _, v in ipairs(inner:totable()) do assert.is_true(is_nan(v)) end
        for _, v in ipairs(outer:totable()) do assert.equal(3, v) end
        for _, v in ipairs(p:totable()) do assert.equal(2, v) end
      end)

      it("fills on free", function()
        local eng = open { poison = { on = { "free" } } }
        local x = eng:full({ 64 }, 1)
        eng:free(x)
        local y = eng:empty { 64 }
        for _, v in ipairs(y:totable()) do assert.is_true(is_nan(v)) end
      end)

      it("can be switched on and off in mid-life", function()
        local eng = open { poison = false }
        assert.same({}, eng:poison().on)
        eng:full({ 16 }, 5)
        eng:poison(true)
        assert.same({ "reset", "free", "alloc" }, eng:poison().on)
        eng:reset()
        for _, v in ipairs(eng:empty({ 16 }):totable()) do assert.is_true(is_nan(v)) end
        eng:poison(false)
        local before = eng:stats().poisoned_bytes
        eng:reset()
        eng:empty { 16 }
        assert.equal(before, eng:stats().poisoned_bytes)
      end)

      it("takes another word and settings by name", function()
        local eng = open { poison = { on = { "alloc" }, word = 0x1234 } }
        assert.equal(0x12341234, eng:empty({ 1 }, { dtype = "i32" }):item())
        eng:poison "examples/poison/alloc.lua"
        assert.same({ "alloc" }, eng:poison().on)
        assert.has_error(function() eng:poison { on = { "rest" } } end)
        assert.has_error(function() eng:poison { words = 3 } end)
        assert.has_error(function() eng:poison "no-such-setting" end)
      end)

      if engines.is_host(name) then -- the test writes to the memory itself
      it("notices a write past the end at the next reset, by the place of the block", function()
        local core = require "perilune.core"
        local eng = open { places = true, poison = { on = { "reset" }, redzone = 64 } }
        local x = eng:full({ 16 }, 1)
        local line = debug.getinfo(1, "l").currentline - 1
        eng:reset()
        eng:sync()
        x = eng:full({ 16 }, 1)
        core.library.poke(x, 17, 5) -- one element past the end
        local ok, message = pcall(function() -- an engine that runs at once knows it at the reset, another at the next wait
          eng:reset()
          eng:sync()
        end)
        assert.is_false(ok)
        assert.matches("red zone", message, 1, true)
        assert.matches("c08_poison_spec.lua:" .. line + 4, message, 1, true)
        eng:sync() -- raising cleared it
      end)
      end
    end)
  end)

  it("shows a stale read through every float op", function()
    local eng = engines.open("stress", { stale = "allow" })
    local x = eng:full({ 8 }, 0.5)
    eng:reset()
    for _, op in ipairs { "exp", "relu", "tanh", "sigmoid", "sign", "abs", "floor", "gelu", "silu", "softplus" } do
      for _, v in ipairs(x[op](x):totable()) do assert.is_true(is_nan(v), op) end
    end
    for _, op in ipairs { "sum", "max", "min", "mean", "norm", "prod" } do assert.is_true(is_nan(x[op](x):item()), op) end
  end)
end)
