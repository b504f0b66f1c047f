-- SPDX-License-Identifier: MIT
-- The hand-written reference against values known from mathematics or from PyTorch's
-- documentation. Every number here was found without the reference; the last test fails when an
-- op of the reference has no value here.

local reference = require "spec.support.reference"

local nan, inf = 0 / 0, math.huge
local A = reference.array

-- The ops, remembering which of them were called.
local called = {}
local ops = setmetatable({}, {
  __index = function(_, name)
    called[name] = true
    return reference.ops[name] or error("the reference has no op " .. name)
  end,
})

local function i64(values) return A(values, "i64") end
local function i32(values) return A(values, "i32") end
local function u8(values) return A(values, "u8") end
local function bool(values) return A(values, "bool") end
local function f64(values) return A(values, "f64") end

-- Same shape, dtype and values; for floats up to rtol (1e-14 of the largest unless given).
local function same(expected, got, rtol)
  local exact = got.dtype ~= "f32" and got.dtype ~= "f64"
  local ok, message = reference.allclose(got, expected, exact and 0 or rtol or 1e-14,
    exact and 0 or rtol or 1e-14)
  assert(ok, message)
end

local function fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_truthy(tostring(message):find(text, 1, true), tostring(message))
end

describe("arithmetic", function()
  it("adds, subtracts, multiplies and divides with broadcasting", function()
    local column, row = A { { 1 }, { 2 } }, A { 10, 20 }
    same(A { { 11, 21 }, { 12, 22 } }, ops.add(column, row))
    same(A { { -9, -19 }, { -8, -18 } }, ops.sub(column, row))
    same(A { { 10, 20 }, { 20, 40 } }, ops.mul(column, row))
    same(A { { 0.1, 0.05 }, { 0.2, 0.1 } }, ops.div(column, row))
    same(A { 9, 8 }, ops.sub(10, A { 1, 2 }))
    same(A { 0.5 }, ops.div(i32 { 1 }, i32 { 2 }))
    same(A { inf, -inf, nan }, ops.div(A { 1, -1, 0 }, 0))
    fails("differ at dim", ops.add, A { 1, 2 }, A { 1, 2, 3 })
    fails("no difference", ops.sub, bool { 1 }, bool { 0 })
  end)

  it("wraps integers as the C types do", function()
    same(i32 { -2147483648 }, ops.add(i32 { 2147483647 }, 1))
    same(u8 { 4 }, ops.add(u8 { 250 }, u8 { 10 }))
    same(i32 { 1 }, ops.mul(i32 { 2147483647 }, i32 { 2147483647 }))
    local max = ops.sub(i64 { 0x7fffffffffffffffLL }, 0)
    assert.equal(0x7fffffffffffffffLL, max[1])
    assert.equal(-0x7fffffffffffffffLL - 1, ops.add(max, 1)[1])
    assert.equal(9007199254740993LL, ops.add(i64 { 2 ^ 53 }, 1)[1])
  end)

  it("rounds a number to the array's f32 before it compares or computes", function()
    local x = reference.round(A { 0.1 })
    same(bool { 1 }, ops.eq(x, 0.1))
    same(bool { 0 }, ops.eq(f64 { x[1] }, 0.1))
  end)

  it("takes the remainder with the divisor's sign", function()
    same(A { 1, 2, -2, -1 }, ops.mod(A { 7, -7, 7, -7 }, A { 3, 3, -3, -3 }))
    same(i32 { 1, 2, -2, -1 }, ops.mod(i32 { 7, -7, 7, -7 }, i32 { 3, 3, -3, -3 }))
    same(A { 0.5, 1 }, ops.mod(A { -1, 2.5 }, 1.5))
    same(A { nan }, ops.mod(A { 1 }, 0))
    same(i64 { 0 }, ops.mod(i64 { -0x7fffffffffffffffLL - 1 }, -1))
    fails("division by zero", ops.mod, i32 { 1 }, 0)
  end)

  it("raises to powers", function()
    same(A { 8, 0.25, 3 }, ops.pow(A { 2, 2, 9 }, A { 3, -2, 0.5 }))
    same(A { 1, 1, nan, nan }, ops.pow(A { nan, 1, nan, -8 }, A { 0, nan, 2, 1 / 3 }))
    same(i32 { 1024, -27, 0, -1, 1, 1 },
      ops.pow(i32 { 2, -3, 7, -1, -1, 1 }, i32 { 10, 3, -1, -3, -2, -7 }))
    same(A { 8 }, ops.pow(2, A { 3 }))
    same(u8 { 0 }, ops.pow(u8 { 2 }, 8))
  end)

  it("passes NaN through the larger and the smaller", function()
    same(A { 2, nan, nan, inf }, ops.maximum(A { 1, nan, 1, inf }, A { 2, 1, nan, 0 }))
    same(A { 1, nan, nan, 0 }, ops.minimum(A { 1, nan, 1, inf }, A { 2, 1, nan, 0 }))
    same(i32 { 3, 0 }, ops.maximum(i32 { 3, -3 }, 0))
  end)
end)

