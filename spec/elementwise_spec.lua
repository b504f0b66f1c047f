-- SPDX-License-Identifier: MIT
-- The elementwise ops where the sweeps over the op table do not look: dtype rules, numbers as operands, extremes, integers' corners, what a
-- kernel does at the edges of its blocks, destinations that are operands, and the text of errors.

local perilune = require "perilune"
local core = require "perilune.core"
local reference = require "spec.support.reference"
local engines = require "spec.support.engines"

perilune.on_report(function() end) -- a full arena is no matter here

local inf, nan = math.huge, 0 / 0
local DTYPES = { "bool", "u8", "i32", "i64", "f32", "f64" }

local function fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "no error, " .. text .. " was expected")
  assert.is_truthy(tostring(message):find(text, 1, true), tostring(message))
end

--- A tensor's elements as a flat list, bools as true and false, i64 as int64.
local function list(t) return t:reshape{ -1 }:totable{ int64 = t.dtype == "i64" or nil } end

--- The same number to the sign of zero, or both NaN.
local function is(want, got)
  if want ~= want then return got ~= got end
  return want == got and (want ~= 0 or type(want) ~= "number" or 1 / want == 1 / tonumber(got))
end

local function equal(want, t, what)
  local got = list(t)
  assert.equal(#want, #got, what)
  for i, v in ipairs(want) do
    if not is(v, got[i]) then
      error(("%s: element %d is %s, %s was expected"):format(what or "result", i, tostring(got[i]), tostring(v)), 2)
    end
  end
end

--- Equal to the bit, NaN's sign and payload aside.
local function same(a, b, what)
  assert.same(a.shape, b.shape)
  assert.equal(a.dtype, b.dtype)
  local x, y = list(a), list(b)
  for i = 1, #x do
    if not is(x[i], y[i]) then error(("%s: element %d is %s and %s"):format(what, i, tostring(x[i]), tostring(y[i])), 2) end
  end
end

local to_bool = { eq = 1, ne = 1, lt = 1, le = 1, gt = 1, ge = 1, logical_and = 1, logical_or = 1, logical_not = 1, isnan = 1, isfinite = 1 }
local by_name = {}
for _, row in ipairs(core.ops.rows) do by_name[row.name] = row end

--- The rows that carry a formula: they have a fused derivative with these operands, or are tests; gelu is two of them.
local function formulas(operands, derivative, more)
  local rows = {}
  for _, row in ipairs(core.ops.rows) do
    local fused = by_name[row.name .. "_backward"]
    if not row.internal and row.signature:find("^" .. operands)
      and (to_bool[row.name] or more[row.name] or fused and fused.signature:find("^" .. derivative)) then
      rows[#rows + 1] = row
    end
  end
  return rows
end

local unary, binary = formulas("x:t", "g:t s:ts", { gelu = 1 }), formulas("a:ts b:ts$", "g:t a:ts b:ts which", {})

--- Options that an op cannot do without.
local function options(row) return row.name == "clamp" and { -1, 1 } or {} end

local keeps = { neg = 1, abs = 1, sign = 1, square = 1, relu = 1, floor = 1, ceil = 1, round = 1, clamp = 1 }
local no_bool = { neg = 1, abs = 1, sign = 1, square = 1, relu = 1, floor = 1, ceil = 1, round = 1, clamp = 1, sub = 1, mod = 1, pow = 1 }

engines.each(function(kind, open)
  describe("elementwise on " .. kind, function()
    local e
    before_each(function() e = open() end)
    after_each(engines.close)

    local function t(values, dtype) return e:tensor(values, { dtype = dtype or "f32" }) end

    describe("dtypes", function()
      it("of one operand: numbers stay what they are, functions of integers are f32, tests are bool", function()
        assert.is_true(#unary >= 28)
        for _, row in ipairs(unary) do
          for _, dtype in ipairs(DTYPES) do
            local x = t({ 0, 1, 1 }, dtype)
            if dtype == "bool" and no_bool[row.name] and row.name ~= "clamp" then
              fails("argument 'x': dtype bool is not supported, valid are u8, i32, i64, f32, f64", x[row.name], x, unpack(options(row)))
            else
              local want = to_bool[row.name] and "bool" or (keeps[row.name] or dtype:find "f") and dtype or "f32"
              if row.name == "clamp" and dtype == "bool" then want = "i64" end
              assert.equal(want, x[row.name](x, unpack(options(row))).dtype, row.name .. " " .. dtype)
            end
          end
        end
      end)

      it("of two operands follow PyTorch's table, and div is always a float", function()
        assert.is_true(#binary >= 16)
        for _, row in ipairs(binary) do
          for i, da in ipairs(DTYPES) do
            for k, db in ipairs(DTYPES) do
              local a, b = t({ 1, 1 }, da), t({ 1, 1 }, db)
              local want = DTYPES[math.max(i, k)]
              if want == "bool" and no_bool[row.name] then
                fails("argument 'a': dtype bool is not supported", a[row.name], a, b)
              else
                if row.name == "div" and not want:find "f" then want = "f32" end
                if to_bool[row.name] then want = "bool" end
                assert.equal(want, a[row.name](a, b).dtype, row.name .. " " .. da .. " " .. db)
              end
            end
          end
        end
      end)

      it("of a number and of a 0-dim tensor count only by category, on either side", function()
        local function dtypes(v, want)
          for i, dtype in ipairs(DTYPES) do
            local x = t({ 1, 1 }, dtype)
            assert.equal(want[i], (x + v).dtype, dtype)
            assert.equal(want[i], (v + x).dtype, dtype)
          end
        end
        dtypes(2, { "i64", "u8", "i32", "i64", "f32", "f64" })
        dtypes(0.5, { "f32", "f32", "f32", "f32", "f32", "f64" })
        dtypes(inf, { "f32", "f32", "f32", "f32", "f32", "f64" })
        dtypes(t(2, "i64"), { "i64", "u8", "i32", "i64", "f32", "f64" })
        dtypes(t(2, "f64"), { "f64", "f64", "f64", "f64", "f32", "f64" })
        assert.equal("f64", (t(2, "f64") + t(2, "f32")).dtype)
        assert.equal("f32", (t(2, "i64") + 0.5).dtype)
        assert.equal("f32", t({ 1 }, "i64"):clamp(0.5).dtype)
        assert.equal("i64", t({ true }, "bool"):clamp(0).dtype)
      end)

      it("bools add as or, multiply as and, and any byte but 0 is true", function()
        local a, b = t({ true, true, false, false }, "bool"), t({ true, false, true, false }, "bool")
        equal({ true, true, true, false }, a + b)
        equal({ true, false, false, false }, a * b)
        equal({ true, true, true, false }, a:maximum(b))
        equal({ true, false, false, false }, a:minimum(b))
        equal({ 1, inf, 0, nan }, a / b)
        equal({ true, false, false, true }, a:eq(b))
        equal({ 2, 2, 1, 1 }, a + 1)
      end)
    end)

    describe("numbers", function()
      it("stand on either side of every operator", function()
        local x = t{ 1, 2, 4 }
        equal({ 3, 4, 6 }, x + 2)
        equal({ 3, 4, 6 }, 2 + x)
        equal({ -1, 0, 2 }, x - 2)
        equal({ 1, 0, -2 }, 2 - x)
        equal({ 2, 4, 8 }, 2 * x)
        equal({ 0.5, 1, 2 }, x / 2)
        equal({ 2, 1, 0.5 }, 2 / x)
        equal({ 1, 4, 16 }, x ^ 2)
        equal({ 2, 4, 16 }, 2 ^ x)
        equal({ 1, 2, 1 }, x % 3)
        equal({ 0, 1, 3 }, 3 % x)
        equal({ -1, -2, -4 }, -x)
      end)

      it("are whole i64 to 2^53 and wrap in narrower integers, as in PyTorch", function()
        equal({ 9007199254740993LL }, t({ 1 }, "i64") + 2 ^ 53)
        equal({ 44 }, t({ 0 }, "u8") + 300)
        equal({ 255 }, t({ 0 }, "u8") - 1)
        equal({ 255 }, t({ 1 }, "u8") * -1)
        fails("add: argument 'b': the number 1e+20 does not fit into i64", function() return t({ 1 }, "i64") + 1e20 end)
        fails("mul: argument 'a': the number -1e+20 does not fit into i64", function() return -1e20 * t({ 1 }, "i32") end)
      end)

      it("compare as what they are, whatever the dtype holds", function()
        local x = t({ 0, 44, 255 }, "u8")
        equal({ true, true, true }, x:lt(300))
        equal({ false, false, false }, x:eq(300))
        equal({ true, true, true }, x:gt(-1))
        equal({ true, false, false }, x:lt(0.5))
        equal({ true }, t({ -2147483648 }, "i32"):gt(-2147483649))
        equal({ true, false }, t{ 1, nan }:lt(inf))
        equal({ true, true, true }, e:gt(300, x))
      end)

      it("keep an infinity, NaN and -0", function()
        local x = t{ 1, -1 }
        equal({ inf, -inf }, x * inf)
        equal({ nan, nan }, x + nan)
        equal({ -0.0, 0 }, x * -0.0)
        equal({ -inf, inf }, x / -0.0)
      end)
    end)

    describe("extremes", function()
      local X = { 0, -0.0, inf, -inf, nan }
      local EXPECTED = {
        neg = { -0.0, 0, -inf, inf, nan }, abs = { 0, 0, inf, inf, nan }, sign = { 0, 0, 1, -1, nan },
        exp = { 1, 1, inf, 0, nan }, expm1 = { 0, -0.0, inf, -1, nan }, log = { -inf, -inf, inf, nan, nan },
        log1p = { 0, -0.0, inf, nan, nan }, sqrt = { 0, -0.0, inf, nan, nan }, rsqrt = { inf, -inf, 0, nan, nan },
        square = { 0, 0, inf, inf, nan }, reciprocal = { inf, -inf, 0, -0.0, nan }, sin = { 0, -0.0, nan, nan, nan },
        cos = { 1, 1, nan, nan, nan }, tanh = { 0, -0.0, 1, -1, nan }, sigmoid = { 0.5, 0.5, 1, 0, nan },
        relu = { 0, 0, inf, 0, nan }, leaky_relu = { 0, -0.0, inf, -inf, nan }, gelu = { 0, -0.0, inf, nan, nan },
        silu = { 0, -0.0, inf, nan, nan }, erf = { 0, -0.0, 1, -1, nan }, floor = { 0, -0.0, inf, -inf, nan },
        ceil = { 0, -0.0, inf, -inf, nan }, round = { 0, -0.0, inf, -inf, nan }, clamp = { 0, -0.0, 1, -1, nan },
        softplus = { 0.6931471805599453, 0.6931471805599453, inf, 0, nan },
        logical_not = { true, true, false, false, false }, isnan = { false, false, false, false, true },
        isfinite = { true, true, false, false, false },
      }

      it("of one operand", function()
        for _, row in ipairs(unary) do
          local want = assert(EXPECTED[row.name], row.name .. " has no expected extremes")
          for _, dtype in ipairs{ "f32", "f64" } do
            local expected = {}
            for i, v in ipairs(want) do
              if dtype == "f32" and type(v) == "number" then v = reference.round(reference.new({ 1 }, "f32", { v }))[1] end
              expected[i] = v
            end
            local x = t(X, dtype)
            equal(expected, x[row.name](x, unpack(options(row))), row.name .. " " .. dtype)
          end
        end
      end)

      it("of large and small arguments", function()
        equal({ 1, -1, 1, -1 }, t{ 20, -20, 1e4, -1e38 }:tanh())
        equal({ 0, 1, 0 }, t{ -1000, 1000, -inf }:sigmoid())
        equal({ 50, -0.0 }, t{ 50, -50 }:gelu())
        equal({ 50, -0.0 }, t{ 50, -50 }:gelu "tanh")
        equal({ 300, 2 ^ 100, 0 }, t{ 300, 2 ^ 100, -300 }:softplus())
        equal({ inf, 0, inf }, t{ 89, -104, 3e38 }:exp())
        equal({ -1 }, t{ -200 }:expm1())
        equal({ -2, -2, 0, 2, 2, 4 }, t{ -2.5, -1.5, 0.5, 1.5, 2.5, 3.5 }:round())
        local tiny = 2 ^ -149
        equal({ tiny, -tiny, tiny }, t{ tiny, -tiny, tiny } * 1)
        equal({ tiny, tiny, tiny }, t{ tiny, tiny, tiny }:relu())
        equal({ tiny }, t{ tiny }:tanh())
        equal({ 2 ^ -1074 }, t({ 2 ^ -1074 }, "f64"):sin())
      end)

      it("of two operands: NaN on either side stays, but for the exceptions that the table lists", function()
        for _, row in ipairs(binary) do
          if not row.eats_nan then
            for _, dtype in ipairs{ "f32", "f64" } do
              equal({ nan, nan, nan }, e[row.name](e, t({ nan, 1, nan }, dtype), t({ 1, nan, nan }, dtype)), row.name)
              equal({ nan }, e[row.name](e, t({ nan }, dtype), 1), row.name)
              equal({ nan }, e[row.name](e, nan, t({ 1 }, dtype)), row.name)
            end
          end
        end
        equal({ 1, 1, nan, nan }, e:pow(t{ nan, 1, nan, 2 }, t{ 0, nan, 1, nan }))
      end)

      it("of maximum and minimum are symmetric, zeros included", function()
        local a, b = t{ 0, -0.0, nan, inf, -inf }, t{ -0.0, 0, 1, -inf, inf }
        equal({ 0, 0, nan, inf, inf }, a:maximum(b))
        equal({ 0, 0, nan, inf, inf }, b:maximum(a))
        equal({ -0.0, -0.0, nan, -inf, -inf }, a:minimum(b))
        equal({ -0.0, -0.0, nan, -inf, -inf }, b:minimum(a))
      end)

      it("of comparisons: NaN is unequal to all, zeros are equal", function()
        local a, b = t{ nan, nan, 0, inf }, t{ nan, 1, -0.0, inf }
        for name, want in pairs{
          eq = { false, false, true, true }, ne = { true, true, false, false }, lt = { false, false, false, false },
          le = { false, false, true, true }, gt = { false, false, false, false }, ge = { false, false, true, true },
          logical_and = { true, true, false, true }, logical_or = { true, true, false, true } } do
          equal(want, e[name](e, a, b), name)
        end
        equal({ true }, t({ 2 ^ 24 + 1 }, "i32"):eq(t({ 2 ^ 24 }, "f32"))) -- compared as f32
        equal({ false }, t({ 2 ^ 24 + 1 }, "i32"):eq(t({ 2 ^ 24 }, "f64")))
      end)
    end)

    describe("division", function()
      it("is true division, and by zero what IEEE says", function()
        equal({ 0.5, -0.5, inf, -inf, nan }, t({ 1, -1, 1, -1, 0 }, "i32") / t({ 2, 2, 0, 0, 0 }, "i32"))
      end)

      it("leaves floor-mod's remainder, with the divisor's sign", function()
        for _, dtype in ipairs{ "f32", "f64", "i32", "i64" } do
          equal({ 2, -2, 1, -1, 0 }, t({ -10, 10, -5, 5, 6 }, dtype) % t({ 3, -3, 3, -3, 3 }, dtype), dtype)
        end
        equal({ nan, nan, nan, 5, -inf, 0, -0.0 }, e:mod(t{ 1, 0, inf, 5, 5, 0, -0.0 }, t{ 0, 0, 3, inf, -inf, 3, 3 }))
        equal({ 0.5, 2.5 }, t{ -2.5, -0.5 } % 3)
        equal({ 1, 254 % 7 }, t({ 255, 254 }, "u8") % t({ 254, 7 }, "u8"))
      end)

      it("of integers: the least number by -1 does not trap", function()
        equal({ 0 }, t({ -2147483648 }, "i32") % -1)
        equal({ 0, 0 }, t({ -2 ^ 63, 3 }, "i64") % t({ -1, -1 }, "i64"))
      end)

      it("of integers by zero is an error: at once for a number, at the next wait for data", function()
        fails("mod: argument 'b': integer division by zero", function() return t({ 1 }, "i32") % 0 end)
        fails("mod: argument 'b': integer division by zero, the number 256 is 0 as u8", function() return t({ 1 }, "u8") % 256 end)
        for _, dtype in ipairs{ "u8", "i32", "i64" } do
          local r = e:mod(t({ 7, 7, 7, 7 }, dtype), t({ 2, 3, 0, 0 }, dtype))
          fails("element 3 of 'b' is 0, which is not allowed", e.sync, e)
          equal({ 1, 1, 0, 0 }, r) -- the error was raised and is gone
        end
      end)

      it("finds the first zero of a broadcast, transposed or large divisor in the divisor's own numbering", function()
        local function fault(position, a, b)
          e:mod(a, b)
          fails(("element %d of 'b' is 0"):format(position), e.sync, e)
        end
        fault(2, e:ones({ 3, 2 }, { dtype = "i32" }), t({ 5, 0 }, "i32"))
        fault(3, e:ones({ 3, 2 }, { dtype = "i32" }), t({ { 5 }, { 5 }, { 0 } }, "i32"))
        fault(2, e:ones({ 2, 2 }, { dtype = "i32" }), t({ { 1, 1 }, { 0, 1 } }, "i32"):t())
        local b = e:ones({ 100000 }, { dtype = "i32" })
        b:set(70001, 0)
        b:set(99999, 0)
        fault(70001, e:ones({ 100000 }, { dtype = "i32" }), b)
        local m = e:ones({ 40, 100 }, { dtype = "i32" })
        m:set(30, 77, 0)
        m:set(31, 2, 0)
        fault(40 + 31, e:ones({ 100, 40 }, { dtype = "i32" }), m:t())
      end)

      it("in place, into the divisor", function()
        local b = t({ 3, 0, 4 }, "i32")
        e:mod(t({ 7, 7, 7 }, "i32"), b, b)
        fails("element 2 of 'b' is 0", e.sync, e)
        equal({ 1, 0, 3 }, b)
      end)
    end)

    describe("powers", function()
      it("of floats follow IEEE", function()
        equal({ 1, 1, 1, nan, inf, -inf, 0, 4, -8, inf, 0.25, 2 },
          e:pow(t{ 0, nan, 1, -8, 0, -0.0, inf, -2, -2, -inf, -2, 4 }, t{ 0, 0, nan, 1 / 3, -1, -1, -1, 2, 3, 2, -2, 0.5 }))
      end)

      it("of integers are exact and wrap", function()
        equal({ 1, 0, 1, -27, 1024, 3486784401LL }, e:pow(t({ 0, 0, 1, -3, 2, 3 }, "i64"), t({ 0, 5, 99, 3, 10, 20 }, "i64")))
        equal({ 0, -2147483648 }, e:pow(t({ 2, 2 }, "i32"), t({ 32, 31 }, "i32")))
        equal({ 0, 243 }, e:pow(t({ 16, 3 }, "u8"), t({ 2, 5 }, "u8")))
        equal({ 0.25 }, t({ 4 }, "i32") ^ t({ -1 }, "f32"))
      end)

      it("of integers to a negative one are an error: at once for a number, at the next wait for data", function()
        fails("pow: argument 'b': an integer has no power of -1", function() return t({ 2 }, "i64") ^ -1 end)
        local r = e:pow(t({ 2, 2, 1 }, "i32"), t({ 3, -3, -1 }, "i32"))
        fails("element 2 of 'b' is -3, valid are 0 to", e.sync, e)
        equal({ 8, 0, 0 }, r)
      end)
    end)

    it("integers wrap", function()
      equal({ -2147483648, 2147483647, -2147483648, -2147483648, 1 },
        e:where(t({ 1, 0, 0, 0, 0 }, "bool"), t({ 2147483647, 0, 0, 0, 0 }, "i32") + 1,
          e:cat({ t({ 0 }, "i32"), t({ -2147483648 }, "i32") - 1, -t({ -2147483648 }, "i32"), t({ -2147483648 }, "i32"):abs(),
            t({ 2147483647 }, "i32"):square() }, 1)))
      equal({ 0, 255, 1 }, t({ 255, 254, 255 }, "u8") * t({ 0, 1, 255 }, "u8") + 1 - t({ 1, 0, 1 }, "u8"))
      equal({ -9223372036854775807LL - 1 }, t({ 2 ^ 62 }, "i64") * 2)
    end)

    describe("options", function()
      it("of leaky_relu, softplus, clamp and gelu", function()
        equal({ -0.5, 0, 2 }, t{ -2, 0, 2 }:leaky_relu(0.25))
        equal({ 3, 10 }, t{ 3, 10 }:softplus(2, 5))
        assert.is_true(math.abs(t({ -1 }, "f64"):softplus(2):item() - math.log(1 + math.exp(-2)) / 2) < 1e-16)
        equal({ 0, 1, 2 }, t{ -1, 1, 3 }:clamp(0, 2))
        equal({ -1, 1, 2 }, t{ -1, 1, 3 }:clamp(nil, 2))
        equal({ 2, 2, 2 }, t{ -1, 1, 3 }:clamp(3, 2)) -- where lo > hi, hi
        equal({ nan, nan }, t{ nan, 1 }:clamp(0, nan))
        equal({ 5, 255 }, t({ 0, 255 }, "u8"):clamp(5, 1000))
        equal({ 0, 7 }, t({ 0, 7 }, "u8"):clamp(-5))
        equal({ 1.5, 2 }, t({ 1, 2 }, "i32"):clamp(1.5))
      end)

      it("are checked", function()
        fails("clamp: argument 'lo': lo or hi is needed", function() return t{ 1 }:clamp() end)
        fails("approximate", function() return t{ 1 }:gelu "exact" end)
        fails("slope", function() return t{ 1 }:leaky_relu "steep" end)
      end)
    end)

    describe("where and masked_fill", function()
      it("read any dtype as a condition, NaN as true", function()
        for _, dtype in ipairs(DTYPES) do
          equal({ 1, -2, 3 }, e:where(t({ 1, 0, 1 }, dtype), t{ 1, 2, 3 }, t{ -1, -2, -3 }), dtype)
        end
        equal({ 1, 2 }, e:where(t{ nan, -0.0 }, t{ 1, 1 }, t{ 2, 2 }))
      end)

      it("keep what is not chosen out of it", function()
        equal({ 1, 2 }, e:where(t({ true, false }, "bool"), t{ 1, nan }, t{ nan, 2 }))
        equal({ 0, 2, nan }, t{ nan, 2, nan }:masked_fill(t({ true, false, false }, "bool"), 0))
      end)

      it("promote and broadcast", function()
        local r = e:where(t({ { true }, { false } }, "bool"), t({ 1, 2 }, "i32"), 0.5)
        assert.same({ 2, 2 }, r.shape)
        assert.equal("f32", r.dtype)
        equal({ 1, 2, 0.5, 0.5 }, r)
        equal({ 9007199254740992LL, 7 }, e:where(t({ true, false }, "bool"), 2 ^ 53, t({ 7, 7 }, "i64")))
        assert.equal("f32", e:where(t({ true }, "bool"), 1, 2).dtype)
        assert.same({ 2, 3 }, e:zeros{ 3 }:masked_fill(e:zeros{ 2, 3 }, 1).shape)
      end)

      it("write infinities, and into integers only what they hold", function()
        equal({ -inf, 1 }, t{ 0, 1 }:masked_fill(t({ true, false }, "bool"), -inf))
        fails("masked_fill: argument 'value': the number 0.5 is no i32", function()
          return t({ 1 }, "i32"):masked_fill(t({ true }, "bool"), 0.5)
        end)
      end)
    end)

    describe("cast", function()
      it("truncates, saturates, and takes NaN for the least", function()
        local x = { 1.9, -1.9, 300, -300, inf, -inf, nan, 2147483648, -2147483648, 1e30 }
        for _, from in ipairs{ "f32", "f64" } do
          local f = t(x, from)
          equal({ 1, 0, 255, 0, 255, 0, 0, 255, 0, 255 }, f:to "u8", from)
          equal({ 1, -1, 300, -300, 2147483647, -2147483648, -2147483648, 2147483647, -2147483648, 2147483647 }, f:to "i32", from)
          equal({ 1LL, -1LL, 300LL, -300LL, 9223372036854775807LL, -9223372036854775807LL - 1, -9223372036854775807LL - 1, 2147483648LL,
            -2147483648LL, 9223372036854775807LL }, f:to "i64", from)
          equal({ true, true, true, true, true, true, true, true, true, true }, f:to "bool", from)
        end
        equal({ 2147483520, -2147483648 }, t{ 2147483520, -2147483648 }:to "i32")
        equal({ 2147483647, -2147483648 }, t({ 2147483647.5, -2147483648.5 }, "f64"):to "i32")
        equal({ false, false, true }, t{ 0, -0.0, 2 ^ -149 }:to "bool")
      end)

      it("wraps integers and rounds to nearest", function()
        equal({ 0, 255, 44 }, t({ 256, -1, 300 }, "i64"):to "u8")
        equal({ -2147483648 }, t({ 2147483648 }, "i64"):to "i32")
        equal({ 16777216, 16777220 }, t({ 16777217, 16777219 }, "i32"):to "f32")
        equal({ inf, 0 }, t({ 1e39, 1e-60 }, "f64"):to "f32")
        equal({ 0, 1 }, t({ false, true }, "bool"):to "f64")
      end)

      it("makes a new tensor even of the same dtype", function()
        local x = t{ 1, 2 }
        local y = e:cast(x, "f32")
        assert.is_false(x:same_storage(y))
        equal({ 1, 2 }, y)
      end)
    end)

    describe("fill, zero and copy", function()
      it("write every value that the dtype holds, exactly", function()
        for _, v in ipairs{ 0, -0.0, inf, -inf, nan, 1, -3.4028234663852886e38 } do
          equal({ v, v }, e:fill(e:ones{ 2 }, v))
          equal({ v, v }, e:fill(e:ones({ 2 }, { dtype = "f64" }), v))
        end
        equal({ 9007199254740992LL, 9007199254740992LL }, e:fill(e:ones({ 2 }, { dtype = "i64" }), 2 ^ 53))
        equal({ -2147483648 }, e:fill(e:ones({ 1 }, { dtype = "i32" }), -2147483648))
        equal({ true, true }, e:fill(e:zeros({ 2 }, { dtype = "bool" }), 0.5))
        for _, dtype in ipairs(DTYPES) do
          local x = e:ones({ 3 }, { dtype = dtype })
          assert.is_true(rawequal(x, e:zero(x)))
          same(e:zeros({ 3 }, { dtype = dtype }), x, dtype)
        end
      end)

      it("refuse what an integer does not hold, and change nothing", function()
        local x = t({ 7 }, "i32")
        for _, v in ipairs{ 0.5, 2 ^ 31, -2 ^ 31 - 1, inf, nan } do fails("fill: argument 'value': the number", e.fill, e, x, v) end
        fails("is no u8", e.fill, e, t({ 1 }, "u8"), -1)
        fails("is no i64", e.fill, e, t({ 1 }, "i64"), 2 ^ 63)
        equal({ 7 }, x)
      end)

      it("write through views and nothing beside them", function()
        local x = e:zeros{ 4, 4 }
        e:fill(x[{ { 2, 3 }, { 1, 4, 2 } }], 5)
        equal({ 0, 0, 0, 0, 5, 0, 5, 0, 5, 0, 5, 0, 0, 0, 0, 0 }, x)
        x:t()[1]:copy(t({ 1, 2, 3, 4 }, "i64"))
        equal({ 1, 0, 0, 0, 2, 0, 5, 0, 3, 0, 5, 0, 4, 0, 0, 0 }, x)
        equal({ 9, 0, 0, 0, 9, 0, 5, 0, 9, 0, 5, 0, 9, 0, 0, 0 }, x:t()[1]:copy(t(9)) and x)
      end)

      it("copies between overlapping views as if through a third", function()
        local x = e:arange(1, 11)
        x[{ { 2, 10 } }]:copy(x[{ { 1, 9 } }])
        equal({ 1, 1, 2, 3, 4, 5, 6, 7, 8, 9 }, x)
        local m = e:arange(1, 10):reshape{ 3, 3 }:clone()
        m:copy(m:t())
        equal({ 1, 4, 7, 2, 5, 8, 3, 6, 9 }, m)
      end)

      it("refuse broadcast views and shapes that do not fit, by name", function()
        fails("fill: argument 't': cannot write through a broadcast view", e.fill, e, e:ones{ 1 }:expand{ 3 }, 2)
        fails("copy: argument 'dst': cannot write through a broadcast view", function() e:ones{ 1 }:expand{ 3 }:copy(e:ones{ 3 }) end)
        fails("copy: argument 'src': shape (2, 3) does not broadcast to (3)", function() e:ones{ 3 }:copy(e:ones{ 2, 3 }) end)
      end)
    end)

    describe("layouts", function()
      -- Sizes on both sides of the kernels' blocks: short rows, tiles of 16 x 64, blocks of 512, chunks of 32768.
      local SHAPES = { { 3, 5 }, { 16, 64 }, { 17, 65 }, { 4, 3, 7 }, { 5, 70, 33 }, { 2, 16, 100 }, { 257, 259 }, { 9, 2, 2, 2, 150 } }

      local function laid(x, how)
        local n = #x.shape
        local dims, shape = {}, {}
        if how == "reversed" or how == "rotated" then
          for d = 1, n do dims[d] = how == "reversed" and n + 1 - d or d % n + 1 end
          local back = {}
          for d = 1, n do back[dims[d]] = d end
          return x:permute(dims):clone():permute(back)
        end
        for d = 1, n do shape[d], dims[d] = x.shape[d] + (d == n and 3 or 1), { 2, x.shape[d] + 1 } end
        if how == "stepped" then shape[n], dims[n] = 2 * x.shape[n], { 1, 2 * x.shape[n], 2 } end
        return e:zeros(shape, { dtype = x.dtype })[dims]:copy(x)
      end

      for _, dtype in ipairs{ "f32", "f64", "u8" } do
        it("give the same bits in every layout, operands and destination: " .. dtype, function()
          for _, shape in ipairs(SHAPES) do
            local r = reference.random(shape, dtype, -4, 4, 3)
            local x = e:tensor(r, { dtype = dtype, shape = shape })
            local y = e:tensor(reference.random(shape, dtype, -4, 4, 4), { dtype = dtype, shape = shape })
            local row, column = y[{ {}, { 1 } }], y:select(1, 1)
            local sum, bias, col, tanh, less = x + y, x + column, x * row, x:tanh(), x:lt(y)
            for _, h in ipairs{ "reversed", "rotated", "cut", "stepped" } do
              local what = h .. " " .. table.concat(shape, "x")
              local a, b = laid(x, h), laid(y, h)
              same(x, a, what)
              same(x, a:clone(), what)
              same(sum, a + b, what)
              same(sum, a + y, what)
              same(sum, x + b, what)
              same(bias, a + column, what)
              same(col, a * row, what)
              same(tanh, a:tanh(), what)
              same(less, a:lt(b), what)
              local out = laid(e:zeros(shape, { dtype = dtype }), h)
              assert.is_true(rawequal(out, e:add(x, y, out)), what)
              same(sum, out, what)
              same(sum, e:add(a, y, a), what) -- a is operand and destination
            end
          end
        end)
      end

      it("broadcast in every direction as the index formula says", function()
        local shapes = { {}, { 1 }, { 3 }, { 2, 1 }, { 1, 3 }, { 2, 3 }, { 4, 1, 1 }, { 4, 1, 3 }, { 1, 2, 1 }, { 4, 2, 3 }, { 0, 3 }, { 2, 0, 1 } }
        local tried, refused = 0, 0
        for i, sa in ipairs(shapes) do
          for k, sb in ipairs(shapes) do
            local a, b = reference.random(sa, "f32", -3, 3, i), reference.random(sb, "f32", -3, 3, 100 + k)
            local ta, tb = e:tensor(a, { shape = sa }), e:tensor(b, { shape = sb })
            if reference.broadcast_shape(sa, sb) then
              for _, name in ipairs{ "sub", "lt", "logical_or", "maximum" } do
                local want, got = reference.round(reference.ops[name](a, b)), e[name](e, ta, tb)
                assert.same(want.shape, got.shape)
                local expected = {}
                for at = 1, got:numel() do
                  expected[at] = want[at]
                  if got.dtype == "bool" then expected[at] = want[at] ~= 0 end
                end
                if got:numel() > 0 then equal(expected, got + (got.dtype == "bool" and t(false, "bool") or 0), name) end
              end
              tried = tried + 1
            else
              fails("does not broadcast with", e.add, e, ta, tb)
              refused = refused + 1
            end
          end
        end
        assert.is_true(tried > 60 and refused >= 20, tried .. " " .. refused)
      end)
    end)

    describe("destinations", function()
      it("may be an operand, both, or overlap one in any way", function()
        local a = t{ { 0, 1 }, { 2, 3 } }
        e:add(a, a:t(), a)
        equal({ 0, 3, 3, 6 }, a)
        local x = t{ 1, 2, 3 }
        assert.is_true(rawequal(x, e:mul(x, x, x)))
        equal({ 1, 4, 9 }, x)
        x = e:arange(1, 6)
        e:add(x[{ { 1, 4 } }], 10, x[{ { 2, 5 } }])
        equal({ 1, 11, 12, 13, 14 }, x)
        x = e:arange(1, 6)
        e:sub(x, x[1], x) -- x[1] is broadcast and is overwritten
        equal({ 0, 1, 2, 3, 4 }, x)
        x = t{ { 1, 2 }, { 3, 4 } }
        e:where(t({ { true, false }, { false, true } }, "bool"), x:t(), x, x)
        equal({ 1, 2, 3, 4 }, x)
        e:where(t({ { false, true }, { true, false } }, "bool"), x:t(), x, x)
        equal({ 1, 3, 2, 4 }, x)
        x:t():neg(x)
        equal({ -1, -2, -3, -4 }, x)
      end)

      it("are only written, never read", function()
        local out = e:fill(e:ones{ 2 }, nan)
        equal({ 3, 5 }, e:add(t{ 1, 2 }, t{ 2, 3 }, out))
        equal({ 0, 0 }, e:zero(e:fill(out, nan)))
      end)

      it("must have the result's shape and dtype, and hold each element once", function()
        fails("argument 'out': the destination is f64, the result is f32", e.add, e, t{ 1 }, t{ 1 }, t({ 1 }, "f64"))
        fails("argument 'out': the destination is f32, the result is bool", e.lt, e, t{ 1 }, t{ 1 }, t{ 1 })
        fails("argument 'out': the destination has shape (1, 4), the result (3, 4)", function()
          local x = e:ones{ 1, 4 }
          e:add(x, e:ones{ 3, 4 }, x)
        end)
        fails("argument 'out': cannot write through a broadcast view", e.mul, e, e:ones{ 3 }, 2, e:ones{ 1 }:expand{ 3 })
      end)
    end)
  end)
end)
