-- SPDX-License-Identifier: MIT
-- Reference of the elementwise ops: arithmetic, functions, comparisons, logic, where, cast.
-- Each function below sees one element: a double, or an int64 where the op keeps integers.
-- NaN passes through everything but comparisons, logic, isnan, isfinite, pow(x, 0), pow(1, x).

local array = require "spec.support.reference.array"

local abs, exp, floor, log, sqrt = math.abs, math.exp, math.floor, math.log, math.sqrt
local huge, pi = math.huge, math.pi

local ops = {}

-- Functions of one number -------------------------------------------------------------------

-- Kahan: the error of u = exp(x) divides out of (u - 1) / log(u).
local function expm1(x)
  if abs(x) > 0.5 or x ~= x then return exp(x) - 1 end
  local u = exp(x)
  if u == 1 then return x end
  return (u - 1) * x / log(u)
end

local function log1p(x)
  local u = 1 + x
  if u == 1 then return x end
  if u == huge then return huge end
  return log(u) * (x / (u - 1))
end

-- erfc(x) for x >= 2 by its continued fraction 1/(x + 1/2/(x + 2/2/(x + 3/2/(x + ...)))).
local function erfc_tail(x)
  local tail = x
  for k = 120, 1, -1 do tail = x + k / 2 / tail end
  return exp(-x * x) / (sqrt(pi) * tail)
end

-- For |x| < 2 the series 2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (2n+1)!!, all of one sign.
local function erf(x)
  if x ~= x then return x end
  if x >= 2 then return 1 - erfc_tail(x) end
  if x <= -2 then return erfc_tail(-x) - 1 end
  local term, sum, n = x, x, 0
  while abs(term) > 1e-18 * abs(sum) do
    n = n + 1
    term = term * 2 * x * x / (2 * n + 1)
    sum = sum + term
  end
  return 2 / sqrt(pi) * exp(-x * x) * sum
end

-- The normal distribution's probability below x, without cancellation in the lower tail.
local function normal_below(x)
  local z = x / sqrt(2)
  if z <= -2 then return erfc_tail(-z) / 2 end
  return (1 + erf(z)) / 2
end

local function sigmoid(x)
  if x >= 0 then return 1 / (1 + exp(-x)) end
  local e = exp(x)
  return e / (1 + e)
end

local function round_half_even(x)
  local low = floor(x)
  local rest = x - low
  if rest < 0.5 or x == low then return low end
  if rest > 0.5 or low % 2 ~= 0 then return low + 1 end
  return low
end

local function sign(x)
  if x ~= x then return x end
  return x > 0 and 1 or x < 0 and -1 or 0
end

local function unary(op, x, dtype, fn)
  if not array.is(x) then array.fail(op, "expected an array") end
  local out, load, store = array.new(x.shape, dtype), array.load(dtype), array.store(dtype)
  for i = 1, array.numel(x.shape) do out[i] = store(fn(load(x[i]))) end
  return out
end

-- Results are floating point; integers compute in f32.
local function float_op(name, fn)
  ops[name] = function(x, ...)
    local first, second = ...
    return unary(name, x, array.float_type(x.dtype), function(v) return fn(v, first, second) end)
  end
end

float_op("exp", exp)
float_op("expm1", expm1)
float_op("log", function(x) return log(x) end) -- math.log would take nil as a base
float_op("log1p", log1p)
float_op("sqrt", sqrt)
float_op("rsqrt", function(x) return 1 / sqrt(x) end)
float_op("reciprocal", function(x) return 1 / x end)
float_op("sin", math.sin)
float_op("cos", math.cos)
float_op("tanh", math.tanh)
float_op("sigmoid", sigmoid)
float_op("erf", erf)
float_op("silu", function(x) return x * sigmoid(x) end)

float_op("leaky_relu", function(x, slope)
  return x > 0 and x or x * (slope or 0.01)
end)

