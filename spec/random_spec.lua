-- SPDX-License-Identifier: MIT
-- Random numbers: each one follows from the seed, the engine's draw number and the element (C10), so every test compares with Philox's
-- words themselves; and dropout's masks, which come back from the draw number alone.

local core = require "perilune.core"
local ffi = require "ffi"
local reference = require "spec.support.reference"
local engines = require "spec.support.engines"
local layouts = require "spec.support.layouts"

local fails, same = layouts.fails, layouts.same

local SEED = 2 ^ 40 + 12345

local function word(draw, element)
  local key_lo, key_hi = SEED % 2 ^ 32, math.floor(SEED / 2 ^ 32)
  local words = { reference.philox(key_lo, key_hi, math.floor(element / 4), 0, draw, 0) }
  return words[element % 4 + 1]
end

-- The two words of an element of 64 bits, low one first.
local function pair(draw, element)
  return word(draw, 2 * element), word(draw, 2 * element + 1)
end

engines.each(function(kind, open)
  describe("random numbers on " .. kind, function()
    local e
    before_each(function() e = open { seed = SEED } end)
    after_each(engines.close)

    it("rand: 24 bits of a word, or 53 of two", function()
      for draw = 0, 2 do
        local list = e:rand({ 301 }):totable()
        for i = 1, 301 do assert.equal(reference.uniform(word(draw, i - 1)), list[i]) end
      end
      local list = e:rand({ 43 }, { dtype = "f64" }):totable()
      for i = 1, 43 do
        local lo, hi = pair(3, i - 1)
        assert.equal((hi * 2 ^ 21 + math.floor(lo / 2 ^ 11)) / 2 ^ 53, list[i])
      end
    end)

    it("the draw number counts the calls that drew, and rng sets it back", function()
      local state = e:rng()
      assert.same({ SEED, 0 }, state)
      local first = layouts.text(e:rand { 5, 7 })
      e:randn {}
      e:randint(0, 9, { 0 })
      e:dropout(e:ones { 3 }, 0.5, false)
      fails("p is 1", e.dropout, e, e:ones { 3 }, 1)
      fails("dtype i64", e.rand, e, { 3 }, { dtype = "i64" })
      assert.same({ SEED, 3 }, e:rng())
      assert.are_not.equal(first, layouts.text(e:rand { 5, 7 }))
      e:rng(state)
      assert.equal(first, layouts.text(e:rand { 5, 7 }))
    end)

    it("come alike with any number of threads and into any destination", function()
      for _, name in ipairs { "rand", "randn" } do
        for _, dtype in ipairs { "f32", "f64" } do
          local bits
          for threads = 1, 3 do
            local engine = open { seed = SEED, threads = threads }
            local text = layouts.text(engine[name](engine, { 3, 11001 }, { dtype = dtype }))
            bits = bits or text
            assert.is_true(bits == text)
          end
        end
      end
      local want = layouts.text(e:rand { 4, 6 })
      for _, make in pairs(layouts.make) do
        local out = make(e, reference.random({ 4, 6 }, "f32", 0, 1, 1))
        e:rng { SEED, 0 }
        assert.is_true(rawequal(out, e:rand({ 4, 6 }, { out = out })))
        assert.equal(want, layouts.text(out))
      end
    end)

    it("randn is Box and Muller's, with tails", function()
      local list = e:randn({ 400 }):totable()
      for i = 1, 400, 2 do
        local u, v = (word(0, i - 1) + 1) / 2 ^ 32, reference.uniform(word(0, i))
        local r = math.sqrt(-2 * math.log(u))
        assert.is_true(math.abs(list[i] - r * math.cos(2 * math.pi * v)) < 3e-6)
        assert.is_true(math.abs(list[i + 1] - r * math.sin(2 * math.pi * v)) < 3e-6)
      end
      for _, dtype in ipairs { "f32", "f64" } do
        local x = e:randn({ 200000 }, { dtype = dtype })
        assert.is_true(math.abs(x:mean():item()) < 0.01)
        assert.is_true(math.abs(x:square():mean():item() - 1) < 0.01)
        assert.is_true(math.abs((x * x * x * x):mean():item() - 3) < 0.1)
        assert.is_true(x:abs():max():item() > 3.9)
      end
    end)

    it("randint covers lo to hi - 1 evenly, in every dtype", function()
      local list = e:randint(-2, 5, { 200 }):totable()
      for i = 1, 200 do
        local lo, hi = pair(0, i - 1)
        local product = ffi.cast("uint64_t", hi) * 7ULL + ffi.cast("uint64_t", lo) * 7ULL / 2ULL ^ 32
        assert.equal(-2 + tonumber(product / 2ULL ^ 32), list[i])
      end
      assert.equal("i64", e:randint(1, 7, { 2 }).dtype)
      for _, dtype in ipairs { "u8", "i32", "i64", "f32", "f64" } do
        local counts = {}
        for _, v in ipairs(e:randint(1, 7, { 60000 }, { dtype = dtype }):totable()) do counts[v] = (counts[v] or 0) + 1 end
        for v = 1, 6 do assert.is_true(math.abs(counts[v] - 10000) < 500) end
        assert.is_nil(counts[0] or counts[7])
      end
      local wide = e:randint(-2 ^ 52, 2 ^ 52, { 1000 })
      assert.is_true(wide:max():item() > 2 ^ 51 and wide:min():item() < -2 ^ 51)
      fails("argument 'hi': a number greater than lo = 3 was expected, got 3", e.randint, e, 3, 3, { 2 })
      fails("argument 'dtype': u8 does not hold every whole number from 0 to 256", e.randint, e, 0, 257, { 2 }, { dtype = "u8" })
    end)
  end)

  describe("dropout on " .. kind, function()
    local e
    before_each(function() e = open { seed = SEED } end)
    after_each(engines.close)

    it("keeps what the words say, for every p, layout and dtype", function()
      local draw = 0
      for _, dtype in ipairs { "f32", "f64" } do
        for _, p in ipairs { 0, 0.1, 0.3, 0.5, 0.9, 1 - 2 ^ -30 } do
          for _, shape in ipairs { { 1 }, {}, { 4, 8 }, { 3, 5, 7 }, { 0, 3 }, { 600 } } do
            local x = reference.random(shape, dtype, -3, 3, 5)
            for _, make in pairs(layouts.make) do
              same(reference.ops.dropout(x, p, { seed = SEED, draw = draw }), e:dropout(make(e, x), p), dtype == "f32" and 2e-7 or 1e-15)
              draw = draw + 1
            end
          end
        end
      end
      assert.equal(draw, e:rng()[2])
    end)

    it("is the identity with p = 0 and outside training, to the bit", function()
      local x = e:tensor { 1, -0.0, 1 / 3, 1 / 0, 1e-45, 0 / 0 }
      for _, y in ipairs { e:dropout(x, 0), e:dropout(x, 0.9, false) } do
        assert.equal(layouts.text(x), layouts.text(y))
        assert.is_false(y:same_storage(x))
      end
      assert.is_true(rawequal(x, e:dropout(x, 0.5, false, x)))
    end)

    it("keeps NaN whether dropped or not", function()
      for _, v in ipairs(e:dropout(e:full({ 64 }, 0 / 0)):totable()) do assert.is_true(v ~= v) end
    end)

    it("refuses p outside 0 <= p < 1, and integers", function()
      local x = e:ones { 3 }
      for _, p in ipairs { 1, 1.5, -0.1, 0 / 0, 1 / 0 } do fails("expected 0 <= p < 1", e.dropout, e, x, p) end
      fails("dtype i64", e.dropout, e, e:ones({ 3 }, { dtype = "i64" }))
    end)

    it("shows its mask again from the draw number, a number or a tensor", function()
      local backward = core.ops.dropout_backward
      e:rand {}
      local x = e:rand { 5, 70 } + 1
      local y = e:dropout(x, 0.3)
      e:rng { 7, 99 }
      local again = backward(x, 0.3, 2, SEED)
      assert.equal(layouts.text(y), layouts.text(again))
      local number = e:tensor({ 2 }, { dtype = "i64" })
      assert.equal(layouts.text(y), layouts.text(backward(x, 0.3, number, SEED)))
      number:set(1, 3)
      assert.are_not.equal(layouts.text(y), layouts.text(backward(x, 0.3, number, SEED)))
    end)
  end)
end)
