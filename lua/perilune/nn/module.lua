-- SPDX-License-Identifier: MIT
-- module: what layers are made of. A module's parameters are the persistent tensors in its fields that require grad, its buffers the other
-- persistent ones; fields that hold modules, or plain tables of such, are its layers. Their order is that in which fields got
-- their first value (of `self.a, self.b = f(), g()` that is b first). Tensors from the arena in fields are nobody's state: they die with the next reset.
--
--   local Block = nn.Module "Block"
--   function Block:init(eng, width) self.norm = nn.LayerNorm(eng, width) self.linear = nn.Linear(eng, width, width) end
--   function Block:forward(x) return x + self.linear(self.norm(x)) end
--   local block = Block(eng, 64)
--   local y = block(x)

local core = require "perilune.core"
local caller = require "perilune.caller"
local engine = require "perilune.engine"
local check = require "perilune.nn.check"

local T, A = core.tensor, core.autograd
local fail = caller.fail

---@class perilune.Module
---@field training boolean
local Module = { training = true }

local is_instance = setmetatable({}, { __mode = "k" }) -- metatable of a class -> its name

--- Whether a value is a module.
---@return boolean
local function is_module(value)
  local meta = type(value) == "table" and getmetatable(value)
  return meta and is_instance[meta] ~= nil or false
end

local function is_state(value) return T.is_tensor(value) and T.is_valid(value) and T.home(value) == "persistent" end

local function before(a, b) -- numbers come before strings
  if type(a) ~= type(b) then return type(a) == "number" end
  return a < b
end

local function is_name(key) return type(key) == "string" or type(key) == "number" end

