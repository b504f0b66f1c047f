-- SPDX-License-Identifier: MIT
-- Matrix products: PyTorch's shape rules against the reference; the same bits for every layout, thread count and destination; and
-- the transform that undoes itself.

local perilune = require "perilune"
local reference = require "spec.support.reference"
local engines = require "spec.support.engines"
local layouts = require "spec.support.layouts"

local fails, same = layouts.fails, layouts.same

local PAIRS = {
  { { 2, 3 }, { 3, 4 } }, { { 3 }, { 3 } }, { { 3 }, { 3, 4 } }, { { 2, 3 }, { 3 } }, { { 1, 8 }, { 8, 8 } }, { { 5, 1 }, { 1, 7 } },
  { { 2, 3, 4 }, { 2, 4, 5 } }, { { 2, 3, 4 }, { 4, 5 } }, { { 3, 4 }, { 2, 4, 5 } }, { { 2, 1, 3, 4 }, { 5, 4, 2 } },
  { { 3 }, { 2, 3, 4 } }, { { 2, 4, 3 }, { 3 } }, { { 4, 1, 1, 3 }, { 1, 2, 3, 1 } }, { { 2, 0 }, { 0, 3 } }, { { 0, 3 }, { 3, 2 } },
  { { 3, 1, 2, 2, 3 }, { 2, 1, 3, 2 } }, { { 60, 40 }, { 40, 50 } }, { { 9, 300 }, { 300, 11 } },
}

-- x and w for which every element of x w^T depends on every term.
local function operands(dtype, a, b)
  local lo = dtype == "u8" and 0 or -2
  return reference.random(a, dtype, lo, 2, 3), reference.random(b, dtype, lo, 2, 4)
end

