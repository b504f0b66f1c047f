-- SPDX-License-Identifier: MIT
-- What the reference's arrays can do beside ops: making, comparing, promoting, random values.
-- The comparison is what every sweep rests on, so each way in which it must fail is tried.

local reference = require "spec.support.reference"

local nan, inf = 0 / 0, math.huge
local A = reference.array

local function i64(values) return A(values, "i64") end
local function f64(values) return A(values, "f64") end

local function same(expected, got)
  local ok, message = reference.allclose(got, expected, 0, 0)
  assert(ok, message)
end

local function fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_truthy(tostring(message):find(text, 1, true), tostring(message))
end

describe("the reference's arrays", function()
  it("name their maker", function()
    assert.is_truthy(reference.maker:find("^perilune reference %d+, written by hand from "))
  end)

  it("take their shape from nested tables", function()
    local x = A { { 1, 2, 3 }, { 4, 5, 6 } }
    assert.same({ 2, 3 }, x.shape)
    assert.equal("f32", x.dtype)
    assert.equal(4, x[4])
    assert.same({}, A(7).shape)
    same(A({ 1, 0 }, "bool"), A({ true, false }, "bool"))
    assert.equal(1, A({ true }, "bool")[1])
    assert.same({ 0 }, A({}).shape)
    assert.same({ 2, 0 }, A({ {}, {} }).shape)
    fails("rows of different lengths", A, { { 1, 2 }, { 3 } })
  end)

  it("show a strided view of data", function()
    local data = { 1, 2, 3, 4, 5, 6 }
    same(A { { 1, 4 }, { 2, 5 }, { 3, 6 } }, reference.strided({ 3, 2 }, { 1, 3 }, 0, data))
    same(A { 6, 4, 2 }, reference.strided({ 3 }, { -2 }, 5, data))
    same(A { { 2, 2 } }, reference.strided({ 1, 2 }, { 9, 0 }, 1, data))
    fails("outside the data", reference.strided, { 2 }, { 6 }, 0, data)
  end)

  it("broadcast shapes", function()
    assert.same({ 2, 3, 4 }, reference.broadcast_shape({ 3, 1 }, { 2, 1, 4 }))
    assert.same({ 0 }, reference.broadcast_shape({ 1 }, { 0 }))
    local shape, message = reference.broadcast_shape({ 2, 3 }, { 4 })
    assert.is_nil(shape)
    assert.equal("shapes (2,3) and (4) differ at dim 2: 3 and 4", message)
  end)

  it("round to f32 on demand only", function()
    local x = A { 0.1, 1e39, 16777217 }
    assert.equal(0.1, x[1])
    local r = reference.round(x)
    assert.equal(0.100000001490116119384765625, r[1])
    assert.equal(inf, r[2])
    assert.equal(16777216, r[3])
  end)

  it("draw the same random values for the same seed, within bounds", function()
    local a = reference.random({ 500 }, "f32", -2, 3, 7)
    assert.same(a, reference.random({ 500 }, "f32", -2, 3, 7))
    assert.not_same(a, reference.random({ 500 }, "f32", -2, 3, 8))
    local sum = 0
    for i = 1, 500 do
      assert.is_true(a[i] >= -2 and a[i] < 3)
      sum = sum + a[i]
    end
    assert.is_true(math.abs(sum / 500 - 0.5) < 0.3)
    local seen, n = {}, reference.random({ 100 }, "i32", 1, 3, 1)
    for i = 1, 100 do seen[n[i]] = true end
    assert.same({ true, true, true }, seen)
  end)
end)

describe("allclose", function()
  it("compares every element with atol + rtol |b|", function()
    assert.is_true(reference.allclose(A { 1, 100 }, A { 1.01, 101 }, 0.01, 0.001))
    local _, _, none = reference.allclose(A { 1 }, A { 1 }, 0, 0)
    assert.equal(0, none)
    local ok, message, max_abs, max_rel =
      reference.allclose(A { { 1, 2 }, { 3, 5 } }, A { { 1, 2 }, { 4, 4 } }, 0, 0.5)
    assert.is_false(ok)
    assert.equal("2 of 4 elements differ, first at [2,1]: 3 against 4; max_abs 1, max_rel 0.25",
      message)
    assert.equal(1, max_abs)
    assert.equal(0.25, max_rel)
  end)

  it("lets NaN match NaN only, and an infinity itself only", function()
    assert.is_true(reference.allclose(A { nan, inf, -inf }, A { nan, inf, -inf }, 0, 0))
    for _, pair in ipairs { { nan, 1 }, { 1, nan }, { inf, 1e300 }, { 1, inf }, { inf, -inf },
      { nan, inf }, { inf, nan } } do
      local ok, _, max_abs = reference.allclose(A { 0, pair[1] }, A { 0, pair[2] }, 1e9, 1e9)
      assert.is_false(ok)
      assert.equal(inf, max_abs)
    end
  end)

  it("tells shapes, dtypes and missing elements apart", function()
    assert.is_false(reference.allclose(A { { 1, 2 } }, A { 1, 2 }, 1, 1))
    assert.is_false(reference.allclose(A { 1 }, f64 { 1 }, 1, 1))
    assert.is_false(reference.allclose({ shape = { 2 }, dtype = "f32", 1 }, A { 1, 1 }, 1, 1))
  end)

  it("sees differences of large i64", function()
    local a, b = i64 { 2 ^ 60 }, i64 { 2 ^ 60 }
    assert.is_true(reference.allclose(a, b, 0, 0))
    assert.is_false(reference.allclose(a, reference.ops.add(b, 1), 0, 0))
  end)
end)

describe("promotion", function()
  local function result(a, b) return reference.result_type(a, b) end

  it("follows PyTorch's table", function()
    local order = { "bool", "u8", "i32", "i64", "f32", "f64" }
    for i = 1, #order do
      for j = 1, #order do
        assert.equal(order[math.max(i, j)], result(A({ 1 }, order[i]), A({ 1 }, order[j])))
      end
    end
  end)

  it("takes numbers as weak", function()
    assert.equal("u8", result(A({ 1 }, "u8"), 2))
    assert.equal("f32", result(i64 { 1 }, 2.5))
    assert.equal("f64", result(f64 { 1 }, 2.5))
    assert.equal("i64", result(A({ 1 }, "bool"), 2))
    assert.equal("f32", result(A({ 1 }, "i32"), inf))
  end)

  it("takes 0-dim arrays as weak within a kind", function()
    assert.equal("f32", result(A { 1 }, f64(1)))
    assert.equal("i32", result(A({ 1 }, "i32"), i64(1)))
    assert.equal("f64", result(A({ 1 }, "i32"), f64(1)))
  end)
end)
