-- SPDX-License-Identifier: MIT
-- linear: Linear and Embedding. Weights have PyTorch's shapes and first values.

local check = require "perilune.nn.check"
local init = require "perilune.nn.initialize"
local module = require "perilune.nn.module"

local linear = {}

--- x (.., inputs) to x w^T + b (.., outputs). Weight and bias start uniform within 1 / sqrt(inputs). Options: bias (true), dtype ("f32").
---@class perilune.Linear: perilune.Module
---@overload fun(eng, inputs: integer, outputs: integer, options?: { bias: boolean, dtype: string }): perilune.Linear
local Linear = module.class "Linear"

function Linear:init(eng, inputs, outputs, options)
  check.engine("Linear", eng)
  options = check.options("Linear", options, { bias = true, dtype = "f32" })
  self.inputs, self.outputs = check.count("Linear", "inputs", inputs), check.count("Linear", "outputs", outputs)
  local bound = 1 / math.sqrt(inputs)
  self.weight = init.uniform(eng:param({ outputs, inputs }, nil, { dtype = options.dtype }), -bound, bound)
  if options.bias then self.bias = init.uniform(eng:param({ outputs }, nil, { dtype = options.dtype }), -bound, bound) end
end

function Linear:forward(x) return x:linear(self.weight, self.bias) end

function Linear:describe() return ("%d, %d%s"):format(self.inputs, self.outputs, self.bias and "" or ", bias = false") end

--- Indices 1 .. rows of any shape to rows of a table (rows, width), which starts normal. Options: dtype ("f32").
---@class perilune.Embedding: perilune.Module
---@overload fun(eng, rows: integer, width: integer, options?: { dtype: string }): perilune.Embedding
local Embedding = module.class "Embedding"

function Embedding:init(eng, rows, width, options)
  check.engine("Embedding", eng)
  options = check.options("Embedding", options, { dtype = "f32" })
  self.rows, self.width = check.count("Embedding", "rows", rows), check.count("Embedding", "width", width)
  self.weight = init.normal(eng:param({ rows, width }, nil, { dtype = options.dtype }))
end

function Embedding:forward(index) return index:embedding(self.weight) end

function Embedding:describe() return ("%d, %d"):format(self.rows, self.width) end

linear.Linear, linear.Embedding = Linear, Embedding

return linear