describe("functions of one array", function()
  it("keep the dtype of signs and sizes", function()
    same(i32 { -1, 2 }, ops.neg(i32 { 1, -2 }))
    same(u8 { 255 }, ops.neg(u8 { 1 }))
    same(A { 1, 2, nan, inf }, ops.abs(A { -1, 2, nan, -inf }))
    same(i32 { -2147483648 }, ops.abs(i32 { -2147483648 }))
    same(A { -1, 0, 1, nan }, ops.sign(A { -3, 0, 0.1, nan }))
    same(A { 9, nan }, ops.square(A { -3, nan }))
    same(A { 0, 2, nan }, ops.relu(A { -1, 2, nan }))
  end)

  it("round", function()
    same(A { -2, 1, -3 }, ops.floor(A { -1.5, 1.5, -3 }))
    same(A { -1, 2, inf }, ops.ceil(A { -1.5, 1.5, inf }))
    same(A { 0, 2, 2, -2, 3, nan }, ops.round(A { 0.5, 1.5, 2.5, -1.5, 2.6, nan }))
    same(i32 { 3 }, ops.round(i32 { 3 }))
  end)

  it("have their known values", function()
    local e, third, l3 = math.exp(1), math.pi / 3, math.log(3)
    same(f64 { 1, e, 0, inf }, ops.exp(f64 { 0, 1, -inf, inf }))
    same(f64 { 0, 1, -inf, nan }, ops.log(f64 { 1, e, 0, -1 }))
    same(f64 { 2, nan }, ops.sqrt(f64 { 4, -1 }))
    same(f64 { 0.5, inf }, ops.rsqrt(f64 { 4, 0 }))
    same(f64 { 0.25, -inf }, ops.reciprocal(f64 { 4, -0.0 }))
    same(f64 { 0, math.sqrt(3) / 2 }, ops.sin(f64 { 0, third }))
    same(f64 { 1, 0.5 }, ops.cos(f64 { 0, third }))
    same(f64 { 0, 0.6, 1 }, ops.tanh(f64 { 0, math.log(2), inf }))
    same(f64 { 0.5, 0.75, 0.25, 0, 1 }, ops.sigmoid(f64 { 0, l3, -l3, -800, 800 }))
    same(f64 { 0, 0.75 * l3 }, ops.silu(f64 { 0, l3 }))
    same(A { -0.03, 2, -1 }, ops.leaky_relu(A { -3, 2, -100 }))
    same(A { -1.5 }, ops.leaky_relu(A { -3 }, 0.5))
  end)

  it("are exact near zero", function()
    same(f64 { 1.00000000005000000000167e-10 * 1e10 }, ops.mul(ops.expm1(f64 { 1e-10 }), 1e10))
    same(f64 { 0.99999999995000000000333 }, ops.mul(ops.log1p(f64 { 1e-10 }), 1e10))
    same(f64 { -1, inf }, ops.expm1(f64 { -inf, inf }))
    same(f64 { math.log(2), -inf, nan, inf }, ops.log1p(f64 { 1, -1, -2, inf }))
    same(f64 { 709.782712893384 }, ops.log1p(f64 { 1.7976931348623157e308 }))
  end)

  it("erf, gelu and softplus", function()
    same(f64 { 0, 0.84270079294971486934, -0.99532226501895273416, 0.99997790950300141456, 1 },
      ops.erf(f64 { 0, 1, -2, 3, inf }))
    same(f64 { 0, 0.84134474606854294858, -0.15865525393145705141 }, ops.gelu(f64 { 0, 1, -1 }))
    same(f64 { -10 * 7.6198530241605260660e-24 * 1e20 }, ops.mul(ops.gelu(f64 { -10 }), 1e20))
    same(f64 { 0, 0.84119199060827676, -0.15880800939172324 },
      ops.gelu(f64 { 0, 1, -1 }, "tanh"), 1e-13)
    fails("approximate", ops.gelu, f64 { 1 }, "sigmoid")
    same(f64 { math.log(2), 30, math.log(1 + math.exp(2)) / 2 },
      ops.concat { ops.softplus(f64 { 0, 30 }), ops.softplus(f64 { 1 }, 2) })
    same(f64 { 3 }, ops.softplus(f64 { 3 }, 1, 2))
  end)

  it("compute integers in f32", function()
    same(A { 1, math.exp(2) }, ops.exp(i64 { 0, 2 }))
    same(A { 0.5 }, ops.sigmoid(bool { 0 }))
  end)

  it("clamp", function()
    same(A { -1, 0.5, 2, nan, 2 }, ops.clamp(A { -3, 0.5, 9, nan, inf }, -1, 2))
    same(A { 0, 5 }, ops.clamp(A { -1, 5 }, 0))
    same(i32 { -1, 3 }, ops.clamp(i32 { -1, 5 }, nil, 3))
    same(A { 1, 1 }, ops.clamp(A { 0, 5 }, 3, 1))
    same(u8 { 0, 1 }, ops.clamp(u8 { 0, 5 }, -1, 1))
  end)
end)

