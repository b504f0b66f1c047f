-- SPDX-License-Identifier: MIT
-- activation: layers without parameters that work element by element, Dropout, and the gated SwiGLU.

local check = require "perilune.nn.check"
local linear = require "perilune.nn.linear"
local module = require "perilune.nn.module"

local activation = {}

--- The op of the same name, element by element, as a layer.
---@class perilune.ReLU: perilune.Module
---@class perilune.SiLU: perilune.Module
---@class perilune.Tanh: perilune.Module
---@class perilune.Sigmoid: perilune.Module
---@overload fun(): perilune.Module
for name, op in pairs { ReLU = "relu", SiLU = "silu", Tanh = "tanh", Sigmoid = "sigmoid" } do
  local class = module.class(name)
  function class:init(options) check.options(name, options, {}) end
  function class:forward(x) return x[op](x) end
  activation[name] = class
end

--- x times the normal distribution's probability below x. Options: approximate ("none" or "tanh").
local GELU = module.class "GELU"

function GELU:init(options)
  options = check.options("GELU", options, { approximate = "none" })
  self.approximate = check.word("GELU", "approximate", options.approximate, { "none", "tanh" })
end

function GELU:forward(x) return x:gelu(self.approximate) end

--- While training, zeroes each element with probability p (0.5) and divides the others by 1 - p; else passes x.
local Dropout = module.class "Dropout"

function Dropout:init(p) self.p = check.number("Dropout", "p", p == nil and 0.5 or p, 0, 1) end

function Dropout:forward(x)
  if not self.training or self.p == 0 then return x end
  return x:dropout(self.p)
end

function Dropout:describe() return ("%g"):format(self.p) end

--- Shazeer 2020: down(silu(gate(x)) * up(x)), with linear layers of width to hidden and back. Options: bias (false), dtype.
local SwiGLU = module.class "SwiGLU"

function SwiGLU:init(eng, width, hidden, options)
  check.engine("SwiGLU", eng)
  options = check.options("SwiGLU", options, { bias = false, dtype = "f32" })
  self.gate = linear.Linear(eng, width, hidden, options)
  self.up = linear.Linear(eng, width, hidden, options)
  self.down = linear.Linear(eng, hidden, width, options)
end

function SwiGLU:forward(x) return self.down(self.gate(x):silu() * self.up(x)) end

activation.GELU, activation.Dropout, activation.SwiGLU = GELU, Dropout, SwiGLU

return activation
