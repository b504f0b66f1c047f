-- SPDX-License-Identifier: MIT
-- An op of one's own, written in Lua with its derivative, and the two checks that every op of the library goes through: its gradients against
-- central differences, and its numbers on every engine against cpu's, under every schedule that recycles memory in between.
--
--   perilune examples/custom_op.lua
--
-- The op is snake(x, a) = x + sin(a x)^2 / a (Ziyin et al. 2020), with a of one element.

local perilune = require "perilune"
local gradcheck = require "perilune.gradcheck"
local parity = require "perilune.parity"
local samples = require "perilune.samples"

local example = {}

example.snake = perilune.op {
  name = "snake",
  forward = function(ctx, x, a)
    ctx:save(x, a) -- what backward reads must be saved: a reset may come before it
    local s = (x * a):sin()
    return x + s * s / a
  end,
  backward = function(ctx, g)
    local x, a = ctx:saved()
    local s, s2 = (x * a):sin(), (x * a * 2):sin()
    local dx = g * (1 + s2)
    local da = (g * (s2 * x / a - s * s / (a * a))):sum()
    return dx, da
  end,
}

--- The same op with a fault: its backward reads a tensor that it did not save.
example.careless = perilune.op {
  name = "careless snake",
  forward = function(ctx, x, a)
    ctx:save(x, a)
    ctx.s = (x * a):sin()
    return x + ctx.s * ctx.s / a
  end,
  backward = function(ctx, g)
    local x, a = ctx:saved()
    local s2 = (x * a * 2):sin()
    return g * (1 + s2), (g * (s2 * x / a - ctx.s * ctx.s / (a * a))):sum()
  end,
}

--- n numbers between lo and hi, the same for the same set.
local function numbers(shape, dtype, set, lo, hi)
  local array, n = { shape = shape, dtype = dtype }, 1
  for _, size in ipairs(shape) do n = n * size end
  for i = 1, n do array[i] = lo + (hi - lo) * (0.5 + 0.5 * math.sin(12.9 * i + 78.2 * set)) end
  return samples.decode(samples.encode(array), shape, dtype)
end

--- Cases for the harnesses: shapes, where data comes from, and what to call.
function example.cases(op, dtype)
  local list = {}
  for _, shape in ipairs { { 2, 3 }, { 5 }, {}, { 0, 3 }, { 40, 50 } } do
    list[#list + 1] = {
      op = "snake", name = ("snake (%s) %s"):format(table.concat(shape, ","), dtype), dtype = dtype, rtol = 1e-6, grad_rtol = 1e-5,
      inputs = function(set)
        return { { array = numbers(shape, dtype, set, -2, 2), grad = true, slot = "x" },
          { array = numbers({}, dtype, set, 0.5, 2), grad = true, slot = "a" } }
      end,
      run = function(_, x, a) return op(x, a) end, place = "examples/custom_op.lua",
    }
  end
  return list
end

local SCHEDULES = { "no-reset", "reset-between-fwd-bwd", "reset-mid-backward", "reset-per-sample", "gc-between-ops", "nested-scopes" }

--- Runs both checks; says what they found, and returns whether all was right.
function example.check(op, say)
  local report = gradcheck.run { ops = example.cases(op, "f64") }
  local right = report.pass
  say("  " .. report:summary())
  for _, kind in ipairs(perilune.engines()) do
    for _, schedule in ipairs(kind.available and kind.kind ~= "cpu" and SCHEDULES or {}) do
      report = parity.run { candidate = kind.kind, ops = example.cases(op, "f32"), schedule = schedule }
      right = right and report.pass
      say("  " .. report:summary())
      if not report.pass then say("    " .. report:failures()[1]) end
    end
  end
  return right
end

if arg and arg[0] and arg[0]:match "custom_op%.lua$" then
  print "snake:"
  local right = example.check(example.snake, print)
  print "the same with a tensor that was not saved, which must be caught:"
  local caught = not example.check(example.careless, print)
  os.exit(right and caught and 0 or 1, true)
end

return example
