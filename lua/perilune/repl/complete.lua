-- SPDX-License-Identifier: MIT
-- complete: what may follow what was typed: globals, fields, methods (of tensors, engines, modules and strings), file names in a string, modules in
-- require's. Values are looked at, never called: no metamethod runs but those known to do nothing.

local core = require "perilune.core"
local engine = require "perilune.engine"
local scan = require "perilune.repl.scan"
local tensor = require "perilune.tensor"

local KEYWORDS = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true until while"):gmatch "%a+" do
  KEYWORDS[word] = true
end

local function sorted(set)
  local list = {}
  for name in pairs(set) do list[#list + 1] = name end
  table.sort(list)
  return list
end

local function add(set, names)
  for name in pairs(names) do
    if type(name) == "string" and name:match "^[%a_][%w_]*$" then set[name] = true end
  end
end

--- The tables in which a value's fields are found: its own and those of its __index chain.
local function tables_of(value)
  local list = {}
  for _ = 1, 16 do
    if core.tensor.is_tensor(value) then
      list[#list + 1] = tensor.methods
      list[#list + 1] = tensor.fields
      break
    elseif engine.is_engine(value) then
      list[#list + 1] = engine.methods
      break
    end
    if type(value) == "table" then list[#list + 1] = value end
    local meta = debug.getmetatable(value)
    local index = type(meta) == "table" and rawget(meta, "__index")
    if type(index) ~= "table" then break end
    value = index
  end
  return list
end

--- The field of a value without calling anything; fields of tensors that are values too.
local function field(value, key)
  if core.tensor.is_tensor(value) and tensor.fields[key] then return value[key] end
  for _, t in ipairs(tables_of(value)) do
    local found = rawget(t, key)
    if found ~= nil then return found end
  end
  local meta = debug.getmetatable(value)
  if value == package.loaded.perilune or value == _G then
    local index = meta and meta.lazy -- parts that are loaded when they are first asked for
    if index and index[key] then return value[key] end
  end
  return nil
end

--- The value of "a.b[1].c", nil where it is not known without a call.
local function value_of(path, globals)
  local name, rest = path:match "^([%a_][%w_]*)(.*)$"
  if not name then
    if path:match "^[\"']" then return "" end
    return nil
  end
  local value = field(globals, name)
  while value ~= nil and rest ~= "" do
    local key, behind = rest:match "^%.([%a_][%w_]*)(.*)$"
    if not key then
      key, behind = rest:match "^%[(%-?%d+)%](.*)$"
      key = tonumber(key)
      if not key then key, behind = rest:match "^%[[\"']([^\"'%]]*)[\"']%](.*)$" end
    end
    if key == nil then return nil end
    if type(key) == "number" and type(value) ~= "table" then return nil end
    value, rest = field(value, key), behind
  end
  return value
end

local function starting(set, prefix)
  local list = {}
  for _, name in ipairs(sorted(set)) do
    if name:sub(1, #prefix) == prefix then list[#list + 1] = name end
  end
  return list
end

--- Names of files that begin like `path`; folders end in "/".
local function files(path)
  local folder, prefix = path:match "^(.*/)([^/]*)$"
  if not folder then folder, prefix = "", path end
  local where = folder:gsub("^~/", (os.getenv "HOME" or "~") .. "/")
  local pipe = io.popen(("ls -1ap -- '%s' 2>/dev/null"):format((where == "" and "." or where):gsub("'", "'\\''")))
  local set = {}
  for name in pipe:lines() do
    if name ~= "./" and name ~= "../" and (name:sub(1, 1) ~= "." or prefix:sub(1, 1) == ".") then set[folder .. name] = true end
  end
  pipe:close()
  return starting(set, folder .. prefix)
end

--- Lua modules on package.path that begin like `name`.
local function modules(name)
  local folder, prefix = name:match "^(.*%.)([^.]*)$"
  if not folder then folder, prefix = "", name end
  local set = {}
  for loaded in pairs(package.loaded) do
    if loaded:sub(1, #folder) == folder then set[folder .. loaded:sub(#folder + 1):match "^[^.]*"] = true end
  end
  for root in package.path:gmatch "([^;]*)%?%.lua" do
    for _, found in ipairs(files(root .. folder:gsub("%.", "/"))) do
      local base = found:match "([^/]+)%.lua$" or found:match "([^/]+)/$"
      if base and base:match "^[%w_]+$" then set[folder .. base] = true end
    end
  end
  return starting(set, folder .. prefix)
end

local complete = {}

--- Candidates for the token that ends the line, whole, where the token begins (from 1), and what follows a single one.
---@param line string  up to the cursor
---@param globals? table  _G if absent
---@return string[] candidates, integer first, string? append
function complete.candidates(line, globals)
  globals = globals or _G
  local shell = line:match "^%s*%$"
  local state, inside = scan(line)
  if shell then
    local path = line:match "[^%s]*$"
    return files(path), #line - #path + 1
  elseif state == "string" then
    local text = line:sub(inside)
    if line:sub(1, inside - 2):match "require%s*%(?%s*$" then return modules(text), inside, line:sub(inside - 1, inside - 1) end
    return files(text), inside
  elseif state == "comment" then
    return {}, #line + 1
  end
  local help = line:match "^%s*%?%s*([^?].*)$" or line:match "^%s*%?%s*$" and ""
  if help then
    local set = {}
    for _, entry in ipairs(require("perilune.reference").entries()) do set[entry.name] = true end
    return starting(set, help), #line - #help + 1
  end
  local before, word = line:match "^(.-)([%a_]?[%w_]*)$"
  local first = #before + 1
  local path, separator = before:match "([%w_%.%[%]\"']+)([.:])$"
  local set = {}
  if not separator then
    if before:match "[.:]$" and not before:match "%.%.$" then return {}, first end
    add(set, globals)
    local meta = debug.getmetatable(globals)
    add(set, meta and meta.lazy or {})
    add(set, KEYWORDS)
    return starting(set, word), first
  end
  local value = value_of(path, globals)
  if value == nil then return {}, first end
  for _, t in ipairs(tables_of(value)) do
    if separator == "." then
      add(set, t)
    else
      for name, item in pairs(t) do -- after ":" what can be called
        if type(item) == "function" and t ~= tensor.fields then add(set, { [name] = true }) end
      end
    end
  end
  local meta = debug.getmetatable(value)
  if separator == "." and type(meta) == "table" and meta.lazy then add(set, meta.lazy) end
  return starting(set, word), first
end

--- The same for the editor: candidates without what lies before byte `from` (counted from 0).
---@param line string
---@param from integer
function complete.for_editor(line, from)
  local list, first, append = complete.candidates(line)
  local cut = from - first + 1
  for i, candidate in ipairs(list) do list[i] = candidate:sub(cut + 1) end
  return list, append
end

return complete
