-- SPDX-License-Identifier: MIT
-- annotations: the comments of a Lua file as data: for each line that defines something, the `---` lines above it in LuaLS's form.

local annotations = {}

---@class perilune.Annotation
---@field path string
---@field line integer  of the definition
---@field name? string  as it is defined there: "engine.open", "Module:parameters", "Linear"
---@field args? string  as written: "(spec)"
---@field doc string
---@field params { name: string, type: string, text: string }[]
---@field returns string[]
---@field fields { name: string, type: string, text: string }[]
---@field classes string[]  names of the classes that it is about
---@field type? string
---@field overload? string

local HEADERS = {
  "^%s*local%s+function%s+([%w_]+)%s*(%b())",
  "^%s*function%s+([%w_%.:]+)%s*(%b())",
  "^%s*local%s+([%w_]+)%s*=%s*function%s*(%b())",
  "^%s*([%w_%.]+)%s*=%s*function%s*(%b())",
  "^%s*return%s+function()%s*(%b())",
  "^%s*local%s+([%w_]+)%s*=()",
  "^%s*([%w_%.]+)%s*=()",
}

local function header(line)
  for _, pattern in ipairs(HEADERS) do
    local name, args = line:match(pattern)
    if name then return type(name) == "string" and name or nil, type(args) == "string" and args or nil end
  end
  return nil
end

--- A type at the start of a text, and the rest: brackets keep blanks together.
local function type_of(text)
  local depth, i = 0, 1
  while i <= #text do
    local c = text:sub(i, i)
    if c:match "[%(%[{<]" then depth = depth + 1 elseif c:match "[%)%]}>]" then depth = depth - 1 end
    if depth == 0 and c:match "%s" and not text:sub(1, i - 1):match "[:|,]$" and not text:sub(i):match "^%s*[|:]" then break end
    i = i + 1
  end
  return text:sub(1, i - 1), text:sub(i):match "^%s*(.-)%s*$"
end

local function new(path) return { path = path, doc = "", params = {}, returns = {}, fields = {}, classes = {} } end

local function tag(block, name, text)
  if name == "param" or name == "field" then
    local key, rest = text:match "^(%S+)%s+(.*)$"
    if not key then return end
    local kind, words = type_of(rest)
    local list = name == "param" and block.params or block.fields
    list[#list + 1] = { name = key, type = kind, text = words }
  elseif name == "return" then
    block.returns[#block.returns + 1] = text
  elseif name == "vararg" then
    block.params[#block.params + 1] = { name = "...", type = (type_of(text)), text = "" }
  elseif name == "class" then
    block.classes[#block.classes + 1] = text:match "[%w_]+%f[%s:%z]"
  elseif name == "type" or name == "overload" then
    block[name] = text
  end
end

--- All definitions of a file that have `---` lines right above them.
---@param path string
---@return perilune.Annotation[]
function annotations.of_text(path, text)
  local list, block, number, fenced = {}, nil, 0, false
  for line in (text .. "\n"):gmatch "(.-)\n" do
    number = number + 1
    local comment = line:match "^%s*%-%-%-(.*)$"
    if comment and not comment:match "^%-" then
      block = block or new(path)
      local name, rest = comment:match "^@(%a+)%s*(.*)$"
      if name then
        tag(block, name, rest)
      else
        local words = fenced and comment:gsub("^ ", "") or comment:match "^%s*(.-)%s*$"
        if comment:match "^%s*```" then fenced = not fenced end
        block.doc = block.doc == "" and words or block.doc .. ((fenced or words:match "^```") and "\n" or " ") .. words
      end
    else
      if block and line:match "%S" then
        block.line = number
        block.name, block.args = header(line)
        list[#list + 1] = block
      end
      block, fenced = nil, false
    end
  end
  return list
end

local cache = {}

---@param path string
---@return perilune.Annotation[]
function annotations.of(path)
  if not cache[path] then
    local file = io.open(path)
    cache[path] = file and annotations.of_text(path, file:read "*a") or {}
    if file then file:close() end
  end
  return cache[path]
end

--- The arguments of a Lua function as they are written; nil where its source is not a file.
---@param fn function
---@return string?
function annotations.args_of(fn)
  local info = debug.getinfo(fn, "S")
  local file = info.source:sub(1, 1) == "@" and io.open(info.source:sub(2))
  if not file then return nil end
  local number, args = 0, nil
  for line in file:lines() do
    number = number + 1
    if number == info.linedefined then args = line:match "function[^(]*(%b())" end
  end
  file:close()
  return args
end

--- What is said about a Lua function where it is written; nil for one that was not read from a file, or has no comment.
---@param fn function
---@return perilune.Annotation?
function annotations.of_function(fn)
  local info = debug.getinfo(fn, "S")
  if info.source:sub(1, 1) ~= "@" then return nil end
  for _, block in ipairs(annotations.of(info.source:sub(2))) do
    if block.line == info.linedefined then return block end
  end
  return nil
end

--- The definition in a file whose name, or a class of it, ends in `name`: "SGD" of optim.SGD.
---@param path string
---@param name string
---@return perilune.Annotation?
function annotations.named(path, name)
  for _, block in ipairs(annotations.of(path)) do
    if block.name and block.name:match "[%w_]+$" == name then return block end
    for _, class in ipairs(block.classes) do
      if class == name then return block end
    end
  end
  return nil
end

return annotations
