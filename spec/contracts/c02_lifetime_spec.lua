-- SPDX-License-Identifier: MIT
-- C2: an arena tensor is valid until the next reset or the end of its scope; later uses raise with op, place of making and of reset.

local perilune = require "perilune"
local engines = require "spec.support.engines"

local function message_of(fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected")
  return message
end

describe("C2 arena lifetime", function()
  after_each(engines.close)

  engines.each_arena(function(name, open)
    describe("on " .. name, function()
      it("raises for a tensor used after a reset, naming op, place of making and place of the reset", function()
        local eng = open { places = true }
        local x = eng:tensor { 1, 2 }
        local made = debug.getinfo(1, "l").currentline - 1
        eng:reset()
        local reset = debug.getinfo(1, "l").currentline - 1
        local message = message_of(function() return x + 1 end)
        assert.matches("add: argument 'a' is stale", message, 1, true)
        assert.matches("c02_lifetime_spec.lua:" .. made, message, 1, true)
        assert.matches("reset at [^ ]*c02_lifetime_spec.lua:" .. reset, message)
        assert.matches("^[^ ]*c02_lifetime_spec.lua:%d+: ", message)
      end)

      it("says how to switch places on when they are off", function()
        local eng = open { places = false }
        local x = eng:tensor { 1 }
        eng:reset()
        local message = message_of(function() return x:exp() end)
        assert.matches("places = true", message, 1, true)
        assert.matches("c02_lifetime_spec.lua", message, 1, true) -- the reset's place is always known
      end)

      it("raises for every kind of use: op, view, read, write, index, fields", function()
        local eng = open()
        local x = eng:tensor { { 1, 2 }, { 3, 4 } }
        eng:reset()
        for what, use in pairs {
          op = function() return x * 2 end, operand = function() return eng:ones({ 2, 2 }) + x end,
          destination = function() return eng:add(eng:ones { 2, 2 }, 1, x) end, view = function() return x:t() end,
          reshape = function() return x:reshape { 4 } end, index = function() return x[1] end, get = function() return x:get(1, 1) end,
          set = function() return x:set(1, 1, 5) end, totable = function() return x:totable() end, assign = function() x[1] = 3 end,
          copy = function() return x:copy(eng:ones { 2, 2 }) end, pin = function() return eng:pin(x) end,
          tostring = function() return tostring(x) end, shape = function() return x.shape end,
        } do
          assert.matches("stale", message_of(use), 1, true, what)
        end
      end)

      it("lets a view share its base's epoch and die with it", function()
        local eng = open()
        local x = eng:tensor { { 1, 2 }, { 3, 4 } }
        local v = x:t()[1]
        assert.same({ 1, 3 }, v:totable())
        eng:reset()
        assert.matches("stale", message_of(function() return v + 1 end), 1, true)
      end)

      it("keeps handles apart from new tensors in the same memory", function()
        local eng = open()
        local kept = {}
        for i = 1, 300 do kept[i] = eng:full({ 4 }, i) end
        eng:reset()
        local new = {}
        for i = 1, 300 do new[i] = eng:full({ 4 }, -i) end
        for i = 1, 300 do
          assert.is_false(kept[i]:is_valid())
          assert.is_true(new[i]:is_valid())
          assert.equal(-i, new[i]:get(1))
        end
      end)

      it("knows the first reset that ended the tensor, not the last one", function()
        local eng = open { places = true }
        local x = eng:tensor { 1 }
        eng:reset() local first = debug.getinfo(1, "l").currentline
        for _ = 1, 5 do eng:reset() end
        assert.matches("reset at [^ ]*c02_lifetime_spec.lua:" .. first, (message_of(function() return x + 1 end)))
      end)

      it("finds stale tensors in tables, upvalues, coroutines and weak tables", function()
        local eng = open()
        local holder = { inner = { eng:tensor { 1 } } }
        local up = eng:tensor { 2 }
        local weak = setmetatable({ eng:tensor { 3 } }, { __mode = "v" })
        local hold = weak[1]
        local co = coroutine.wrap(function()
          local mine = eng:tensor { 4 }
          coroutine.yield()
          return mine + 1
        end)
        co()
        eng:reset()
        assert.matches("stale", message_of(function() return holder.inner[1] + 1 end), 1, true)
        assert.matches("stale", message_of(function() return up + 1 end), 1, true)
        assert.matches("stale", message_of(function() return weak[1] + 1 end), 1, true)
        assert.matches("stale", message_of(co), 1, true)
        assert.is_userdata(hold)
      end)

      it("raises on a closed engine and names the place of the close", function()
        local eng = open()
        local x, p = eng:tensor { 1 }, eng:persistent({ 2 }, 1)
        eng:close()
        assert.matches("was closed at [^ ]*c02_lifetime_spec.lua", message_of(function() return x + 1 end))
        assert.matches("was closed at [^ ]*c02_lifetime_spec.lua", message_of(function() return p + 1 end))
        assert.matches("was closed at", message_of(function() return eng:zeros { 2 } end), 1, true)
        eng:close() -- a second close does nothing
      end)

      it("lets reads of dead arena memory through under stale = \"allow\", where poison shows", function()
        local eng = open { stale = "allow", poison = true }
        local x = eng:tensor { 1, 2, 3 }
        eng:reset()
        local y = x + 1
        for _, v in ipairs(y:totable()) do assert.is_true(v ~= v, "poison was expected, got " .. v) end
        local z = eng:tensor { 5 }
        eng:free(z)
        assert.matches("freed", message_of(function() return z + 1 end), 1, true)
      end)

      it("keeps working after the error", function()
        local eng = open()
        local x = eng:tensor { 1 }
        eng:reset()
        for _ = 1, 50 do
          assert.is_false(pcall(function() return x + 1 end))
          assert.equal(3, (eng:tensor { 1 } + 2):item())
        end
      end)
    end)
  end)

  it("only counts resets on an engine without an arena", function()
    local eng = engines.open "cpu"
    local x = eng:tensor { 1, 2 }
    eng:reset()
    assert.same({ 2, 3 }, (x + 1):totable())
    assert.equal(1, eng:stats().resets)
    assert.equal("owned", x.home)
    assert.is_true(perilune.is_tensor(x))
  end)
end)
