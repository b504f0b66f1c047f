-- SPDX-License-Identifier: MIT
-- container: layers made of layers: Sequential and Residual. A plain function x -> y is a layer too.

local check = require "perilune.nn.check"
local module = require "perilune.nn.module"

local Function = module.class "Function"

function Function:init(fn) self.fn = fn end

function Function:forward(...) return self.fn(...) end

local function layers_of(what, ...)
  local first = ...
  local given = type(first) == "table" and not module.is_module(first) and getmetatable(first) == nil and first or { ... }
  local list = {}
  for i, layer in ipairs(given) do
    check.callable(what, "layer " .. i, layer)
    list[i] = module.is_module(layer) and layer or Function(layer)
  end
  if #list == 0 then require("perilune.caller").fail("%s: at least one layer was expected", what) end
  return list
end

--- Runs layers one after the other: nn.Sequential{ a, b } or nn.Sequential(a, b). Their names are "1", "2", ...
---@class perilune.Sequential: perilune.Module
---@overload fun(...): perilune.Sequential
local Sequential = module.class "Sequential"

function Sequential:init(...)
  for i, layer in ipairs(layers_of("Sequential", ...)) do self[tostring(i)] = layer end
end

--- Layer number i.
function Sequential:layer(i) return rawget(self, tostring(i)) end

function Sequential:forward(x)
  local i = 1
  local layer = self:layer(1)
  while layer do
    x, i = layer(x), i + 1
    layer = self:layer(i)
  end
  return x
end

--- x + what the layers make of it.
---@class perilune.Residual: perilune.Module
---@overload fun(...): perilune.Residual
local Residual = module.class "Residual"

function Residual:init(...)
  local list = layers_of("Residual", ...)
  self.inner = list[2] and Sequential(list) or list[1]
end

function Residual:forward(x) return x + self.inner(x) end

return { Sequential = Sequential, Residual = Residual }