describe("comparisons and choice", function()
  it("compare to bool, NaN with nothing", function()
    local a, b = A { 1, 2, 3, nan }, A { 2, 2, 2, nan }
    same(bool { 0, 1, 0, 0 }, ops.eq(a, b))
    same(bool { 1, 0, 1, 1 }, ops.ne(a, b))
    same(bool { 1, 0, 0, 0 }, ops.lt(a, b))
    same(bool { 1, 1, 0, 0 }, ops.le(a, b))
    same(bool { 0, 0, 1, 0 }, ops.gt(a, b))
    same(bool { 0, 1, 1, 0 }, ops.ge(a, b))
    same(bool { 0 }, ops.eq(ops.add(i64 { 2 ^ 60 }, 1), i64 { 2 ^ 60 }))
  end)

  it("take anything but zero as true, NaN too", function()
    same(bool { 1, 0, 0, 1 }, ops.logical_and(A { 2, 2, 0, nan }, i32 { 1, 0, 0, 1 }))
    same(bool { 1, 1, 0, 1 }, ops.logical_or(A { 2, 2, 0, nan }, i32 { 1, 0, 0, 0 }))
    same(bool { 0, 1, 0 }, ops.logical_not(A { 2, 0, nan }))
    same(bool { 0, 1, 0 }, ops.isnan(A { 1, nan, inf }))
    same(bool { 1, 0, 0, 0 }, ops.isfinite(A { 1, nan, inf, -inf }))
    same(bool { 0 }, ops.isnan(i32 { 1 }))
  end)

  it("choose without touching the other branch", function()
    same(A { 1, 9 }, ops.where(bool { 1, 0 }, A { 1, nan }, 9))
    same(A { { 1, 2 }, { 5, 5 } }, ops.where(bool { { 1 }, { 0 } }, A { 1, 2 }, A(5)))
    same(A { 0, 1 }, ops.where(bool { 0, 1 }, 1, 0))
    same(A { -inf, 2 }, ops.masked_fill(A { nan, 2 }, bool { 1, 0 }, -inf))
    same(i32 { { 7, 1 }, { 7, 2 } }, ops.masked_fill(i32 { { 1, 1 }, { 2, 2 } }, bool { 1, 0 }, 7))
  end)

  it("cast", function()
    same(i32 { 1, -1, 0, -2147483648, 2147483647 },
      ops.cast(f64 { 1.9, -1.9, 0.5, nan, 1e20 }, "i32"))
    same(u8 { 0, 255, 0, 200 }, ops.cast(A { -5, 300, nan, 200.9 }, "u8"))
    assert.equal(-0x7fffffffffffffffLL - 1, ops.cast(A { nan }, "i64")[1])
    assert.equal(0x7fffffffffffffffLL, ops.cast(A { inf }, "i64")[1])
    same(u8 { 44, 255 }, ops.cast(i32 { 300, -1 }, "u8"))
    same(bool { 1, 1, 0, 1 }, ops.cast(A { 0.5, nan, 0, -2 }, "bool"))
    same(A { 16777216 }, ops.cast(i32 { 16777217 }, "f32"))
  end)
end)

describe("matrix products", function()
  local a, b = A { { 1, 2 }, { 3, 4 } }, A { { 5, 6 }, { 7, 8 } }

  it("follow PyTorch's shape rules", function()
    same(A { { 19, 22 }, { 43, 50 } }, ops.matmul(a, b))
    same(A(11), ops.matmul(A { 1, 2 }, A { 3, 4 }))
    same(A { 7, 10 }, ops.matmul(A { 1, 2 }, a))
    same(A { 5, 11 }, ops.matmul(a, A { 1, 2 }))
    local batch = ops.matmul(A { { { 1, 0 }, { 0, 1 } }, { { 2, 0 }, { 0, 2 } } }, b)
    same(A { { { 5, 6 }, { 7, 8 } }, { { 10, 12 }, { 14, 16 } } }, batch)
    assert.same({ 5, 4, 2, 2 }, ops.matmul(reference.random({ 5, 1, 2, 3 }, "f32", 0, 1),
      reference.random({ 4, 3, 2 }, "f32", 0, 1)).shape)
    same(A { { 0, 0 }, { 0, 0 } }, ops.matmul(A { {}, {} }, reference.new({ 0, 2 }, "f32", {})))
    same(i32 { { -2147483648 } }, ops.matmul(i32 { { 2147483647, 1 } }, i32 { { 1 }, { 1 } }))
    fails("inner sizes 2 and 3", ops.matmul, a, A { 1, 2, 3 })
  end)

  it("add and scale", function()
    same(A { { 20, 24 }, { 44, 52 } }, ops.addmm(A { 1, 2 }, a, b))
    same(A { { 39, 46 }, { 87, 102 } }, ops.addmm(A { 2, 4 }, a, b, 0.5, 2))
    same(A { { 19, 22 }, { 43, 50 } }, ops.addmm(A { nan, nan }, a, b, 0))
    same(A { { 17, 23 }, { 39, 53 } }, ops.linear(a, b))
    same(A { 18, 25 }, ops.linear(A { 1, 2 }, b, A { 1, 2 }))
  end)
end)