engines.each(function(kind, open)
  describe("matmul on " .. kind, function()
    local e
    before_each(function() e = open() end)
    after_each(engines.close)

    it("agrees with the reference in every layout, dtype and combination of dims", function()
      local own = not (e:stats().products or ""):find "^cuBLAS" -- which adds in another order in another layout
      for _, dtype in ipairs { "f32", "f64", "i64", "i32", "u8" } do
        for _, pair in ipairs(PAIRS) do
          local a, b = operands(dtype, pair[1], pair[2])
          local want = reference.ops.matmul(a, b)
          local bits = layouts.text(layouts.make.contiguous(e, a):matmul(layouts.make.contiguous(e, b)))
          for left, make_a in pairs(layouts.make) do
            for right, make_b in pairs(layouts.make) do
              local got = make_a(e, a):matmul(make_b(e, b))
              same(want, got, dtype == "f32" and 1e-5 or dtype == "f64" and 1e-13 or 0)
              if own then assert.equal(bits, layouts.text(got), left .. " by " .. right) end
              e:reset()
            end
          end
        end
      end
    end)

    it("gives the same bits with any number of threads", function()
      local a, b = operands("f32", { 70, 300 }, { 300, 65 })
      local x, w = operands("f32", { 30, 2, 40, 65 }, { 70, 65 })
      local bits
      for _, threads in ipairs { 1, 2, 3 } do
        local engine = open { threads = threads }
        local product = layouts.text(engine:matmul(layouts.make.contiguous(engine, a), layouts.make.contiguous(engine, b)))
          .. layouts.text(engine:linear(layouts.make.contiguous(engine, x), layouts.make.contiguous(engine, w)))
        bits = bits or product
        assert.is_true(bits == product, threads .. " threads")
      end
    end)

    it("writes destinations of any layout, overlapping operands too", function()
      local a, b = operands("f32", { 6, 6 }, { 6, 6 })
      local want = layouts.text(layouts.make.contiguous(e, a):matmul(layouts.make.contiguous(e, b)))
      for name, make in pairs(layouts.make) do
        local x, y = make(e, a), make(e, b)
        local out = make(e, a)
        assert.is_true(rawequal(out, e:matmul(x, y, out)))
        assert.equal(want, layouts.text(out), name)
        assert.is_true(rawequal(x, e:matmul(x, y, x)))
        assert.equal(want, layouts.text(x), name .. ", into its operand")
      end
      local both = e:zeros { 12, 6 }
      local x = both:narrow(1, 3, 6):copy(layouts.make.contiguous(e, a))
      local out = both:narrow(1, 1, 6)
      e:matmul(x, layouts.make.contiguous(e, b), out)
      assert.equal(want, layouts.text(out))
    end)

    it("keeps NaN and never reads what it writes", function()
      local out = e:full({ 2, 2 }, 0 / 0)
      e:matmul(e:ones { 2, 3 }, e:ones { 3, 2 }, out)
      assert.same({ { 3, 3 }, { 3, 3 } }, out:totable())
      e:matmul(e:empty { 2, 0 }, e:empty { 0, 2 }, e:full({ 2, 2 }, 0 / 0, { out = out }))
      assert.same({ { 0, 0 }, { 0, 0 } }, out:totable())
      local x = e:zeros { 2, 3 }
      x:set(2, 3, 0 / 0)
      local y = x:matmul(e:zeros { 3, 2 }):totable()
      assert.equal(0, y[1][1])
      assert.is_true(y[2][1] ~= y[2][1])
    end)

    it("names what does not fit", function()
      local x = e:ones { 2, 3 }
      fails("matmul: argument 'b': inner sizes 3 and 2 differ, shapes are (2, 3) and (2, 3)", x.matmul, x, x)
      fails("expected the other operand's dtype, got dtypes f32 and f64", x.matmul, x, e:ones({ 3, 2 }, { dtype = "f64" }))
      fails("batch sizes (2) and (3) do not broadcast", e.matmul, e, e:ones { 2, 3, 4 }, e:ones { 3, 4, 5 })
      fails("a 0-dim tensor has no matrix product", e.matmul, e, e:ones {}, x)
      fails("argument 'out': the destination has shape (2, 3), the result (2, 2)", e.matmul, e, x, x:t(), x)
    end)
  end)

  describe("addmm and linear on " .. kind, function()
    local e
    before_each(function() e = open() end)
    after_each(engines.close)

    it("add to the product, in every layout", function()
      for _, dtype in ipairs { "f32", "f64", "i64", "u8" } do
        local a, b = operands(dtype, { 5, 3 }, { 3, 4 })
        local lo, rtol = dtype == "u8" and 0 or -2, dtype == "f32" and 1e-5 or dtype == "f64" and 1e-13 or 0
        for _, shape in ipairs { { 5, 4 }, { 4 }, { 5, 1 }, {} } do
          local c = reference.random(shape, dtype, lo, 2, 5)
          local want = reference.ops.addmm(c, a, b, 3, 2)
          for _, make in pairs(layouts.make) do
            same(want, e:addmm(make(e, c), make(e, a), make(e, b), 3, 2), rtol)
          end
        end
      end
      local w, bias = reference.random({ 4, 3 }, "f32", -2, 2, 6), reference.random({ 4 }, "f32", -2, 2, 7)
      for _, shape in ipairs { { 3 }, { 2, 3 }, { 2, 5, 3 }, { 2, 1, 5, 3 }, { 0, 3 }, { 5, 1, 3 } } do
        local x = reference.random(shape, "f32", -2, 2, 8)
        local bits
        for _, make in pairs(layouts.make) do
          local y = e:linear(make(e, x), make(e, w), make(e, bias))
          same(reference.ops.linear(x, w, bias), y, 1e-5)
          bits = bits or layouts.text(y)
          assert.equal(bits, layouts.text(y))
          same(reference.ops.linear(x, w), e:linear(make(e, x), make(e, w)), 1e-5)
        end
      end
    end)

    it("linear over one output adds alike whatever lies before the last dim", function()
      local x = reference.random({ 40, 1, 3, 100 }, "f32", -2, 2, 9)
      local w = reference.random({ 1, 100 }, "f32", -2, 2, 10)
      local bits
      for name, make in pairs(layouts.make) do
        local y = layouts.text(e:linear(make(e, x), make(e, w)))
        bits = bits or y
        assert.is_true(bits == y, name)
      end
    end)

    it("read c only if beta is not 0, and may write over it", function()
      local a, b, c = e:ones { 2, 3 }, e:ones { 3, 2 }, e:full({ 2, 2 }, 0 / 0)
      assert.same({ { 3, 3 }, { 3, 3 } }, e:addmm(c, a, b, 0):totable())
      assert.is_true(rawequal(c, e:addmm(c, a, b, 0, 2, c)))
      assert.same({ { 6, 6 }, { 6, 6 } }, c:totable())
      e:addmm(c, a, b, 1, 1, { out = c })
      assert.same({ { 9, 9 }, { 9, 9 } }, c:totable())
    end)

    it("name what does not fit", function()
      local a, b = e:ones { 2, 3 }, e:ones { 3, 4 }
      fails("argument 'c': shape (3) does not broadcast to (2, 4)", e.addmm, e, e:ones { 3 }, a, b)
      fails("argument 'a': expected a matrix of 2 dimensions, got shape (3)", e.addmm, e, e:ones { 4 }, e:ones { 3 }, b)
      local i = { dtype = "i64" }
      fails("argument 'alpha': with i64 operands a whole number is expected, got 0.5", e.addmm, e, e:ones({ 4 }, i), e:ones({ 2, 3 }, i),
        e:ones({ 3, 4 }, i), 1, 0.5)
      fails("argument 'b': expected shape (4), got (2)", e.linear, e, a, e:ones { 4, 3 }, e:ones { 2 })
      fails("argument 'w': inner sizes 3 and 4 differ", e.linear, e, a, b)
    end)
  end)

  describe("hadamard_transform on " .. kind, function()
    local e
    before_each(function() e = open() end)
    after_each(engines.close)

    it("agrees with the definition, in every layout and into any destination", function()
      for _, dtype in ipairs { "f32", "f64" } do
        for _, shape in ipairs { { 1 }, { 2 }, { 8 }, { 3, 4 }, { 2, 3, 16 }, { 5, 1 }, { 0, 4 }, { 3, 512 } } do
          local x = reference.random(shape, dtype, -3, 3, 11)
          local want = reference.ops.hadamard_transform(x)
          for _, make in pairs(layouts.make) do
            same(want, make(e, x):hadamard_transform(), dtype == "f32" and 2e-6 or 1e-13)
            local out = make(e, x)
            same(want, e:hadamard_transform(out, out), dtype == "f32" and 2e-6 or 1e-13)
          end
        end
      end
    end)

    it("undoes itself, through all sizes of blocks", function()
      for power = 0, 16 do
        local x = e:arange(2 ^ power):add(1):reshape { 1, -1 }
        local twice = x:hadamard_transform():hadamard_transform()
        assert.is_true((twice - x):abs():max():item() <= 1e-6 * 2 ^ power * (power + 1), "2^" .. power)
        local ones = e:ones { 2 ^ power }:hadamard_transform():totable()
        assert.is_true(math.abs(ones[1] - 2 ^ (power / 2)) <= 1e-6 * 2 ^ (power / 2))
        for i = 2, #ones do assert.equal(0, ones[i]) end
        e:reset()
      end
    end)

    it("wants a power of two", function()
      local x = e:ones { 2, 6 }
      fails("argument 'x': the size of the last dim is 6, a power of two is expected", x.hadamard_transform, x)
      fails("dtype i64 is not supported", e.hadamard_transform, e, e:ones({ 4 }, { dtype = "i64" }))
    end)
  end)
end)

describe("matmul between engines", function()
  after_each(engines.close)
  it("is refused by name", function()
    local a, b = engines.open "cpu", perilune.engine "cpu"
    fails("argument 'b' belongs to the engine", a.matmul, a, a:ones { 2, 2 }, b:ones { 2, 2 })
    b:close()
  end)
end)
