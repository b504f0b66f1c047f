-- SPDX-License-Identifier: MIT
-- Creation: values, dtypes, lengths and ends of ranges, destinations, and sizes that cannot be.

local reference = require "spec.support.reference"
local engines = require "spec.support.engines"

local DTYPES = { "f32", "f64", "i64", "i32", "u8", "bool" }

local function fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_truthy(tostring(message):find(text, 1, true), tostring(message))
end

local function same(want, got)
  local values = { shape = got.shape, dtype = got.dtype }
  if got:numel() > 0 then
    for i, v in ipairs(got:reshape{ -1 }:totable()) do values[i] = v == true and 1 or v == false and 0 or v end
  end
  local ok, message = reference.allclose(values, want, 0, 0)
  assert(ok, message)
end

engines.each(function(kind, open)
  describe("creation on " .. kind, function()
    local e
    before_each(function() e = open() end)
    after_each(engines.close)

    it("gives f32 unless asked, and every dtype when asked", function()
      for _, name in ipairs { "zeros", "ones", "empty" } do
        assert.equal("f32", e[name](e, { 2 }).dtype)
        for _, dtype in ipairs(DTYPES) do
          assert.equal(dtype, e[name](e, { 2 }, { dtype = dtype }).dtype)
          assert.equal(dtype, e[name](e, { 2 }, dtype).dtype)
        end
      end
      for _, dtype in ipairs(DTYPES) do
        local opts = { dtype = dtype }
        same(reference.ops.full({ 2, 3 }, 3, opts), e:full({ 2, 3 }, 3, opts))
        same(reference.ops.full({ 3, 22001 }, 0, opts), e:zeros({ 3, 22001 }, opts))
        same(reference.ops.full({ 0, 3 }, 1, opts), e:ones({ 0, 3 }, opts))
        same(reference.ops.full({}, 1, opts), e:ones({}, opts))
        same(reference.ops.eye(3, 5, opts), e:eye(3, 5, opts))
        same(reference.ops.eye(260, nil, opts), e:eye(260, opts))
        same(reference.ops.eye(3, 0, opts), e:eye(3, 0, opts))
        same(reference.ops.arange(2, 9, 3, opts), e:arange(2, 9, 3, opts))
        same(reference.ops.arange(5, nil, nil, opts), e:arange(5, opts))
        same(reference.ops.linspace(0, 10, 5, opts), e:linspace(0, 10, 5, opts))
      end
    end)

    it("is exact for i64 up to 2^53", function()
      local n, opts = 2 ^ 53, { dtype = "i64" }
      assert.same({ n, n }, e:full({ 2 }, n, opts):totable())
      assert.same({ n - 3, n - 2, n - 1 }, e:arange(n - 3, n, 1, opts):totable())
      assert.same({ -n, 0, n }, e:linspace(-n, n, 3, opts):totable())
    end)

    it("arange ends before b, however the quotient rounds", function()
      local function length(...) return e:arange(...):numel() end
      assert.equal(10, length(0, 1, 0.1))
      assert.equal(3, length(1, 1.3, 0.1))
      assert.equal(0, length(3, 3))
      assert.equal(0, length(0))
      assert.equal(1, length(0, 1e-300, 1))
      assert.same({ 5, 3, 1 }, e:arange(5, 0, -2):totable())
      for k = 1, 300 do
        local step = 1 / k
        local list = e:arange(0, 1, step, { dtype = "f64" }):totable()
        assert.is_true(list[#list] < 1 and list[#list] + step > 1 - 1e-12, tostring(k))
        for i = 1, #list do assert.equal((i - 1) * step, list[i]) end
      end
      same(reference.ops.arange(-7, 66003), e:arange(-7, 66003))
    end)

    it("linspace has both ends exactly and is symmetric", function()
      for n = 2, 40 do
        local list = e:linspace(-0.7, 0.7, n, { dtype = "f64" }):totable()
        assert.equal(-0.7, list[1])
        assert.equal(0.7, list[n])
        for i = 1, math.floor(n / 2) do assert.equal(-list[i], list[n + 1 - i]) end
        same(reference.ops.linspace(0.1, 0.9, n, { dtype = "f64" }), e:linspace(0.1, 0.9, n, { dtype = "f64" }))
      end
      assert.same({ 2 }, e:linspace(2, 5, 1):totable())
      assert.same({ 0 }, e:linspace(2, 5, 0).shape)
      assert.same({ -1.5e308, 0, 1.5e308 }, e:linspace(-1.5e308, 1.5e308, 3, { dtype = "f64" }):totable())
      same(reference.ops.linspace(0, 1, 66003), e:linspace(0, 1, 66003))
    end)

    it("writes into a destination of any layout", function()
      local base = e:full({ 4, 6 }, 9)
      local out = base:t()[{ { 1, 6, 2 }, { 2, 4 } }]
      assert.is_true(rawequal(out, e:eye(3, { out = out })))
      assert.same({ { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } }, out:totable())
      assert.same({ 9, 9, 9, 9, 9, 9 }, base[1]:totable())
      assert.is_true(rawequal(out, e:zeros({ 3, 3 }, { out = out })))
      assert.same({ 9, 0, 0, 0 }, base:t()[3]:totable())
      e:arange(3, { out = out:select(2, 2) })
      e:linspace(1, 3, 3, { out = out[1] })
      assert.same({ { 1, 2, 3 }, { 0, 1, 0 }, { 0, 2, 0 } }, out:totable())
      fails("the destination has shape (3, 3), the result (2, 3)", e.ones, e, { 2, 3 }, { out = out })
      fails("the destination is f32, the result is f64", e.ones, e, { 3, 3 }, { dtype = "f64", out = out })
      fails("broadcast view", e.ones, e, { 3, 3 }, { out = e:ones{ 3 }:expand{ 3, 3 } })
    end)

    it("refuses sizes and numbers that cannot be, and changes nothing", function()
      fails("zeros: argument 'shape': shape (2147483648, 2147483648, 2147483648) has too many elements", e.zeros, e, { 2 ^ 31, 2 ^ 31, 2 ^ 31 })
      fails("negative", e.empty, e, { 2, -1 })
      fails("negative", e.eye, e, -1)
      fails("too many elements", e.eye, e, 2 ^ 32)
      fails("no u8", e.full, e, { 2 }, 256, { dtype = "u8" })
      fails("no i32", e.full, e, { 2 }, 2.5, { dtype = "i32" })
      fails("no i32", e.arange, e, 2 ^ 31 - 1, 2 ^ 31 + 1, 1, { dtype = "i32" })
      fails("a step other than 0", e.arange, e, 1, 5, 0)
      fails("leads away", e.arange, e, 1, 5, -1)
      fails("finite", e.arange, e, 0, math.huge)
      fails("finite", e.arange, e, 0 / 0)
      fails("too many", e.arange, e, 0, 1e300)
      fails("negative", e.linspace, e, 0, 1, -1)
      assert.same({ 1, 1 }, e:ones{ 2 }:totable())
    end)
  end)
end)