describe("reductions", function()
  local x = A { { 1, 2, 3 }, { 4, 5, 6 } }

  it("take no dim, one, a list, and keep dims", function()
    same(A(21), ops.sum(x))
    same(A { { 21 } }, ops.sum(x, nil, true))
    same(A { 5, 7, 9 }, ops.sum(x, 1))
    same(A { { 6 }, { 15 } }, ops.sum(x, -1, true))
    same(A(21), ops.sum(x, { 1, 2 }))
    same(A { 6, 120 }, ops.prod(x, 2))
    same(A { 2, 5 }, ops.mean(x, 2))
    fails("dim 3 is outside 1..2", ops.sum, x, 3)
    fails("given twice", ops.sum, x, { 1, -2 })
  end)

  it("have their values for nothing", function()
    local none, row = A {}, reference.new({ 2, 0 }, "f32", {})
    same(A(0), ops.sum(none))
    same(A(1), ops.prod(none))
    same(A { nan, nan }, ops.mean(row, 2))
    same(A { 0, 0 }, ops.sum(row, 2))
    same(A {}, ops.sum(row, 1))
    same(A(-inf), ops.logsumexp(none))
    same(bool(0), ops.any(none))
    same(bool(1), ops.all(none))
    same(A(nan), ops.var(none))
    for _, name in ipairs { "max", "min", "argmax", "argmin" } do
      fails("empty dim", ops[name], none)
      fails("empty dim", ops[name], row, 2)
    end
  end)

  it("widen integers to i64 and refuse their mean", function()
    same(i64(510), ops.sum(u8 { 255, 255 }))
    same(i64(2), ops.sum(bool { 1, 0, 1 }))
    same(i64(65025), ops.prod(u8 { 255, 255 }))
    same(i64 { 255, 510 }, ops.cumsum(u8 { 255, 255 }, 1))
    assert.equal(-0x7fffffffffffffffLL - 1, ops.sum(i64 { 0x7fffffffffffffffLL, 1 })[1])
    fails("floating point", ops.mean, i32 { 1, 2 })
  end)

  it("find extremes, first on ties, the NaN's index before all", function()
    local y = A { { 3, 7, 7 }, { nan, 9, nan } }
    local values, indices = ops.max(y, 2)
    same(A { 7, nan }, values)
    same(i64 { 2, 1 }, indices)
    values, indices = ops.min(A { { 2, 1, 1 } }, -1, true)
    same(A { { 1 } }, values)
    same(i64 { { 2 } }, indices)
    same(A(nan), ops.max(y))
    same(i64(4), ops.argmax(y))
    same(i64 { 2, 2, 1 }, ops.argmax(A { { 1, 2, 3 }, { 4, 5, 3 } }, 1))
    same(i64(3), ops.argmin(A { -1, -inf, nan, -inf }))
    same(i64(2), ops.argmin(A { -1, -inf, 0, -inf }))
    same(i64 { { 1 }, { 2 } }, ops.argmin(i32 { { 1, 2 }, { 2, 1 } }, 2, true))
  end)

  it("compute variances and norms", function()
    same(A(3.5), ops.var(x))
    same(A(17.5 / 6), ops.var(x, nil, 0))
    same(A { { 1 }, { 1 } }, ops.var(x, 2, 1, true))
    same(A(nan), ops.var(A { 5 }))
    same(A(5), ops.norm(A { 3, -4 }))
    same(A(7), ops.norm(A { 3, -4 }, 1))
    same(A(4), ops.norm(A { 3, -4 }, inf))
    same(A(3), ops.norm(A { 3, -4 }, -inf))
    same(A(2), ops.norm(A { 3, -4, 0 }, 0))
    same(A { 9 }, ops.norm(A { { 1, 6, 8 } }, 3, 2))
    same(A(nan), ops.norm(A { nan, 1 }, inf))
  end)

  it("sum exponentials without overflow", function()
    same(f64(1000 + math.log(2)), ops.logsumexp(f64 { 1000, 1000 }))
    same(f64 { -inf, inf }, ops.logsumexp(f64 { { -inf, -inf }, { inf, 1 } }, 2))
    same(A(math.log(2)), ops.logsumexp(i32 { 0, 0 }))
  end)

  it("ask any and all", function()
    same(bool { 1, 0, 1 }, ops.any(A { { 0, nan }, { 0, 0 }, { 1, 0 } }, 2))
    same(bool { { 1 }, { 0 } }, ops.all(A { { 2, nan }, { 1, 0 } }, 2, true))
  end)

  it("run along a dim", function()
    same(A { { 1, 3, 6 }, { 4, 9, 15 } }, ops.cumsum(x, 2))
    same(A { { 1, 2, 3 }, { 5, 7, 9 } }, ops.cumsum(x, 1))
    same(A { 1, nan, nan }, ops.cumsum(A { 1, nan, 2 }, 1))
  end)

  it("softmax", function()
    same(f64 { 0.25, 0.75 }, ops.softmax(f64 { 0, math.log(3) }))
    same(f64 { { 0.5, 0.5 }, { 0.5, 0.5 } }, ops.softmax(f64 { { 900, -900 }, { 900, -900 } }, 1))
    same(f64 { { nan, nan }, { 0, 1 }, { nan, nan } },
      ops.softmax(f64 { { -inf, -inf }, { -inf, 3 }, { nan, 0 } }))
    same(f64 { -1000, 0 }, ops.log_softmax(f64 { -1000, 0 }))
    same(f64(1), ops.softmax(f64(4)))
  end)
end)

