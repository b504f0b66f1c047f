-- SPDX-License-Identifier: MIT
-- Reductions and cumsum: agree with the reference, give the same bits whatever the layout and the number of threads, know what an empty
-- reduction is, and let no NaN get lost.

local perilune = require "perilune"
local reference = require "spec.support.reference"
local engines = require "spec.support.engines"
local lanes = require "spec.support.lanes"

perilune.on_report(function() end) -- a full arena is no matter here

local inf, nan = math.huge, 0 / 0
local FLOATS = { "f32", "f64" }
local ALL = { "f32", "f64", "i64", "i32", "u8", "bool" }

local function fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_truthy(tostring(message):find(text, 1, true), tostring(message))
end

local function close(want, got, tolerance, what)
  local ok, message = reference.allclose(lanes.values(got), want, tolerance, tolerance)
  if not ok then error(what .. ": " .. message, 2) end
end

local function same(want, got, what)
  local ok, message = reference.allclose(lanes.values(got), lanes.values(want), 0, 0)
  if not ok then error(what .. ": " .. message, 2) end
end

-- name, dtypes, tolerance of f32, argument lists behind x
local OPS = {
  { "sum", ALL, 2e-5, { {}, { 1 }, { -1, true }, { { 1, -1 } } } },
  { "mean", FLOATS, 2e-6, { {}, { 1 }, { -1, true }, { { 1, -1 } } } },
  { "prod", ALL, 1e-5, { {}, { 1 }, { -1, true } } },
  { "any", ALL, 0, { {}, { 1 }, { -1, true } } },
  { "all", ALL, 0, { {}, { 1 }, { -1, true } } },
  { "max", ALL, 0, { {}, { 1 }, { -1, true } } },
  { "min", ALL, 0, { {}, { 1 }, { -1, true } } },
  { "argmax", ALL, 0, { {}, { 1 }, { -1, true } } },
  { "argmin", ALL, 0, { {}, { 1 }, { -1, true } } },
  { "var", FLOATS, 2e-6, { {}, { 1 }, { -1, 0, true }, { { 1, -1 }, 1 } } },
  { "logsumexp", ALL, 2e-6, { {}, { 1 }, { -1, true } } },
  { "norm", FLOATS, 2e-6, { {}, { 2, 1 }, { 1, -1, true }, { inf, 1 }, { -inf, 1 }, { 0, -1 }, { 3, { 1, -1 } } } },
  { "cumsum", ALL, 2e-5, { { 1 }, { -1 } } },
}

local SHAPES = { { 1 }, { 7 }, { 2, 3 }, { 4, 13 }, { 31, 3 }, { 3, 5, 4 }, { 3, 1, 2 }, { 40, 3 }, { 2, 1100 }, { 1100, 2 }, { 3, 9, 150 }, { 4200, 2 }, { 9000 } }

local function numel(shape)
  local n = 1
  for _, s in ipairs(shape) do n = n * s end
  return n
end

