-- SPDX-License-Identifier: MIT
-- Results larger than the caches are written past them (src/cpu/kernels/bypass.h): they are the bits of the same op on pieces that are
-- not, wherever results begin and however they lie, with one thread and with several.

local perilune = require "perilune"
local engines = require "spec.support.engines"

local N = 1300 * 1024 + 5 -- more than 4 MiB of f32, no multiple of anything

local function pieces(n, fn)
  local first = 1
  while first <= n do
    local length = math.min(200 * 1024 + 3, n - first + 1)
    fn(first, length)
    first = first + length
  end
end

describe("large results", function()
  after_each(engines.close)

  for _, threads in ipairs { 1, 2, 3 } do
    local function open() return engines.open("cpu", { threads = threads }) end

    it(("side by side, from any address on, with %d threads"):format(threads), function()
      local eng = open()
      eng:rng { 3, 0 }
      for _, dtype in ipairs { "f32", "f64", "u8" } do
        local n = dtype == "u8" and 4 * N or N
        local a = dtype == "u8" and eng:randint(0, 255, { n + 40 }):to "u8" or eng:randn({ n + 40 }, { dtype = dtype })
        for _, at in ipairs { 1, 2, 17, 24 } do
          local x, y = a:narrow(1, at, n), a:narrow(1, 3, n)
          local home = eng:zeros({ n + 40 }, { dtype = dtype })
          local out, want = home:narrow(1, at, n), eng:zeros({ n }, { dtype = dtype })
          eng:add(x, y, out)
          pieces(n, function(first, length) eng:add(x:narrow(1, first, length), y:narrow(1, first, length), want:narrow(1, first, length)) end)
          assert.is_true(out:eq(want):all():item())
          assert.is_true(home:narrow(1, at + n, 40 - at):eq(0):all():item() and (at == 1 or home:narrow(1, 1, at - 1):eq(0):all():item()))
        end
      end
      local x = eng:randn { N }
      for _, name in ipairs { "exp", "tanh", "log", "neg", "isnan" } do
        local got, parts = eng[name](eng, x), {}
        pieces(N, function(first, length) parts[#parts + 1] = eng[name](eng, x:narrow(1, first, length)) end)
        assert.equal(eng:cat(parts, 1):bytes(), got:bytes(), name)
      end
      local twice = x:clone()
      eng:add(twice, twice, twice) -- its own operand
      assert.equal((x * 2):bytes(), twice:bytes())
    end)

    it(("of rows, broadcast and turned operands, with %d threads"):format(threads), function()
      local eng = open()
      eng:rng { 4, 0 }
      local rows, columns = 1100, 1203
      local x, turned = eng:randn { rows, columns }, eng:randn({ columns, rows }):t()
      local row, column = eng:randn { columns }, eng:randn { rows, 1 }
      local cases = { function(a, b) return a + b end, function(a) return a + row end, function(_, b) return b:clone() end }
      for k, case in ipairs(cases) do
        local got, parts = case(x, turned), {}
        for first = 1, rows, 100 do parts[#parts + 1] = case(x:narrow(1, first, 100), turned:narrow(1, first, 100)) end
        assert.equal(eng:cat(parts, 1):bytes(), got:bytes(), "case " .. k)
      end
      local sum, parts = x * column, {}
      for first = 1, rows, 100 do parts[#parts + 1] = x:narrow(1, first, 100) * column:narrow(1, first, 100) end
      assert.equal(eng:cat(parts, 1):bytes(), sum:bytes())
      local home = eng:zeros { rows, columns + 9 } -- rows of the result with gaps between them
      local out = home:narrow(2, 4, columns)
      eng:add(x, turned, out)
      assert.equal((x + turned):bytes(), out:bytes())
      assert.is_true(home:narrow(2, 1, 3):eq(0):all():item() and home:narrow(2, columns + 4, 6):eq(0):all():item())
    end)
  end

  it("tell which element of an index is wrong", function()
    local eng = engines.open "cpu"
    local a, b = eng:ones({ N }, { dtype = "i32" }), eng:ones({ N }, { dtype = "i32" })
    b:set(1200001, 0)
    local ok, message = pcall(function()
      local r = a:mod(b)
      eng:sync()
      return r
    end)
    assert.is_false(ok)
    assert.matches("1200001", message)
  end)
end)