float_op("softplus", function(x, beta, threshold)
  beta, threshold = beta or 1, threshold or 20
  if x * beta > threshold then return x end
  return log1p(exp(x * beta)) / beta
end)

float_op("gelu", function(x, approximate)
  if approximate == "tanh" then
    return x / 2 * (1 + math.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))
  end
  if approximate ~= nil and approximate ~= "none" then
    array.fail("gelu", 'approximate is "none" or "tanh"')
  end
  return x * normal_below(x)
end)

-- Results keep the dtype. Integers never reach the rounding functions: they are whole already.
local function same_type_op(name, fn, integer_fn)
  ops[name] = function(x)
    local float = array.kind(x.dtype) == "float"
    return unary(name, x, x.dtype, float and fn or integer_fn or fn)
  end
end

local function itself(x) return x end

same_type_op("abs", function(x) return x ~= x and x or abs(x) end,
  function(x) return x < 0 and -x or x end)
same_type_op("sign", sign)
same_type_op("square", function(x) return x * x end)
same_type_op("relu", function(x) return (x > 0 or x ~= x) and x or 0 end)
same_type_op("floor", floor, itself)
same_type_op("ceil", math.ceil, itself)
same_type_op("round", round_half_even, itself)

function ops.neg(x)
  if x.dtype == "bool" then array.fail("neg", "bool has no negative") end
  return unary("neg", x, x.dtype, function(v) return -v end)
end

-- Functions of two operands -----------------------------------------------------------------

local function shape_of(v)
  return type(v) == "number" and {} or v.shape
end

local function broadcast(op, ...)
  local shape, arrays = {}, 0
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    if array.is(v) then arrays = arrays + 1
    elseif type(v) ~= "number" then array.fail(op, "operand %d is a %s", i, type(v)) end
    local wider, message = array.broadcast_shape(shape, shape_of(v))
    if not wider then array.fail(op, "%s", message) end
    shape = wider
  end
  if arrays == 0 then array.fail(op, "at least one operand is an array") end
  return shape
end

local function binary(op, a, b, common, result, fn)
  local shape = broadcast(op, a, b)
  a, b = array.operand(op, a, common, shape), array.operand(op, b, common, shape)
  local out, load, store = array.new(shape, result), array.load(common), array.store(result)
  for i = 1, array.numel(shape) do out[i] = store(fn(load(a[i]), load(b[i]))) end
  return out
end

local function arithmetic_op(name, fn, integer_fn)
  ops[name] = function(a, b)
    broadcast(name, a, b)
    local dtype = array.result_type(a, b)
    local float = array.kind(dtype) == "float"
    return binary(name, a, b, dtype, dtype, float and fn or integer_fn or fn)
  end
end

arithmetic_op("add", function(x, y) return x + y end)
arithmetic_op("mul", function(x, y) return x * y end)

function ops.sub(a, b)
  broadcast("sub", a, b)
  local dtype = array.result_type(a, b)
  if dtype == "bool" then array.fail("sub", "bool has no difference") end
  return binary("sub", a, b, dtype, dtype, function(x, y) return x - y end)
end

function ops.div(a, b)
  broadcast("div", a, b)
  local dtype = array.float_type(array.result_type(a, b))
  return binary("div", a, b, dtype, dtype, function(x, y) return x / y end)
end

-- The remainder has the divisor's sign. fmod is exact, x - floor(x / y) * y is not.
arithmetic_op("mod", function(x, y)
  local rest = math.fmod(x, y)
  if rest ~= 0 and (rest < 0) ~= (y < 0) then rest = rest + y end
  return rest
end, function(x, y)
  if y == 0 then array.fail("mod", "integer division by zero") end
  if y == -1 then return 0LL end
  local rest = x % y
  if rest ~= 0 and (rest < 0) ~= (y < 0) then rest = rest + y end
  return rest
end)