local function draw(op, shape, dtype)
  if op == "prod" then return reference.random(shape, dtype, dtype:sub(1, 1) == "f" and 0.9 or 1, dtype:sub(1, 1) == "f" and 1.1 or 1, 3) end
  if op == "any" or op == "all" then return reference.random(shape, dtype, 0, 1, #shape) end
  local lo = (dtype == "u8" or dtype == "bool") and 0 or -3
  return reference.random(shape, dtype, lo, 3, numel(shape) + 1)
end

local function run(op, x, arguments)
  return { x[op](x, unpack(arguments, 1, 3)) }
end

engines.each(function(kind, open)
  describe("reductions on " .. kind, function()
    local e
    before_each(function() e = open() end)
    after_each(engines.close)

    for _, row in ipairs(OPS) do
      local op, dtypes, tolerance, calls = unpack(row)
      it(op .. " agrees with the reference, bit for bit in every layout", function()
        for _, dtype in ipairs(dtypes) do
          for _, shape in ipairs(SHAPES) do
            if numel(shape) < 2000 or dtype == "f32" or dtype == "i32" then
              local r = draw(op, shape, dtype)
              for k, arguments in ipairs(calls) do
                local dims = arguments[op == "norm" and 2 or 1]
                if type(dims) ~= "table" or #shape > 1 then
                  local want = { reference.ops[op](r, unpack(arguments, 1, 3)) }
                  local first
                  lanes.each(e, r, function(x)
                    local what = ("%s call %d of %s"):format(op, k, table.concat(shape, "x"))
                    local got = run(op, x, arguments)
                    assert.equal(#want, #got, what)
                    for i = 1, #want do
                      close(want[i], got[i], dtype == "f64" and tolerance * 1e-7 or tolerance, what)
                      if first then same(first[i], got[i], what) end
                    end
                    first = first or got
                  end)
                end
              end
            end
          end
        end
      end)
    end

    it("read expanded and reversed operands in the order of their elements", function()
      local row = lanes.fresh(e, reference.random({ 1, 300 }, "f32", -3, 3, 5))
      local wide = row:expand{ 70, 300 }
      for _, op in ipairs { "sum", "mean", "var", "logsumexp", "norm" } do
        same(wide:contiguous()[op](wide:contiguous()), wide[op](wide), op)
      end
      for dim = 1, 2 do
        same(wide:contiguous():sum(dim), wide:sum(dim), "sum")
        same(wide:contiguous():cumsum(dim), wide:cumsum(dim), "cumsum")
        same(wide:contiguous():argmax(dim), wide:argmax(dim), "argmax")
      end
    end)

    it("keep every dim that is not reduced, of size 1 or not", function()
      local function shape(t) return table.concat(t.shape, ",") end
      local x = e:rand{ 3, 1 }
      assert.equal("3", shape((x:max(2))))
      assert.equal("3,1", shape((x:max(2, true))))
      assert.equal("1,1", shape((e:rand{ 1, 3, 1 }:max(2))))
      assert.equal("1,1,1", shape((e:rand{ 1, 3, 1 }:max(2, true))))
      assert.equal("", shape(x:sum()))
      assert.equal("1,1", shape(x:sum(nil, true)))
      assert.equal("2", shape(e:rand{ 2, 3, 4 }:sum{ 2, 3 }))
    end)

    it("take -1 for the last dim", function()
      local x = e:tensor{ { 1, 2, 3 }, { 4, 5, 6 } }
      assert.same({ 6, 15 }, x:sum(-1):totable())
      assert.same({ 5, 7, 9 }, x:sum(-2):totable())
    end)

    it("of nothing: 0, 1, NaN, -inf, false, true, or no identity", function()
      local x = e:empty{ 0, 4 }
      assert.equal(0, x:sum():item())
      assert.same({ 0, 0, 0, 0 }, x:sum(1):totable())
      assert.equal(1, x:prod():item())
      assert.equal(-inf, x:logsumexp():item())
      assert.is_false(x:any():item())
      assert.is_true(x:all():item())
      assert.equal(0, x:norm():item())
      for _, v in ipairs { x:mean():item(), x:var():item(), x:mean(1):get(2), x:var(1):get(4) } do assert.is_true(v ~= v) end
      for _, op in ipairs { "max", "min", "argmax", "argmin" } do
        fails("no identity", x[op], x)
        fails(op .. ": ", x[op], x, 1)
        assert.same({ 0 }, x[op](x, 2).shape)
      end
      fails("no identity", x.norm, x, inf)
      fails("no identity", x.norm, x, -1)
      assert.same({ 0 }, x:sum(2).shape)
      assert.same({ 0, 4 }, x:cumsum(1).shape)
    end)

    it("of one element: the element; its variance is NaN, or 0 without correction", function()
      local x = e:tensor(3)
      assert.equal(3, x:sum():item())
      assert.equal(3, x:mean():item())
      assert.equal(3, (x:max():item()))
      local v, i = x:max(1)
      assert.equal(3, v:item())
      assert.equal(1, i:item())
      assert.is_true(x:var():item() ~= x:var():item())
      assert.equal(0, x:var(nil, 0):item())
      assert.equal(3, x:cumsum(1):item())
    end)

    it("hand a NaN on, and find the first one", function()
      for _, dtype in ipairs(FLOATS) do
        for _, n in ipairs { 3, 40, 300, 5000 } do
          local data = {}
          for k = 1, n do data[k] = k % 17 end
          data[n - 1], data[n] = nan, nan
          local x = e:tensor(data, { dtype = dtype })
          for _, op in ipairs { "sum", "mean", "prod", "max", "min", "var", "logsumexp", "norm" } do
            local v = x[op](x):item()
            assert.is_true(v ~= v, op .. " of " .. n)
          end
          for _, p in ipairs { 0, 1, 3, inf, -inf } do
            local v = x:norm(p):item()
            assert.is_true(v ~= v, "norm " .. p)
          end
          assert.equal(n - 1, x:argmax():item())
          assert.equal(n - 1, x:argmin():item())
          local v, k = x:max(1)
          assert.is_true(v:item() ~= v:item())
          assert.equal(n - 1, k:item())
          local column = x:view{ n, 1 }:expand{ n, 3 }
          assert.same({ n - 1, n - 1, n - 1 }, column:argmax(1):totable())
        end
      end
    end)

    it("give ties to the first", function()
      local x = e:tensor{ { 1, 5, 5 }, { 5, 1, 1 }, { 2, 2, 2 } }
      assert.same({ 2, 1, 1 }, x:argmax(2):totable())
      assert.same({ 1, 2, 1 }, x:argmin(2):totable())
      assert.same({ 2, 1, 1 }, x:argmax(1):totable())
      assert.equal(2, x:argmax():item())
      assert.equal(1, e:zeros{ 5000 }:argmax():item())
      assert.equal(1, e:zeros({ 5000 }, { dtype = "i32" }):argmin():item())
    end)

    it("carry infinities", function()
      local x = e:tensor{ { -inf, -inf }, { inf, 1 }, { -inf, 2 } }
      assert.same({ -inf, inf, 2 }, x:logsumexp(2):totable())
      assert.same({ -inf, inf, 2 }, (x:max(2)):totable())
      assert.equal(inf, x:norm():item())
    end)

    it("widen integers to i64, and wrap there", function()
      assert.equal("i64", e:ones({ 3 }, { dtype = "u8" }):sum().dtype)
      assert.equal(552, e:ones({ 552 }, { dtype = "u8" }):sum():item())
      assert.equal(60000, e:full({ 300 }, 200, { dtype = "u8" }):sum():item())
      assert.equal(4294967294, e:full({ 2 }, 2147483647, { dtype = "i32" }):sum():item())
      assert.equal(3, e:ones({ 3 }, { dtype = "bool" }):sum():item())
      assert.equal("i64", e:ones({ 3 }, { dtype = "bool" }):cumsum(1).dtype)
      for _, op in ipairs { "mean", "var", "norm" } do
        local x = e:ones({ 3 }, { dtype = "i64" })
        fails(op .. ": argument 'x': dtype i64 is not supported", x[op], x)
      end
      assert.equal("f32", e:ones({ 3 }, { dtype = "i64" }):logsumexp().dtype)
    end)

    it("do not overflow where the result does not", function()
      assert.is_true(math.abs(e:full({ 4 }, 1e30):norm():item() / 2e30 - 1) < 1e-6)
      assert.is_true(math.abs(e:full({ 4 }, 1e-30):norm():item() / 2e-30 - 1) < 1e-6)
      assert.is_true(math.abs(e:tensor{ 1e30, 1e30, 1e-30, 1e-30 }:prod():item() - 1) < 1e-6)
      assert.is_true(math.abs(e:tensor{ 1000, 1000 }:logsumexp():item() - (1000 + math.log(2))) < 1e-3)
    end)

    it("sum many ones, and what cancels", function()
      local n = 2 ^ 24 + 100
      assert.equal(n, e:ones({ 1 }):expand{ n }:sum():item())
      local tenth = e:tensor(0.1)
      assert.is_true(math.abs(tenth:expand{ 1e8 }:sum():item() / (1e8 * tenth:item()) - 1) < 1e-6)
      assert.equal(2, e:tensor({ 1e8, 1, -1e8, 1 }, { dtype = "f64" }):sum():item())
    end)

    it("var of rows far from 0", function()
      local r = reference.random({ 3, 1500 }, "f32", 10000, 10000.05, 9)
      close(reference.ops.var(r, 2), lanes.fresh(e, r):var(2), 1e-6, "var")
      close(reference.ops.var(r, 1), lanes.fresh(e, r):var(1), 1e-6, "var")
    end)

    it("write into a destination that is their operand, or a part of it", function()
      local r = reference.random({ 3, 4 }, "f32", -3, 3, 2)
      local x = lanes.fresh(e, r)
      assert.is_true(rawequal(x, x:cumsum(2, x)))
      close(reference.ops.cumsum(r, 2), x, 1e-6, "cumsum")
      local y = lanes.fresh(e, r)
      local want = y:sum(2):totable()
      assert.same(want, y:sum(2, false, y:select(2, 1)):totable())
      local v, k = e:empty{ 3 }, e:empty({ 3 }, { dtype = "i64" })
      local a, b = x:max(2, false, { out = { v, k } })
      assert.is_true(rawequal(a, v) and rawequal(b, k))
      fails("indices are a result only with a dim", x.max, x, nil, false, { out = { e:empty{}, k } })
      fails("argument 'out'", x.sum, x, 1, false, e:empty{ 3 })
      fails("argument 'out'", x.sum, x, 1, false, e:empty({ 4 }, { dtype = "f64" }))
    end)

    it("name the argument that is wrong", function()
      local x = e:rand{ 2, 3 }
      fails("sum: argument 'dims': dimension 3 of a tensor with 2 dimensions", x.sum, x, 3)
      fails("sum: argument 'dims': dimensions start at 1", x.sum, x, 0)
      fails("given twice", x.sum, x, { 1, -2 })
      fails("cumsum: argument 'dim'", x.cumsum, x)
      fails("norm: argument 'p'", x.norm, x, nan)
    end)

    it("cumsum from the end is cumsum of what was flipped", function()
      local reversed = require "perilune.core".ops.cumsum_reverse
      for _, shape in ipairs { { 5 }, { 3, 4 }, { 2, 1100 }, { 1100, 2 } } do
        local r = reference.random(shape, "f64", -3, 3, 4)
        lanes.each(e, r, function(x)
          for dim = 1, #shape do
            local want = x:sum(dim, true) - x:cumsum(dim) + x
            close(lanes.values(want), reversed(x, dim), 1e-12, "cumsum_reverse")
          end
        end)
      end
    end)
  end)
end)

describe("reductions", function()
  after_each(engines.close)

  it("give the same bits with one thread and with several", function()
    local one, many = engines.open("cpu", { threads = 1 }), engines.open("cpu", { threads = 4 })
    for _, shape in ipairs { { 100000 }, { 300, 400 }, { 9000, 20 }, { 20, 9000 } } do
      local r = reference.random(shape, "f32", -3, 3, 8)
      local a, b = lanes.fresh(one, r), lanes.fresh(many, r)
      for _, row in ipairs(OPS) do
        local op, calls = row[1], row[4]
        for _, arguments in ipairs(calls) do
          if type(arguments[1]) ~= "table" and type(arguments[2]) ~= "table" then
            local x, y = run(op, a, arguments), run(op, b, arguments)
            for i = 1, #x do same(x[i], y[i], op) end
          end
        end
      end
    end
  end)
end)
