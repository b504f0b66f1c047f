-- SPDX-License-Identifier: MIT
-- The hand-written reference: every op a second time, from the mathematics, in plain Lua doubles
-- and int64. It shares nothing with the engine, so that a wrong formula in the op table is not
-- wrong twice. Slow and short on purpose; families live in spec/support/reference/.
--
--   local reference = require "spec.support.reference"
--   local x = reference.array({ { 1, 2 }, { 3, 4 } }, "f64")
--   local values, indices = reference.ops.max(x, 2)

local array = require "spec.support.reference.array"
local random = require "spec.support.reference.random"

local reference = {
  maker = "perilune reference 1, written by hand from the ops' definitions in mathematics, "
    .. "PyTorch's documentation and the Philox paper",
  ops = {},
  array = array.from,
  new = array.new,
  numel = array.numel,
  cast = array.cast,
  round = array.round,
  strided = array.strided,
  broadcast_shape = array.broadcast_shape,
  result_type = array.result_type,
  random = array.random,
  allclose = array.allclose,
  philox = random.philox,
  uniform = random.uniform,
}

local families = {
  require "spec.support.reference.elementwise",
  require "spec.support.reference.reduce".ops,
  require "spec.support.reference.matmul",
  require "spec.support.reference.shape",
  require "spec.support.reference.index",
  require "spec.support.reference.nn",
  require "spec.support.reference.attention",
  random.ops,
}

for i = 1, #families do
  for name, fn in pairs(families[i]) do
    assert(not reference.ops[name], name .. " is defined twice")
    reference.ops[name] = fn
  end
end

return reference