describe("network ops", function()
  it("cross_entropy of classes", function()
    local l2, l4 = math.log(2), math.log(4)
    -- Probabilities 1/4, 1/4, 1/2 in both rows.
    local x, target = f64 { { 0, 0, l2 }, { 1, 1, 1 + l2 } }, i64 { 3, 1 }
    same(f64((l2 + l4) / 2), ops.cross_entropy(x, target))
    same(f64(l2 + l4), ops.cross_entropy(x, target, { reduction = "sum" }))
    same(f64 { l2, l4 }, ops.cross_entropy(x, target, { reduction = "none" }))
    same(f64(l2), ops.cross_entropy(x, target, { ignore_index = 1 }))
    same(f64((3 * l2 + l4) / 4), ops.cross_entropy(x, target, { weight = f64 { 1, 9, 3 } }))
    same(f64(0.9 * l2 + 0.1 / 3 * (l4 + l4 + l2)),
      ops.cross_entropy(x, i64 { 3, 3 }, { label_smoothing = 0.1 }))
    same(f64(l2), ops.cross_entropy(f64 { 0, 0, l2 }, i64(3)))
    same(f64 { { l4, l2 } }, ops.cross_entropy(f64 { { { 0, 0 }, { 0, 0 }, { l2, l2 } } },
      i64 { { 2, 3 } }, { reduction = "none" }))
    same(f64(nan), ops.cross_entropy(x, i64 { 1, 1 }, { ignore_index = 1 }))
    fails("target 4 is outside 1..3", ops.cross_entropy, x, i64 { 4, 1 })
  end)

  it("cross_entropy of probabilities", function()
    local l2, l4 = math.log(2), math.log(4)
    local x = f64 { { 0, 0, l2 }, { 0, 0, l2 } }
    same(f64((0.5 * l4 + 0.5 * l2 + l2) / 2),
      ops.cross_entropy(x, f64 { { 0.5, 0, 0.5 }, { 0, 0, 1 } }))
    same(f64 { 0.25 * l4 + 0.25 * l4 + 0.5 * l2, 2 * (0.25 * l4 + 0.25 * l4 + 0.5 * l2) },
      ops.cross_entropy(f64 { { 0, 0, l2 }, { 0, 0, l2 } },
        f64 { { 0.25, 0.25, 0.5 }, { 0.5, 0.5, 1 } }, { reduction = "none" }))
  end)

  it("normalizes layers, root mean squares and groups", function()
    local root = 1 / math.sqrt(1 + 1e-5)
    same(f64 { { -root, root }, { root, -root } }, ops.layer_norm(f64 { { 1, 3 }, { 8, 6 } }, 2))
    same(f64 { { 1 - 2 * root, 1 + 2 * root } },
      ops.layer_norm(f64 { { 1, 3 } }, { 2 }, f64 { 2, 2 }, f64 { 1, 1 }))
    same(f64 { 0, 0 }, ops.layer_norm(f64 { 5, 5 }, { 2 }))
    same(f64 { 0.6, 2.4 }, ops.rms_norm(f64 { 3, 4 }, { 2 }, f64 { 1, 3 }, 12.5))
    local x = f64 { { { 1, 3 }, { 3, 1 }, { 6, 6 }, { 6, 6 } } }
    same(f64 { { { -root, root }, { root, -root }, { 0, 0 }, { 1, 1 } } },
      ops.group_norm(x, 2, nil, f64 { 0, 0, 0, 1 }))
    same(f64 { { -2, 2 } }, ops.group_norm(f64 { { 0, 4 } }, 1, f64 { 2, 2 }, nil, 0))
    fails("3 channels in 2 groups", ops.group_norm, f64 { { 1, 2, 3 } }, 2)
  end)

  it("transforms by Hadamard's matrix", function()
    local h = math.sqrt(0.5)
    same(f64 { { h, h }, { h, -h } }, ops.hadamard_transform(f64 { { 1, 0 }, { 0, 1 } }))
    same(f64 { 5, -1, -2, 0 }, ops.hadamard_transform(f64 { 1, 2, 3, 4 }))
    same(f64 { 7 }, ops.hadamard_transform(f64 { 7 }))
    local x = reference.random({ 3, 16 }, "f64", -1, 1)
    same(x, ops.hadamard_transform(ops.hadamard_transform(x)))
    fails("power of two", ops.hadamard_transform, f64 { 1, 2, 3 })
  end)

  it("steps the optimizers", function()
    same(f64 { 0.9, 2.2 }, ops.sgd(f64 { 1, 2 }, f64 { 1, -2 }, { lr = 0.1 }))
    same(f64 { 0.9 }, ops.sgd(f64 { 1 }, f64 { 1 }, { lr = f64(0.1) }))
    -- The first step moves by lr in the gradient's direction, whatever its size.
    local p, m, v = ops.adamw(f64 { 1, 1 }, f64 { 4, -0.5 }, f64 { 0, 0 }, f64 { 0, 0 }, 1,
      { lr = 0.1, eps = 0 })
    same(f64 { 0.899, 1.099 }, p)
    same(f64 { 0.4, -0.05 }, m)
    same(f64 { 0.016, 0.00025 }, v)
    p = ops.adamw(f64 { 2 }, f64 { 0 }, f64 { 0.19 }, f64 { 0.001999 }, f64(2),
      { lr = 0.1, weight_decay = 0, eps = 1 })
    -- Means after the step: 0.171 / 0.19 and 0.001997001 / 0.001999.
    same(f64 { 2 - 0.1 * 0.9 / (math.sqrt(0.999) + 1) }, p)
  end)
end)