-- Integers wrap; a negative exponent leaves the whole part of 1 / x^n.
arithmetic_op("pow", function(x, y)
  if y == 0 or x == 1 then return 1 end
  return x ^ y
end, function(x, y)
  if y < 0 then
    if x == 1 then return x end
    if x == -1 then return y % 2 == 0 and 1LL or -1LL end
    return 0LL
  end
  local power = 1LL
  while y > 0 do
    if y % 2 == 1 then power = power * x end
    x = x * x
    y = y / 2
  end
  return power
end)

local function larger(x, y)
  if x ~= x then return x end
  if y ~= y then return y end
  return x > y and x or y
end

local function smaller(x, y)
  if x ~= x then return x end
  if y ~= y then return y end
  return x < y and x or y
end

arithmetic_op("maximum", larger)
arithmetic_op("minimum", smaller)

-- min(max(x, lo), hi): where lo > hi the result is hi.
function ops.clamp(x, lo, hi)
  local dtype = array.result_type(x, lo, hi)
  local out = array.cast(x, dtype)
  -- a bound beyond what an integer dtype holds is the dtype's end
  local function bound(v) return array.full({}, dtype, array.convert(v, "f64", dtype)) end
  if lo then out = binary("clamp", out, bound(lo), dtype, dtype, larger) end
  if hi then out = binary("clamp", out, bound(hi), dtype, dtype, smaller) end
  return out
end

-- Comparisons, logic, choice ----------------------------------------------------------------

local function comparison_op(name, fn)
  ops[name] = function(a, b)
    broadcast(name, a, b)
    return binary(name, a, b, array.result_type(a, b), "bool", function(x, y)
      return fn(x, y) and 1 or 0
    end)
  end
end

comparison_op("eq", function(x, y) return x == y end)
comparison_op("ne", function(x, y) return x ~= y end)
comparison_op("lt", function(x, y) return x < y end)
comparison_op("le", function(x, y) return x <= y end)
comparison_op("gt", function(x, y) return x > y end)
comparison_op("ge", function(x, y) return x >= y end)

local function logical_op(name, fn)
  ops[name] = function(a, b)
    return binary(name, a, b, "bool", "bool", function(x, y)
      return fn(x ~= 0, y ~= 0) and 1 or 0
    end)
  end
end

logical_op("logical_and", function(x, y) return x and y end)
logical_op("logical_or", function(x, y) return x or y end)

local function test_op(name, fn)
  ops[name] = function(x)
    local out = array.new(x.shape, "bool")
    for i = 1, array.numel(x.shape) do out[i] = fn(x[i]) and 1 or 0 end
    return out
  end
end

test_op("logical_not", function(v) return v == 0 end)
test_op("isnan", function(v) return v ~= v end)
test_op("isfinite", function(v) return v == v and v ~= huge and v ~= -huge end)

-- Two numbers choose between f32 values, the default dtype.
function ops.where(condition, a, b)
  local shape = broadcast("where", condition, a, b)
  local numbers = type(a) == "number" and type(b) == "number"
  local dtype = numbers and "f32" or array.result_type(a, b)
  condition = array.expand("where", condition, shape)
  a, b = array.operand("where", a, dtype, shape), array.operand("where", b, dtype, shape)
  local out = array.new(shape, dtype)
  for i = 1, array.numel(shape) do
    if condition[i] ~= 0 then out[i] = a[i] else out[i] = b[i] end
  end
  return out
end

-- The value takes x's dtype; x and mask broadcast.
function ops.masked_fill(x, mask, value)
  local shape = broadcast("masked_fill", x, mask)
  x, mask = array.expand("masked_fill", x, shape), array.expand("masked_fill", mask, shape)
  local fill = array.operand("masked_fill", value, x.dtype, {})[1]
  for i = 1, array.numel(shape) do
    if mask[i] ~= 0 then x[i] = fill end
  end
  return x
end

ops.cast = array.cast

return ops
