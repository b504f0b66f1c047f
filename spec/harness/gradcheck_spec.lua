-- SPDX-License-Identifier: MIT
-- Gradients of every differentiable op and composite against central differences; and that the check can fail.

local core = require "perilune.core"
local cases = require "perilune.cases"
local gradcheck = require "perilune.gradcheck"
local perilune = require "perilune"

describe("gradcheck", function()
  it("passes for every differentiable op, every sample and every composite", function()
    local report = gradcheck.run { minimum = 900 }
    assert.equal("", table.concat(report:failures(), "\n"):sub(1, 2000))
    assert.is_true(report.pass, report:summary())
    local missing = {}
    for _, row in ipairs(core.ops.rows) do
      local found = report:result(row.name)
      if cases.differentiable(row) and not (found and found.executed > 0) then missing[#missing + 1] = row.name end
    end
    assert.equal("", table.concat(missing, " "))
    assert.is_true(report.skipped < 10)
  end)

  it("passes on stress for a sample of ops", function()
    assert.is_true(gradcheck.run({ engine = "stress", ops = { "matmul", "softmax", "layer_norm", "sdpa", "composite.cross_attention" } }).pass)
  end)

  local function case_of(backward)
    local op = perilune.op { name = "square", forward = function(ctx, x) ctx:save(x) return x * x end, backward = backward }
    return { op = "square", name = "square", rtol = 1e-6, grad_rtol = 1e-5, place = "here",
      inputs = function() return { { array = { shape = { 3 }, dtype = "f64", 0.5, -1, 2 }, grad = true, slot = "x" } } end,
      run = function(_, x) return op(x) end }
  end

  it("names op, input and place of a wrong gradient", function()
    assert.is_true(gradcheck.run({ ops = { case_of(function(ctx, g) return g * ctx:saved() * 2 end) } }).pass)
    local report = gradcheck.run { ops = { case_of(function(ctx, g) return g * ctx:saved() end) } }
    assert.is_false(report.pass)
    assert.matches("square under gradcheck: gradient of x: ", report:failures()[1], 1, true)
    assert.matches("(here)", report:failures()[1], 1, true)
    report = gradcheck.run { ops = { case_of(function(ctx, g) return g * ctx:saved() * 2 * (0 / 0) end) } }
    assert.equal(1, report.failed)
  end)

  it("reports an error in a backward as errored", function()
    local report = gradcheck.run { ops = { case_of(function() error "boom" end) } }
    assert.equal(1, report.errored)
    assert.matches("boom", report:failures()[1], 1, true)
  end)

  it("does not pass on nothing", function() assert.is_false(gradcheck.run({ ops = {} }).pass) end)
end)