describe("shape ops", function()
  local x = A { { 1, 2, 3 }, { 4, 5, 6 } }

  it("reshape", function()
    same(A { { 1, 2 }, { 3, 4 }, { 5, 6 } }, ops.reshape(x, { 3, -1 }))
    same(A { 1, 2, 3, 4, 5, 6 }, ops.view(x, { 6 }))
    same(x, ops.contiguous(x))
    assert.same({ 3 }, ops.squeeze(reference.random({ 1, 3, 1 }, "f32", 0, 1)).shape)
    assert.same({ 1, 3 }, ops.squeeze(reference.random({ 1, 3, 1 }, "f32", 0, 1), 3).shape)
    assert.same({ 2, 1, 3 }, ops.unsqueeze(x, 2).shape)
    assert.same({ 2, 3, 1 }, ops.unsqueeze(x, -1).shape)
    same(A { { 1, 1 }, { 2, 2 } }, ops.expand(A { { 1 }, { 2 } }, { -1, 2 }))
    fails("does not hold 6", ops.reshape, x, { 4 })
    fails("does not expand", ops.expand, x, { 2, 4 })
  end)

  it("reorder and cut dims", function()
    same(A { { 1, 4 }, { 2, 5 }, { 3, 6 } }, ops.transpose(x, 1, -1))
    same(A { { 1, 4 }, { 2, 5 }, { 3, 6 } }, ops.permute(x, { 2, 1 }))
    same(A { { 2, 3 }, { 5, 6 } }, ops.narrow(x, 2, 2, 2))
    same(reference.new({ 2, 0 }, "f32", {}), ops.narrow(x, 2, 4, 0))
    same(A { 4, 5, 6 }, ops.select(x, 1, 2))
    same(A { 3, 6 }, ops.select(x, -1, -1))
    same(A { { 6, 5, 4 }, { 3, 2, 1 } }, ops.flip(x, { 1, 2 }))
    same(A { {}, {} }, ops.flip(A { {}, {} }, { 2 }))
    fails("outside 1..3", ops.narrow, x, 2, 2, 3)
    fails("outside 1..2", ops.select, x, 1, 0)
  end)

  it("join and part", function()
    same(A { { 1, 2, 3, 7 }, { 4, 5, 6, 8 } }, ops.concat({ x, A { { 7 }, { 8 } } }, 2))
    same(A { 1, 2, 3 }, ops.concat { i32 { 1 }, A { 2, 3 } })
    same(A { { 1, 3 }, { 2, 4 } }, ops.stack({ A { 1, 2 }, A { 3, 4 } }, 2))
    local first, second, third = ops.split(A { 1, 2, 3, 4, 5 }, 2)
    same(A { 1, 2 }, first)
    same(A { 3, 4 }, second)
    same(A { 5 }, third)
    first, second = ops.split(x, { 1, 2 }, 2)
    same(A { { 1 }, { 4 } }, first)
    same(A { { 2, 3 }, { 5, 6 } }, second)
    assert.equal(2, select("#", ops.chunk(A { 1, 2, 3, 4 }, 3)))
    fails("add up to 2", ops.split, x, { 1, 1 }, 2)
  end)

  it("repeat", function()
    same(A { { 1, 2, 1, 2 } }, ops["repeat"](A { 1, 2 }, { 1, 2 }))
    same(A { { 1, 2, 1, 2 }, { 3, 4, 3, 4 } }, ops.tile(A { { 1, 2 }, { 3, 4 } }, { 2 }))
    same(A { 1, 1, 2, 2 }, ops.repeat_interleave(A { 1, 2 }, 2))
    same(A { { 1, 2 }, { 1, 2 }, { 3, 4 }, { 3, 4 } },
      ops.repeat_interleave(A { { 1, 2 }, { 3, 4 } }, 2, 1))
  end)

  it("keep triangles", function()
    same(A { { 1, 0, 0 }, { 4, 5, 0 } }, ops.tril(x))
    same(A { { 1, 2, 0 }, { 4, 5, 6 } }, ops.tril(x, 1))
    same(A { { 1, 2, 3 }, { 0, 5, 6 } }, ops.triu(x))
    same(A { { 1, 2, 3 }, { 4, 5, 6 } }, ops.triu(x, -1))
    same(A { { 0, 2 }, { 0, 0 } }, ops.triu(A { { nan, 2 }, { 3, 4 } }, 1))
  end)

  it("create", function()
    same(A { 0, 1, 2 }, ops.arange(3))
    same(f64 { 1, 1.25, 1.5, 1.75 }, ops.arange(1, 2, 0.25, { dtype = "f64" }))
    same(i64 { 5, 3, 1 }, ops.arange(5, 0, -2, { dtype = "i64" }))
    same(A {}, ops.arange(2, 2))
    same(A { 0, 0.25, 0.5, 0.75, 1 }, ops.linspace(0, 1, 5))
    same(A { 3 }, ops.linspace(3, 9, 1))
    same(i32 { { 1, 0, 0 }, { 0, 1, 0 } }, ops.eye(2, 3, { dtype = "i32" }))
    same(A { { 7, 7 } }, ops.full({ 1, 2 }, 7))
    fails("never reaches", ops.arange, 0, 3, -1)
  end)
end)

