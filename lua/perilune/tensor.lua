-- SPDX-License-Identifier: MIT
-- tensor: methods, fields and operators of tensors, made of the op table.

local core = require "perilune.core"
local autograd = require "perilune.autograd"
local engine = require "perilune.engine"
local format = require "perilune.format"
local suggest = require "perilune.suggest"

local tensor = {}

local T, ops = core.tensor, core.ops
local requires_grad, recording = core.autograd.requires_grad, core.autograd.recording
local methods = {}

for _, row in ipairs(ops.rows) do
  if not row.internal and not row.create then methods[row.name] = ops[row.name] end
end
for _, name in ipairs { "get", "set", "item", "totable", "numel", "is_contiguous", "same_storage", "version", "address", "is_valid",
  "place", "strides", "bytes", "set_bytes" } do
  methods[name] = T[name]
end

for name, fn in pairs(autograd.tensor_methods) do methods[name] = fn end

--- A copy that shares nothing.
function methods.clone(t) return ops.cast(t, T.dtype(t)) end

--- t:to "f64" converts, t:to(engine) copies to another engine; what is there already is returned itself.
function methods.to(t, target)
  if type(target) == "string" then
    if T.dtype(t) == target then return t end
    return ops.cast(t, target)
  end
  if not engine.is_engine(target) then error("to: a dtype or an engine was expected, got " .. type(target), 2) end
  local here = T.engine(t)
  if here == target then return t end
  if methods.requires_grad(t) and here:recording() then
    error("to: gradients stay on one engine; t:detach():to(other) copies a tensor that requires grad", 2)
  end
  local there = target:empty(T.shape(t), { dtype = T.dtype(t) })
  return T.set_bytes(there, T.bytes(t))
end

--- The size of dimension k.
function methods.size(t, k)
  local shape = T.shape(t)
  if type(k) ~= "number" or k == 0 or not shape[k > 0 and k or k + #shape + 1] then
    error(("size: dimension %s of a tensor with %d dimensions"):format(tostring(k), #shape), 2)
  end
  return shape[k > 0 and k or k + #shape + 1]
end

local fields = { shape = T.shape, dtype = T.dtype, engine = T.engine, home = T.home, ndim = T.ndim }

for name, fn in pairs(autograd.tensor_fields) do fields[name] = fn end

local index = T.index

local function lookup(t, key)
  local method = methods[key]
  if method then return method end
  local field = fields[key]
  if field then return field(t) end
  if type(key) == "string" then
    error(("a tensor has no method or field '%s'"):format(key) .. suggest(key, methods, fields), 2)
  end
  return index(t, key)
end

local function assign(t, key, value)
  if key == "grad" then return autograd.set_grad(t, value) end
  if type(key) == "string" then error(("a tensor has no field '%s' to set"):format(key) .. suggest(key, fields), 2) end
  if requires_grad(t) and recording(T.engine(t)) then
    error("x[k] = v: writing in place is not allowed on a tensor that requires grad (eng:no_grad(fn) allows it)", 2)
  end
  local view = index(t, key)
  if type(value) == "number" or type(value) == "boolean" then
    ops.fill(view, value == true and 1 or value == false and 0 or value)
  elseif T.is_tensor(value) then
    ops.copy(view, value)
  else
    error("x[k] = v: a number or a tensor was expected, got " .. type(value), 2)
  end
end

local function unary_minus(t) return ops.neg(t) end

local operators = {
  __index = lookup, __newindex = assign, __len = T.len, __tostring = format.tensor, __unm = unary_minus,
  __add = ops.add, __sub = ops.sub, __mul = ops.mul, __div = ops.div, __mod = ops.mod, __pow = ops.pow,
  __metatable = "perilune tensor",
}

function tensor.install()
  for _, name in ipairs { "perilune.tensor", "perilune.tensor.final" } do
    local metatable = core.metatables[name]
    for event, fn in pairs(operators) do metatable[event] = fn end
  end
end

tensor.methods, tensor.fields = methods, fields

return tensor