--- The fields of a module in order of their first values; those of a plain table sorted.
local function members(node)
  if is_module(node) then return node._names end
  local names = {}
  for key in pairs(node) do
    if is_name(key) then names[#names + 1] = key end
  end
  table.sort(names, before)
  return names
end

--- Calls visit(path, value) once for each module and each persistent tensor below a node.
local function walk(node, prefix, visit, seen)
  for _, name in ipairs(members(node)) do
    local value = node[name]
    if value ~= nil and not seen[value] then
      local path = prefix .. name
      if is_state(value) then
        seen[value] = true
        visit(path, value)
      elseif is_module(value) or (type(value) == "table" and getmetatable(value) == nil) then
        seen[value] = true
        if is_module(value) then visit(path, value) end
        walk(value, path .. ".", visit, seen)
      end
    end
  end
end

local function each(self, visit) walk(self, "", visit, { [self] = true }) end

--- The parameters, in order of definition; one that is in two places comes once. Second result: their names, such as "blocks.1.norm.weight".
---@return userdata[], string[]
function Module:parameters()
  local list, names = {}, {}
  each(self, function(path, value)
    if T.is_tensor(value) and A.requires_grad(value) then list[#list + 1], names[#names + 1] = value, path end
  end)
  return list, names
end

--- The modules below this one, in order, and their names.
---@return perilune.Module[], string[]
function Module:modules()
  local list, names = {}, {}
  each(self, function(path, value)
    if is_module(value) then list[#list + 1], names[#names + 1] = value, path end
  end)
  return list, names
end

--- Number of elements of all parameters.
---@return integer
function Module:count()
  local sum = 0
  for _, p in ipairs(self:parameters()) do sum = sum + p:numel() end
  return sum
end

--- Writes 0 into the gradients of all parameters.
function Module:zero_grad()
  for _, p in ipairs(self:parameters()) do core.ops.zero(p.grad) end
  return self
end

--- Training on (the default) or off, for this module and all below. Returns the module.
---@param on? boolean
function Module:train(on)
  if on ~= nil and type(on) ~= "boolean" then fail("train: a boolean was expected, got %s", type(on)) end
  on = on ~= false
  rawset(self, "training", on)
  for _, m in ipairs((self:modules())) do rawset(m, "training", on) end
  return self
end

--- Training off: dropout passes its input.
function Module:eval() return self:train(false) end

--- The persistent tensors by name, the parameters among them: what a file of the model holds. They are the module's own, not copies.
---@return table<string, userdata>
function Module:state()
  local state = {}
  each(self, function(path, value)
    if T.is_tensor(value) then state[path] = value end
  end)
  return state
end

local function complaints(own, given)
  local list = {}
  for name, t in pairs(own) do
    local g = given[name]
    if g == nil then
      list[#list + 1] = ("'%s' is missing"):format(name)
    elseif not T.is_tensor(g) then
      list[#list + 1] = ("'%s' is a %s, not a tensor"):format(name, type(g))
    else
      local want, got = check.shape_text(T.shape(t)), check.shape_text(T.shape(g))
      if want ~= got then list[#list + 1] = ("'%s' has shape %s, expected %s"):format(name, got, want) end
      if T.dtype(t) ~= T.dtype(g) then list[#list + 1] = ("'%s' is %s, expected %s"):format(name, T.dtype(g), T.dtype(t)) end
    end
  end
  for name in pairs(given) do
    if own[name] == nil then list[#list + 1] = ("'%s' is not known here"):format(tostring(name)) end
  end
  table.sort(list)
  return list
end

--- Writes the tensors of `state` (of any engine) into this module's own of the same names. All names, shapes and dtypes must agree, else
--- nothing changes.
---@param state table<string, userdata>
function Module:load(state)
  if type(state) ~= "table" then fail("load: a table of tensors by name was expected, got %s", type(state)) end
  local own = self:state()
  local wrong = complaints(own, state)
  if wrong[1] then
    local shown = table.concat(wrong, "; ", 1, math.min(#wrong, 5))
    fail("load: %s%s", shown, #wrong > 5 and ("; and %d more"):format(#wrong - 5) or "")
  end
  for name, t in pairs(own) do T.set_bytes(t, T.bytes(state[name])) end
  return self
end

-- Copies to another engine or dtype ------------------------------------------------------------------

local function convert(t, target)
  local eng, dtype = T.engine(t), T.dtype(t)
  if type(target) == "string" then
    if dtype:sub(1, 1) == "f" then dtype = target end
  else
    eng = target
  end
  local make = A.requires_grad(t) and eng.param or eng.persistent
  local new = make(eng, T.shape(t), nil, { dtype = dtype })
  eng:no_grad(function()
    if dtype == T.dtype(t) then T.set_bytes(new, T.bytes(t)) else core.ops.copy(new, t) end
  end)
  return new
end

local function copy(value, target, done)
  if done[value] ~= nil then return done[value] end
  if is_state(value) then
    done[value] = convert(value, target)
  elseif T.is_tensor(value) then
    return nil -- of the arena: nothing that outlives a step
  elseif is_module(value) or (type(value) == "table" and getmetatable(value) == nil) then
    local new = {}
    done[value] = new
    for key, item in pairs(value) do new[key] = copy(item, target, done) end
    setmetatable(new, getmetatable(value))
  else
    return value
  end
  return done[value]
end

--- A copy of the module with its tensors on another engine, or with its floating point tensors as another dtype; the module itself where all
--- of them are there already. Optimizers made for this module's parameters stay with this one's.
---@param target userdata|string
---@return perilune.Module
function Module:to(target)
  if not engine.is_engine(target) and target ~= "f32" and target ~= "f64" then
    fail("to: an engine, \"f32\" or \"f64\" was expected, got %s", type(target) == "string" and ("%q"):format(target) or type(target))
  end
  local there = true
  for _, t in pairs(self:state()) do
    if type(target) == "string" then
      there = there and (T.dtype(t) == target or T.dtype(t):sub(1, 1) ~= "f")
    else
      there = there and T.engine(t) == target
    end
  end
  if there then return self end
  return copy(self, target, {})
end

-- Calls --------------------------------------------------------------------------------------------

local function label(m)
  local args = m.describe and m:describe() or ""
  return ("%s(%s)"):format(is_instance[getmetatable(m)], args)
end

--- The name of a module below another; nil if it isn't there.
local function name_within(outer, inner)
  local found
  each(outer, function(path, value)
    if value == inner then found = found or path end
  end)
  return found
end

local Explained = {} -- metatable of what `explain` makes
local MODULES = { __mode = "v" }
local failing = {} -- the error on its way up: its message as raised last, and the modules it came through, innermost first

local function text_of(e)
  local names = {}
  for i = #e.modules, 2, -1 do names[#names + 1] = name_within(e.modules[i], e.modules[i - 1]) end
  local path = #names > 0 and ("layer '%s', "):format(table.concat(names, ".")) or ""
  return ("%sin %s%s: %s"):format(e.place, path, label(e.modules[1]), e.text)
end

--- Handles an error inside a module's forward: says which layer, at the line of whoever called it.
local function explain(message)
  if type(message) ~= "string" then return message end
  return setmetatable({ message = message, place = caller.place(), traceback = debug.traceback("", 2) }, Explained)
end

local function finish(self, ok, ...)
  if ok then return ... end
  local e = ...
  if type(e) ~= "table" or getmetatable(e) ~= Explained then error(e, 0) end
  if failing.message == e.message and failing.modules[1] then
    failing.modules[#failing.modules + 1] = self
  else
    local place, text = e.message:match "^([^\n:]+:%d+: )(.*)$"
    if not place or caller.is_own(place) then place = e.place end
    failing = { modules = setmetatable({ self }, MODULES), place = place, text = text or e.message, traceback = e.traceback }
  end
  failing.message = text_of(failing)
  error(failing.message, 0)
end

--- The Lua traceback of the last error that a layer raised, from where it was raised.
---@return string?
local function traceback() return failing.traceback end

local function call(self, ...)
  local forward = self.forward
  if not forward then fail("%s has no method 'forward'", label(self)) end
  return finish(self, xpcall(forward, explain, self, ...))
end

local function tree(m, indent)
  local lines = {}
  local function list(node, prefix)
    for _, name in ipairs(members(node)) do
      local value = node[name]
      if is_module(value) then
        lines[#lines + 1] = ("%s  (%s%s) %s"):format(indent, prefix, name, tree(value, indent .. "  "))
      elseif type(value) == "table" and getmetatable(value) == nil then
        list(value, prefix .. name .. ".")
      end
    end
  end
  list(m, "")
  table.insert(lines, 1, label(m))
  return table.concat(lines, "\n")
end

--- A new class of modules: give it init(self, ...), which fills the fields, and forward(self, ...). Calling the class makes a module, calling
--- that runs forward. describe(self), if there, returns what tostring shows between the parentheses.
---@param name string
---@return table
local function class(name)
  if type(name) ~= "string" then fail("Module: a name was expected, got %s", type(name)) end
  local methods = setmetatable({}, { __index = Module })
  local meta = {
    __index = methods, __call = call, __tostring = function(self) return tree(self, "") end,
    __newindex = function(self, key, value)
      local names, named = rawget(self, "_names"), rawget(self, "_named")
      if value ~= nil and is_name(key) and not named[key] then
        names[#names + 1], named[key] = key, true
      end
      rawset(self, key, value)
    end,
  }
  is_instance[meta] = name
  local function make(_, ...)
    local self = setmetatable({ _names = {}, _named = {} }, meta)
    if methods.init then methods.init(self, ...) end
    return self
  end
  return setmetatable(methods, { __index = Module, __call = make, __tostring = function() return "class " .. name end })
end

return { class = class, is_module = is_module, traceback = traceback, Module = Module }