describe("index ops", function()
  local x = A { { 1, 2, 3 }, { 4, 5, 6 } }

  it("read and write where 1-based indices say", function()
    same(A { { 3, 1 }, { 5, 5 } }, ops.gather(x, 2, i64 { { 3, 1 }, { 2, 2 } }))
    same(A { { 4, 2 } }, ops.gather(x, 1, i64 { { 2, 1 } }))
    same(A { { 3, 1 }, { 6, 4 } }, ops.index_select(x, 2, i64 { 3, 1 }))
    same(A { { 4, 5, 6 }, { 4, 5, 6 }, { 1, 2, 3 } }, ops.index_select(x, 1, i32 { 2, 2, 1 }))
    same(A { { 1, 32, 3 }, { 4, 5, 46 } },
      ops.scatter_add(x, 2, i64 { { 2, 2 }, { 3, 3 } }, A { { 10, 20, 99 }, { 30, 10, 99 } }))
    same(A { { 4, 5, 6 }, { 1, 2, 3 } }, ops.embedding(i64 { 2, 1 }, x))
    same(i64 { { 0, 1, 0 }, { 1, 0, 0 } }, ops.one_hot(i64 { 2, 1 }, 3))
    assert.same({ 2, 2 }, ops.one_hot(i64 { 2, 1 }).shape)
  end)

  it("refuse indices outside their range", function()
    fails("index 0: indices start at 1", ops.gather, x, 2, i64 { { 0 } })
    fails("index 4 is outside 1..3", ops.index_select, x, 2, i64 { 4 })
    fails("index -1 is outside 1..2", ops.embedding, i64 { -1 }, x)
    fails("index 3 is outside 1..2", ops.one_hot, i64 { 3 }, 2)
    fails("longer than 2 at dim 1", ops.gather, x, 2, i64 { { 1 }, { 1 }, { 1 } })
    fails("i32 or i64", ops.gather, x, 1, A { { 1 } })
  end)
end)

