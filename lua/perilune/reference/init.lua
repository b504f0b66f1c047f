-- SPDX-License-Identifier: MIT
-- reference: every public function, op, method and field with what is known of it. Ops come from the op table, Lua functions from the comments where they are
-- written, C functions from reference/native.lua. `? name`, `?? word`, the HTML site and the editor's stubs are made of this one list.

local core = require "perilune.core"
local annotations = require "perilune.reference.annotations"
local suggest = require "perilune.suggest"

local reference = {}

---@class perilune.Entry
---@field name string  as one writes it: "matmul", "eng:reset", "nn.Linear"
---@field section string
---@field forms string[]  ways to call it
---@field doc string
---@field params { name: string, type: string, text: string }[]
---@field returns string[]
---@field example? string
---@field note? string
---@field row? table  of the op table
---@field type? string  of a field
---@field value? any

local function path_of(module) return assert(package.searchpath(module, package.path)) end

-- Ops ----------------------------------------------------------------------------------------------

local TYPES = {
  tensor = "perilune.Tensor", ["tensor or number"] = "perilune.Tensor|number", index = "perilune.Tensor", mask = "perilune.Tensor",
  tensors = "perilune.Tensor[]", num = "number", int = "integer", bool = "boolean", dim = "integer", dims = "integer|integer[]",
  ints = "integer|integer[]", dtype = "string",
}
local TENSORS = { tensor = true, ["tensor or number"] = true, index = true, mask = true, tensors = true }

local function default_text(slot)
  if slot.kind == "word" then return ("%q"):format((slot.words:match "^[^|]+")) end
  if slot.kind == "bool" then return tostring(slot.default ~= 0) end
  return ("%.14g"):format(slot.default)
end

local function type_of(slot)
  if slot.kind == "word" then return (slot.words:gsub("[^|]+", '"%0"')) end
  return TYPES[slot.kind]
end

