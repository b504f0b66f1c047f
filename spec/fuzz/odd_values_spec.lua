-- SPDX-License-Identifier: MIT
-- Values that nobody means, where nobody expects them: each is an error at the caller's line, none a crash, a hang or a quiet conversion.

local perilune = require "perilune"
local engines = require "spec.support.engines"

local NAN, INF = 0 / 0, 1 / 0

local cyclic = {}
cyclic[1] = cyclic

local options = {
  device = { NAN, 1e300, 0, -1, 1.5, INF }, threads = { NAN, 1e300, -5, 1.5, INF }, graph_resets = { NAN, -1, 1e300, 0.5 },
  arena = { 1e300, NAN, INF, -1, 2 ^ 62, 2 ^ 63, 2 ^ 64, 4095, {}, "99999999999999999999GiB", ".", "KiB" },
  seed = { NAN, INF, 2 ^ 53 + 2, -1, 0.5 }, poison = { 5, { on = 5 }, { on = "reset" }, { on = { 5 } }, { word = NAN }, { word = -1 }, { redzone = INF }, { extra = 1 } },
  stale = { "" }, places = { 1 }, test = { 1 },
}

-- pattern of the error -> calls; e is an engine, x a tensor (2, 2), dead one that a reset or a free ended
local wrong = {
  ["dead"] = { -- a dead tensor's use, whatever code of the library comes in between
    function(_, _, dead) local text = tostring(dead) return text end,
    function(_, _, dead) local t = dead:clone() return t end,
    function(_, _, dead) local t = dead:to "f64" return t end,
    function(_, _, dead) local n = #dead return n end,
    function(_, _, dead) local s = dead.shape return s end,
    function(_, _, dead) dead[1] = 1 end,
    function(_, _, dead) local n = dead:size(1) return n end,
  },
  ["index"] = {
    function(_, x) local v = x[nil] return v end,
    function(_, x) x[nil] = 1 end,
    function(_, x) x[NAN] = 1 end,
    function(_, x) x[9] = 1 end,
    function(_, x) local v = x[1.5] return v end,
    function(_, x) local v = x[2 ^ 53 + 2] return v end,
    function(_, x) local v = x[{ 1, 1, 1 }] return v end,
    function(_, x) local v = x[{ { 1, 2, 3, 4 } }] return v end,
    function(_, x) local v = x[{ { 1, 2, 0 } }] return v end,
    function(_, x) local v = x[{ { 1, 2, -2 ^ 53 } }] return v end,
    function(_, x) local v = x[{ { 2 ^ 53, 2 ^ 53 } }] return v end,
    function(_, x) local v = x[x] return v end,
    function(_, x) local v = x:get("1", 1) return v end,
  },
  ["tensor"] = {
    function(e) local t = e:tensor(cyclic) return t end,
    function(e) local t = e:tensor(cyclic, { shape = { 2, 2 } }) return t end,
    function(e) local t = e:tensor({ { { { { { { { { 1 } } } } } } } } }) return t end,
    function(e) local t = e:tensor { { 1, 2 }, { 3 } } return t end,
    function(e) local t = e:tensor { { 1, 2 }, 3 } return t end,
    function(e) local t = e:tensor { 1, { 2 } } return t end,
    function(e) local t = e:tensor { "1" } return t end,
    function(e) local t = e:tensor({ 1, 2 }, { shape = { 2 ^ 40 } }) return t end,
    function(e) local t = e:tensor({ 1, 2 }, { shape = { -2 } }) return t end,
    function(e) local t = e:tensor({ 1, 2 }, { shape = { 1, 1, 1, 1, 1, 1, 1, 1, 2 } }) return t end,
    function(e) local t = e:tensor({ 2 ^ 63 }, { dtype = "i64" }) return t end,
    function(e) local t = e:tensor({ NAN }, { dtype = "u8" }) return t end,
  },
  ["persistent"] = {
    function(e) e:persistent() end,
    function(e, x) local t = e:persistent({ 3 }, x) return t end,
    function(e) local t = e:persistent({ 2 ^ 45 }) return t end,
  },
  ["totable"] = { function(_, x) local t = x[{ 1, 1 }]:expand { 2 ^ 40 }:totable() return t end,
    function(e) local t = e:zeros { 2 ^ 40, 0 }:totable() return t end },
  ["bytes"] = { function(_, x) local t = x[{ 1, 1 }]:expand { 2 ^ 40 }:bytes() return t end, function(_, x) x:set_bytes(5) end },
  ["contiguous"] = { function(_, x) local t = x[{ 1, 1 }]:expand { 2 ^ 45 }:contiguous() return t end },
  ["rng"] = { function(e) e:rng { -1, 0 } end, function(e) e:rng { 1.5, 0 } end, function(e) e:rng { 1 } end, function(e) e:rng(5) end },
  ["scope"] = { function(e) e:scope() end, function(e)
    local function nest() return e:scope(function() nest() end) end
    nest()
  end },
  ["poison"] = { function(e) e:poison { word = 1.5 } end, function(e) e:poison { on = 5 } end, function(e) e:poison(5) end },
}

describe("odd values", function()
  after_each(engines.close)

  it("of engine options are refused", function()
    for name, values in pairs(options) do
      for _, value in ipairs(values) do
        local ok, message = pcall(function() local e = perilune.engine { "cpu", [name] = value } return e end)
        assert.is_false(ok, ("%s = %s"):format(name, tostring(value)))
        assert.matches("^spec/fuzz/odd_values_spec.lua:%d+: ", (message:gsub("^.*/spec/", "spec/")))
      end
    end
  end)

  engines.each(function(kind, open)
    it("are errors at the caller's line on " .. kind, function()
      for name, list in pairs(wrong) do
        for k, call in ipairs(list) do
          local e = open()
          local x, dead = e:ones { 2, 2 }, e:ones { 2, 2 }
          e:free(dead)
          local ok, message = pcall(call, e, x, dead)
          local what = ("%s %d: %s"):format(name, k, tostring(message))
          assert.is_false(ok, what)
          assert.matches("^spec/fuzz/odd_values_spec.lua:%d+: ", (tostring(message):gsub("^.*/spec/", "spec/")), what)
          assert.matches(name == "dead" and "was freed" or name, message, what)
          assert.equal(4, (x + 0):sum():item())
          assert.equal(0, e:stats().depth)
        end
      end
    end)
  end)
end)