describe("attention", function()
  local e = math.exp(1)
  local q, k, v = f64 { { 1, 0 } }, f64 { { 1, 0 }, { 0, 1 } }, f64 { { 1 }, { 3 } }

  it("weighs the values by the softmax of the scores", function()
    same(f64 { { (e + 3) / (e + 1) } }, ops.sdpa(q, k, v, nil, false, 1))
    local root = math.exp(1 / math.sqrt(2))
    same(f64 { { (root + 3) / (root + 1) } }, ops.sdpa(q, k, v))
    same(f64 { { 1 } }, ops.sdpa(q, k, v, nil, true))
    same(f64 { { 3 } }, ops.sdpa(q, k, v, bool { { 0, 1 } }))
    same(f64 { { 2 } }, ops.sdpa(q, k, v, f64 { { -1, 0 } }, false, 1))
    same(f64 { { 0 } }, ops.sdpa(q, k, v, bool { { 0, 0 } }))
    local out, log = ops.sdpa_forward(q, k, v, nil, false, 1)
    same(f64 { { (e + 3) / (e + 1) } }, out)
    same(f64 { math.log(e + 1) }, log)
  end)

  it("has the gradient that follows from the quotient rule", function()
    -- With weights w and 1 - w the result is 3 - 2 w, and dw/ds1 = -dw/ds2 = w (1 - w).
    local out, log = reference.ops.sdpa_forward(q, k, v, nil, false, 1)
    local dq, dk, dv = ops.sdpa_backward(f64 { { 1 } }, out, log, q, k, v, nil, false, 1)
    local w = e / (e + 1)
    local slope = -2 * w * (1 - w)
    same(f64 { { slope, -slope } }, dq)
    same(f64 { { slope, 0 }, { -slope, 0 } }, dk)
    same(f64 { { w }, { 1 - w } }, dv)
  end)
end)

describe("random numbers", function()
  local function words(...)
    return ("%08x %08x %08x %08x"):format(reference.philox(...))
  end

  it("are Philox4x32-10, by the known answers of its authors", function()
    assert.equal("6627e8d5 e169c58d bc57ac4c 9b00dbd8", words(0, 0, 0, 0, 0, 0))
    local m = 0xffffffff
    assert.equal("408f276d 41c83b0e a20bc7c6 6d5451fd", words(m, m, m, m, m, m))
    assert.equal("d16cfe09 94fdcceb 5001e420 24126ea1",
      words(0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344))
  end)

  it("are uniform in [0, 1)", function()
    assert.equal(0, reference.uniform(255))
    assert.equal(0.5, reference.uniform(0x80000000))
    assert.equal(1 - 2 ^ -24, reference.uniform(0xffffffff))
  end)

  it("drop elements and scale the others", function()
    local ones, draw = reference.ops.full({ 2000 }, 1), { seed = 3, draw = 5 }
    local out, dropped = ops.dropout(ones, 0.25, draw), 0
    for i = 1, 2000 do
      assert.is_true(out[i] == 0 or out[i] == 4 / 3)
      if out[i] == 0 then dropped = dropped + 1 end
    end
    assert.is_true(math.abs(dropped - 500) < 80)
    -- Seed 0, draw 0: the words of the first known answer, 0.399.. 0.880.. 0.735.. 0.605..
    same(A { 0, 4, 4, 4 }, ops.dropout(A { 2, 2, 2, 2 }, 0.5, { seed = 0, draw = 0 }))
    same(ones, ops.dropout(ones, 0, draw))
    -- Element 6 (from 0) of a seed and a draw of two words each: word 2 of group 1.
    local _, _, word = reference.philox(9, 2, 1, 0, 7, 1)
    local threshold = reference.uniform(word)
    local wide = { seed = 2 * 2 ^ 32 + 9, draw = 2 ^ 32 + 7 }
    assert.is_true(ops.dropout(ones, threshold, wide)[7] > 1)
    assert.equal(0, ops.dropout(ones, threshold + 2 ^ -24, wide)[7])
    assert.not_same(out, ops.dropout(ones, 0.25, { seed = 3, draw = 6 }))
  end)
end)

describe("this spec", function()
  it("knows a value for every op of the reference", function()
    local missing = {}
    for name in pairs(reference.ops) do
      if not called[name] then missing[#missing + 1] = name end
    end
    table.sort(missing)
    assert.equal("", table.concat(missing, " "))
  end)
end)