local function params_of(row)
  local params = {}
  for i, slot in ipairs(row.slots) do
    local notes = {}
    if slot.kind == "index" then notes[#notes + 1] = "whole numbers from 1 on" end
    if slot.kind == "mask" then notes[#notes + 1] = "not 0 means true" end
    if slot.kind == "dim" then notes[#notes + 1] = "a dimension from 1, negative from the end" end
    if slot.kind == "dims" then notes[#notes + 1] = "all without it" end
    if slot.default then notes[#notes + 1] = default_text(slot) .. " without it" end
    params[i] = { name = slot.name .. ((slot.optional or slot.default or slot.kind == "dims") and "?" or ""), type = type_of(slot),
      text = table.concat(notes, "; ") }
  end
  if not row.create then
    params[#params + 1] = { name = "out?", type = row.nout > 1 and "{ out: perilune.Tensor[] }" or "perilune.Tensor",
      text = "destination: the result is written there" }
  end
  return params
end

local function arguments(row, first)
  local required, optional = {}, {}
  for i = first, #row.slots do
    local slot = row.slots[i]
    local list = (slot.optional or slot.default or slot.kind == "dims") and optional or #optional == 0 and required or optional
    list[#list + 1] = slot.name
  end
  local text = table.concat(required, ", ")
  if #optional > 0 then text = ("%s[%s%s]"):format(text, #required > 0 and ", " or "", table.concat(optional, ", ")) end
  return "(" .. text .. ")"
end

local OPERATORS = { add = "a + b", sub = "a - b", mul = "a * b", div = "a / b", mod = "a % b", pow = "a ^ b", neg = "-x" }

--- ":name", or "["name"]" for an op that is called like a word of Lua; of that the object is an argument.
local function access(name)
  if loadstring("return x." .. name) then return ":" .. name, 1 end
  return ('["%s"]'):format(name), 0
end

local function number_text(v) return type(v) == "number" and ("%.14g"):format(v) or type(v) == "string" and ("%q"):format(v) or tostring(v) end

local function list_text(list)
  local parts = {}
  for i, v in ipairs(list) do parts[i] = number_text(v) end
  return #parts == 0 and "{}" or "{ " .. table.concat(parts, ", ") .. " }"
end

local function tensor_text(spec, kind)
  local shape = list_text(spec.shape)
  local dtype = spec.dtype or (kind == "index" and "i64") or (kind == "mask" and "bool")
  if spec.fill or spec.max or kind == "index" then
    return ("eng:full(%s, %s%s)"):format(shape, number_text(spec.fill or 1), dtype and (', { dtype = "%s" }'):format(dtype) or "")
  end
  if dtype and dtype ~= "f32" then return ('eng:ones(%s, { dtype = "%s" })'):format(shape, dtype) end
  return ("eng:rand(%s)"):format(shape)
end

--- A call that runs, from the row's first sample; nil where it has none.
local function example_of(row)
  for _, sample in ipairs(require("perilune.samples").of(row)) do
    if not sample.bad then
      local args, last = {}, 0
      for i, slot in ipairs(row.slots) do
        local spec = sample.args[i]
        if not spec then
          args[i] = "nil"
        elseif spec.kind == "tensor" then
          args[i] = tensor_text(spec, slot.kind)
        elseif spec.kind == "tensors" then
          local list = {}
          for k, item in ipairs(spec) do list[k] = tensor_text(item, "tensor") end
          args[i] = "{ " .. table.concat(list, ", ") .. " }"
        elseif type(spec.value) == "table" then
          args[i] = list_text(spec.value)
        else
          args[i] = slot.kind == "dtype" and ('"%s"'):format(spec.value) or number_text(spec.value)
        end
        if spec then last = i end
      end
      local method, given = access(row.name)
      local call = given == 1 and "eng" .. method or "perilune" .. method
      return (("%s(%s)"):format(call, table.concat(args, ", ", 1, last)):gsub("%(({ [^(){}]* })%)", " %1"))
    end
  end
  return nil
end

local function note_of(row)
  local notes = { "dtypes: " .. table.concat(row.dtypes, " ") }
  if row.view then notes[#notes + 1] = "a view of its operand" end
  if row.inplace then notes[#notes + 1] = "writes its first operand" end
  if row.random then notes[#notes + 1] = "draws random numbers" end
  if row.nout > 1 then notes[#notes + 1] = row.nout .. " results" end
  if row.differentiable or row.composite then notes[#notes + 1] = "differentiable" end
  return table.concat(notes, "; ")
end

local function op_entry(row)
  local method, given = access(row.name)
  local forms = { given == 1 and ("eng%s%s"):format(method, arguments(row, 1)) or nil }
  local first = row.slots[1]
  if not row.create then
    if first and TENSORS[first.kind] and first.kind ~= "tensors" then
      table.insert(forms, 1, ("%s%s%s"):format(first.name, method, arguments(row, 1 + given)))
    end
    forms[#forms + 1] = ("perilune%s%s"):format(given == 1 and "." .. row.name or method, arguments(row, 1))
    if OPERATORS[row.name] then table.insert(forms, 1, OPERATORS[row.name]) end
  end
  local returns = {}
  for i = 1, row.nout do returns[i] = "perilune.Tensor" end
  return { name = row.name, section = row.create and "Making tensors" or "Ops", forms = forms, doc = row.doc, params = params_of(row), returns = returns,
    note = note_of(row), row = row, value = core.ops[row.name] }
end

-- Functions ----------------------------------------------------------------------------------------

--- The arguments of "fun(a: integer, b?: table): ...", as "(a, b)".
local function args_of_type(text)
  local inner = text and text:match "^fun(%b())"
  if not inner then return nil end
  local names, depth, current = {}, 0, ""
  for c in (inner:sub(2, -2) .. ","):gmatch "." do
    if c:match "[%({<%[]" then depth = depth + 1 elseif c:match "[%)}>%]]" then depth = depth - 1 end
    if c == "," and depth == 0 then
      names[#names + 1] = current:match "^%s*([%w_%.]+)"
      current = ""
    else
      current = current .. c
    end
  end
  return "(" .. table.concat(names, ", ") .. ")"
end

--- The entry of something that has a comment, or nothing if it has none.
local function entry(name, section, value, block, args)
  return { name = name, section = section, value = value, doc = block and block.doc or "", params = block and block.params or {},
    returns = block and block.returns or {}, type = block and block.type,
    forms = { name .. (args or block and (args_of_type(block.overload) or args_of_type(block.type) or block.args) or "") } }
end

local function native(name, class)
  for _, block in ipairs(annotations.of(path_of "perilune.reference.native")) do
    if block.name == name then return block end
  end
  error(("reference: %s '%s' has no lines in reference/native.lua"):format(class, name), 0)
end

--- Entries for the functions of a table. `prefix` as one writes it ("eng:"); `files`: modules where comments of values that are no functions of their own
--- are looked for.
local function functions(list, section, prefix, t, files, skip)
  local names = {}
  for name in pairs(t) do
    if type(name) == "string" and not name:match "^_" and not (skip and skip(name, t[name])) then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local value, block = t[name], nil
    if type(value) == "function" and debug.getinfo(value, "S").what == "C" then
      block = native(prefix:gsub("^nn%.", "") .. name, section)
    elseif type(value) == "function" then
      block = annotations.of_function(value)
    end
    for _, file in ipairs(files or {}) do
      if not block then block = annotations.named(path_of(file), name) end
    end
    local constructor = type(value) == "table" and debug.getmetatable(value) and debug.getmetatable(value).__call and rawget(value, "init")
    local args
    if type(value) == "table" and not constructor then args = "()" end
    if constructor and not (block and block.overload) then
      args = annotations.args_of(constructor)
    elseif prefix:sub(-1) == ":" and block and block.args and not (block.name or ""):find ":" then
      args = block.args:gsub("^%([%w_]+,? ?", "(") -- the object comes before the colon
    end
    if type(value) == "function" or constructor ~= false and constructor ~= nil or (type(value) == "table" and block) then
      list[#list + 1] = entry(prefix .. name, section, value, block, args)
    end
  end
end

--- Methods of objects that only a file knows: what it defines as "Class:name".
local function methods_of(list, section, prefix, class, file)
  for _, block in ipairs(annotations.of(path_of(file))) do
    local name = block.name and block.name:match("^" .. class .. "[:.]([%w_]+)$")
    if name then
      local args = block.type and args_of_type(block.type)
      list[#list + 1] = entry(prefix .. name, section, nil, block, args and args:gsub("^%(self,? ?", "("))
    end
  end
end

local NN_FILES = {}
for _, file in ipairs { "linear", "norm", "activation", "container", "window", "attention", "recurrent", "module" } do
  NN_FILES[#NN_FILES + 1] = "perilune.nn." .. file
end

local function collect()
  local perilune = require "perilune"
  local engine, tensor = require "perilune.engine", require "perilune.tensor"
  local is_op, list = {}, {}
  for _, row in ipairs(core.ops.rows) do is_op[core.ops[row.name]] = true end
  local function skip_ops(_, value) return is_op[value] or type(value) ~= "function" end
  functions(list, "Engines", "perilune.", { engine = perilune.engine, engines = perilune.engines, is_engine = perilune.is_engine })
  functions(list, "Engines", "eng:", engine.methods, nil, function(name, value) return skip_ops(name, value) or name == "tensor" or name == "param"
    or name == "persistent" or name == "reason" or name == "no_grad" or name == "recording" or name == "capture" end)
  for _, name in ipairs { "kind", "arena" } do list[#list + 1] = entry("eng." .. name, "Engines", nil, native("eng." .. name, "field")) end
  for _, name in ipairs { "tensor", "persistent", "param" } do functions(list, "Making tensors", "eng:", { [name] = engine.methods[name] }) end
  local rows = {}
  for _, row in ipairs(core.ops.rows) do
    if not row.internal then rows[#rows + 1] = row end
  end
  table.sort(rows, function(a, b) return a.name < b.name end)
  for _, row in ipairs(rows) do
    if row.create then list[#list + 1] = op_entry(row) end
  end
  local gradient = { backward = true, detach = true, requires_grad = true }
  functions(list, "Tensors", "x:", tensor.methods, nil, function(name, value) return skip_ops(name, value) or gradient[name] end)
  functions(list, "Tensors", "perilune.", { is_tensor = perilune.is_tensor })
  for _, name in ipairs { "shape", "dtype", "ndim", "engine", "home" } do list[#list + 1] = entry("x." .. name, "Tensors", nil, native("x." .. name, "field")) end
  for _, row in ipairs(rows) do
    if not row.create then list[#list + 1] = op_entry(row) end
  end
  functions(list, "Gradients", "x:", { backward = tensor.methods.backward, detach = tensor.methods.detach, requires_grad = tensor.methods.requires_grad })
  list[#list + 1] = entry("x.grad", "Gradients", nil, native("x.grad", "field"))
  functions(list, "Gradients", "eng:", { no_grad = engine.methods.no_grad, recording = engine.methods.recording })
  functions(list, "Gradients", "perilune.", { grad = perilune.grad, op = perilune.op, checkpoint = perilune.checkpoint })
  functions(list, "Captured steps", "eng:", { capture = engine.methods.capture })
  for _, name in ipairs { "replay", "release", "stats", "is_valid" } do
    functions(list, "Captured steps", "step:", { [name] = core.capture[name] })
  end
  functions(list, "Layers", "nn.", perilune.nn, NN_FILES, function(name) return name == "loss" or name == "init" end)
  functions(list, "Layers", "module:", require("perilune.nn.module").Module)
  functions(list, "Losses", "nn.loss.", perilune.nn.loss)
  functions(list, "First values", "nn.init.", perilune.nn.init)
  functions(list, "Optimizers", "optim.", perilune.optim, { "perilune.optim" })
  methods_of(list, "Optimizers", "optimizer:", "Optimizer", "perilune.optim")
  methods_of(list, "Optimizers", "schedule:", "Schedule", "perilune.optim")
  functions(list, "Data and files", "data.", perilune.data)
  for _, part in ipairs { "npy", "safetensors", "checkpoint" } do functions(list, "Data and files", "data." .. part .. ".", perilune.data[part]) end
  methods_of(list, "Data and files", "batches:", "Batches", "perilune.data.batches")
  methods_of(list, "Data and files", "vocabulary:", "Vocabulary", "perilune.data.text")
  for _, part in ipairs { "plot", "progress" } do
    local ok, value = pcall(require, "perilune." .. part)
    if ok and type(value) == "table" then functions(list, "Plots and progress", part .. ".", value, { "perilune." .. part }) end
    local call = ok and getmetatable(value) and getmetatable(value).__call
    if call then
      local block = annotations.of_function(call)
      list[#list + 1] = entry("perilune." .. part, "Plots and progress", call, block, block.args:gsub("^%(_, ", "("))
    end
  end
  for _, name in ipairs { "parity", "gradcheck", "oracle", "redproof" } do functions(list, "Harnesses", name .. ".", require("perilune." .. name)) end
  functions(list, "Tools", "perilune.", { on_report = perilune.on_report, clock = perilune.clock })
  for _, name in ipairs { "blocks", "check", "alloc" } do functions(list, "Tools", "arena:", { [name] = core.arena[name] }) end
  return list
end

local all

--- Every entry, in the order of the reference.
---@return perilune.Entry[]
function reference.entries()
  all = all or collect()
  return all
end

--- A call of an op that runs as it stands where `eng` is an engine; nil for what is no op.
---@param e perilune.Entry
---@return string?
function reference.example(e) return e.row and example_of(e.row) end

local function last_name(name) return name:match "([%w_]+)%s*$" end

--- The entries for a name: "matmul", "x:sum", "perilune.nn.Linear", "Linear".
---@param name string
---@return perilune.Entry[]
function reference.find(name)
  local found = {}
  local short = name:gsub("^perilune%.", "")
  for _, e in ipairs(reference.entries()) do
    if e.name == name or e.name == short or e.name:gsub("^perilune%.", "") == short then found[#found + 1] = e end
  end
  if #found > 0 then return found end
  local last = last_name(name)
  for _, e in ipairs(reference.entries()) do
    if last and last_name(e.name) == last then found[#found + 1] = e end
  end
  return found
end

local function wrapped(text, indent, width)
  local lines = {}
  for paragraph in (text .. "\n"):gmatch "(.-)\n" do
    local line = ""
    for word in paragraph:gmatch "%S+" do
      if #line > 0 and #indent + #line + 1 + #word > width then
        lines[#lines + 1] = indent .. line
        line = word
      else
        line = line == "" and word or line .. " " .. word
      end
    end
    if line ~= "" then lines[#lines + 1] = indent .. line end
  end
  return table.concat(lines, "\n")
end

--- An entry as text.
---@param e perilune.Entry
---@param width? integer
---@return string
function reference.text(e, width)
  width = width or 80
  local out = { table.concat(e.forms, "\n") }
  if e.doc ~= "" then out[#out + 1] = wrapped(e.doc, "  ", width) end
  local longest = 0
  for _, p in ipairs(e.params) do longest = math.max(longest, #p.name) end
  for _, p in ipairs(e.params) do
    out[#out + 1] = ("  %-" .. longest .. "s  %s%s"):format(p.name, p.type:gsub("perilune%.", ""), p.text ~= "" and "  " .. p.text or "")
  end
  if #e.returns > 0 then out[#out + 1] = "  returns " .. table.concat(e.returns, ", "):gsub("perilune%.", "") end
  if e.note then out[#out + 1] = wrapped(e.note, "  ", width) end
  local example = reference.example(e)
  if example then out[#out + 1] = "  for example: " .. example end
  return table.concat(out, "\n")
end

local GENERAL = [[
? NAME     what a function, op, method or part does ?? WORD what speaks of it
$ COMMAND  runs a program                           who()   your globals
_, _1, _2  values of the last line that had any     ;       hides values
Tab completes, Ctrl-C stops a loop or a long op, Ctrl-D ends.
eng is an engine, perilune the library: x = eng:rand { 2, 3 }; x:matmul(x:t())]]

--- Entries that a test passes, one a line that ends at the terminal's edge.
local function listed(test)
  local lines, room = {}, math.max(20, require("perilune.terminal").size() - 27)
  for _, e in ipairs(reference.entries()) do
    if test(e) then lines[#lines + 1] = ("%-26s %s"):format(e.name, #e.doc > room and e.doc:sub(1, room - 3) .. "..." or e.doc) end
  end
  return #lines > 0 and table.concat(lines, "\n") or nil
end

--- What is in a part of the library or an object: "nn", "perilune.nn", "eng"; nil where it is neither.
local function members(name)
  local prefix = name:match "^perilune%.(.+)$" or name
  return listed(function(e) return e.name:sub(1, #prefix) == prefix and e.name:match("^[.:]", #prefix + 1) end)
end

--- What `? name` prints: what is known of it, or what it holds. Names of the user's own functions are looked up where they are written.
---@param name string
---@param globals? table
---@return string
function reference.help(name, globals)
  if name == "" then return GENERAL end
  local found, parts = reference.find(name), {}
  local width = (require("perilune.terminal").size())
  for i, e in ipairs(found) do parts[i] = reference.text(e, width) end
  if #found > 0 then return table.concat(parts, "\n\n") end
  local value = globals and rawget(globals, name)
  local block = type(value) == "function" and annotations.of_function(value)
  if block then return reference.text(entry(name, "", value, block), width) end
  local inside = members(name)
  if inside then return inside end
  local names = {}
  for _, e in ipairs(reference.entries()) do names[last_name(e.name)] = true end
  return ("nothing is known of '%s'%s; ?? %s searches"):format(name, suggest(last_name(name) or name, names), name)
end

--- What `?? word` prints: the entries that speak of it, one a line.
---@param word string
---@return string
function reference.search(word)
  local needle = word:lower()
  local found = word ~= "" and listed(function(e) return (e.name .. " " .. e.doc .. " " .. (e.note or "")):lower():find(needle, 1, true) end)
  return found or ("nothing speaks of '%s'"):format(word)
end

return reference
