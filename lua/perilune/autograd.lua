-- SPDX-License-Identifier: MIT
-- autograd: parameters, gradients, ops written in Lua.

local core = require "perilune.core"

local autograd = {}

local A, T = core.autograd, core.tensor
local is_tensor = T.is_tensor

local function pack(...) return { n = select("#", ...), ... } end

local function tensors_in(args)
  local list = {}
  for i = 1, args.n do
    if is_tensor(args[i]) then list[#list + 1] = args[i] end
  end
  return list
end

local function engine_of(tensors) return tensors[1] and T.engine(tensors[1]) end


-- What an op's forward and backward share.
---@class perilune.Context
local Context = {}
Context.__index = Context

--- Keeps values for the backward; the tensors among them stay valid until it has run.
function Context:save(...)
  local kept = self.kept
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    kept.n = kept.n + 1
    kept[kept.n] = value
    if self.node and is_tensor(value) then A.save(self.node, value) end
  end
end

--- All that was saved, in order.
function Context:saved() return unpack(self.kept, 1, self.kept.n) end

--- Whether the gradient of tensor argument i is wanted.
function Context:needs(i) return self.wanted[i] == true end

--- Runs another op (of perilune or from perilune.op) inside a forward; what it saves belongs to this op. Its results; `ctx:back(g ...)` in
--- the backward gives the gradients of its tensor arguments, last call first.
function Context:call(op, ...)
  local args = pack(...)
  if not self.node then return op(...) end
  local eng = engine_of(tensors_in(args))
  local inputs = {}
  A.owner(eng, self.node)
  local before = A.record_on(eng, true)
  local results = pack(pcall(function()
    for i = 1, args.n do
      local value = args[i]
      if is_tensor(value) then
        if T.dtype(value):match "^f" then
          args[i] = A.requires_grad(A.detach(value), true)
          inputs[#inputs + 1] = args[i]
        else
          inputs[#inputs + 1] = false
        end
      end
    end
    return op(unpack(args, 1, args.n))
  end))
  A.record_on(eng, before)
  A.owner(eng, nil)
  if not results[1] then error(results[2], 0) end
  local calls = self.calls
  local outputs = {}
  for i = 2, results.n do
    local value = results[i]
    if is_tensor(value) then
      outputs[#outputs + 1] = A.requires_grad(value) and value or false
      results[i] = A.detach(value)
    end
  end
  calls[#calls + 1] = { inputs = inputs, outputs = outputs }
  return unpack(results, 2, results.n)
end

--- In a backward: the gradients of the tensor arguments of the last `ctx:call` not yet gone back through, given those of its tensor results.
function Context:back(...)
  local call = table.remove(self.calls)
  if not call then error("ctx:back: there is no ctx:call left to go back through", 2) end
  local outputs, gradients, inputs = {}, {}, {}
  for i, y in ipairs(call.outputs) do
    local g = select(i, ...)
    if y and g ~= nil then outputs[#outputs + 1], gradients[#gradients + 1] = y, g end
  end
  for _, x in ipairs(call.inputs) do
    if x then inputs[#inputs + 1] = x end
  end
  local found = #outputs > 0 and #inputs > 0 and A.gradients(outputs, inputs, gradients, { allow_unused = true }) or {}
  local results, n = {}, 0
  for i, x in ipairs(call.inputs) do
    if x then
      n = n + 1
      results[i] = found[n]
    end
  end
  return unpack(results, 1, #call.inputs)
end

-- Runs `forward` unrecorded and makes its results those of a node whose derivative is `backward`.
local function run(name, forward, backward, force, ...)
  local args = pack(...)
  local tensors = tensors_in(args)
  local ctx = setmetatable({ kept = { n = 0 }, calls = {}, wanted = {} }, Context)
  local node = A.node(name, backward, ctx, force, tensors)
  if not tensors[1] then return forward(ctx, ...) end
  ctx.node = node
  local eng = engine_of(tensors)
  if not node then return A.no_grad(eng, forward, ctx, ...) end
  for i, t in ipairs(tensors) do ctx.wanted[i] = A.requires_grad(t) end
  local results = pack(pcall(A.no_grad, eng, forward, ctx, ...))
  if results[1] then
    local seen = {}
    for _, t in ipairs(tensors) do seen[t] = true end
    for i = 2, results.n do -- a result that is an argument or comes twice is shown by a tensor of its own
      local value = results[i]
      if is_tensor(value) then
        if seen[value] then results[i] = A.detach(value) end
        seen[value] = true
      end
    end
    results = pack(pcall(A.results, node, unpack(results, 2, results.n)))
  end
  if not results[1] then
    A.drop(node)
    error(results[2], 0)
  end
  return unpack(results, 2, results.n)
end

--- An op in Lua: { name =, forward = function(ctx, ...), backward = function(ctx, g ...) }. Nothing is recorded inside forward; backward gets
--- one gradient per result and returns one (or nil) per tensor argument.
---@param def { name: string, forward: function, backward: function }
---@return function
function autograd.op(def)
  if type(def) ~= "table" then error("op: a table was expected, got " .. type(def), 2) end
  for key in pairs(def) do
    if key ~= "name" and key ~= "forward" and key ~= "backward" then error(("op: there is no field %q"):format(tostring(key)), 2) end
  end
  if type(def.name) ~= "string" then error("op: name is a string, got " .. type(def.name), 2) end
  for _, key in ipairs { "forward", "backward" } do
    if type(def[key]) ~= "function" then error(("op: %s is a function, got %s"):format(key, type(def[key])), 2) end
  end
  local name, forward, backward = def.name, def.forward, def.backward
  return function(...) return run(name, forward, backward, false, ...) end
end

--- fn(...) without keeping what it computes in between: its backward computes it again, with the same random numbers.
function autograd.checkpoint(fn, ...)
  if type(fn) ~= "function" then error("checkpoint: a function was expected, got " .. type(fn), 2) end
  local args = pack(...)
  local eng = engine_of(tensors_in(args))
  if not eng then error("checkpoint: at least one argument is a tensor", 2) end
  local state = eng:rng()
  local function forward(ctx, ...)
    ctx:save(...)
    return fn(...)
  end
  local function backward(ctx, ...)
    local again, inputs = pack(ctx:saved()), {}
    for i = 1, again.n do
      local value = again[i]
      if is_tensor(value) then
        if ctx:needs(#inputs + 1) then
          value = A.requires_grad(A.detach(value), true)
          again[i] = value
        end
        inputs[#inputs + 1] = value
      end
    end
    local now = eng:rng()
    A.rewind(eng, state)
    local before = A.record_on(eng, true)
    local results = pack(pcall(fn, unpack(again, 1, again.n)))
    A.record_on(eng, before)
    A.rewind(eng, now)
    if not results[1] then error(results[2], 0) end
    local outputs, gradients, n = {}, {}, 0
    for i = 2, results.n do
      if is_tensor(results[i]) then
        n = n + 1
        local g = select(n, ...)
        if g and A.requires_grad(results[i]) then outputs[#outputs + 1], gradients[#gradients + 1] = results[i], g end
      end
    end
    if #outputs > 0 then A.backward_all(outputs, gradients) end
    local found = {}
    for i, x in ipairs(inputs) do found[i] = ctx:needs(i) and A.grad(x) or nil end
    return unpack(found, 1, #inputs)
  end
  return run("checkpoint", forward, backward, true, ...)
end

--- The gradients of `outputs` for `inputs`: a tensor for a tensor, a list for a list. Options: grad_outputs (as outputs), retain, create_graph,
--- allow_unused (zeros instead of an error).
function autograd.grad(outputs, inputs, options)
  options = options or {}
  local single = is_tensor(inputs)
  if is_tensor(outputs) then outputs = { outputs } end
  if single then inputs = { inputs } end
  local given = options.grad_outputs
  if is_tensor(given) then given = { given } end
  if type(outputs) ~= "table" or type(inputs) ~= "table" then error("grad: outputs and inputs are tensors or lists of tensors", 2) end
  local gradients
  if given then
    gradients = {}
    for i = 1, #outputs do gradients[i] = given[i] or false end
  end
  local found = A.gradients(outputs, inputs, gradients, options)
  if single then return found[1] end
  return found
end

-- Fields and methods of tensors and engines.

autograd.tensor_methods = {
  requires_grad = A.requires_grad, backward = A.backward, detach = A.detach,
}

autograd.tensor_fields = { grad = A.grad }

function autograd.set_grad(t, value) A.set_grad(t, value) end

autograd.engine_methods = { no_grad = A.no_grad, recording = A.recording }

return autograd
