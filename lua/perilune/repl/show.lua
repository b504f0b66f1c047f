-- SPDX-License-Identifier: MIT
-- show: a value as the REPL prints it. Tensors as tostring has them; tables with sorted keys, as deep as fits, each table once; a tensor in a table is
-- shown whole under its key if it is small, else by what it is. Bounded: a table of a million entries prints as fast as one of a hundred.

local core = require "perilune.core"
local format = require "perilune.format"

local T = core.tensor

local MOST_ENTRIES = 100 -- of one table
local MOST_LINES = 1000  -- of one value
local DEPTH = 5
local SMALL = 64         -- elements of a tensor that is shown whole inside a table

local COLORS = { string = "32", number = "36", boolean = "35", ["nil"] = "2", key = "34", note = "2" }

local Writer = {}
Writer.__index = Writer

function Writer:paint(kind, text)
  local code = self.color and COLORS[kind]
  return code and ("\27[%sm%s\27[0m"):format(code, text) or text
end

local function quoted(s)
  if #s > 200 then s = s:sub(1, 200) .. ("... (%d bytes)"):format(#s) end
  return (("%q"):format(s):gsub("\\\n", "\\n"):gsub("%c", function(c) return ("\\%d"):format(c:byte()) end))
end

local function place_of(fn)
  local info = debug.getinfo(fn, "S")
  return info.what == "C" and "built in" or ("%s:%d"):format(info.short_src, info.linedefined)
end

--- A value on one line, nil for what needs more: tables without __tostring.
function Writer:inline(value, nested)
  local kind = type(value)
  if kind == "string" then return nested and self:paint(kind, quoted(value)) or value end
  if kind == "function" then return ("function: %s"):format(place_of(value)) end
  if kind ~= "table" then return self:paint(kind, tostring(value)) end
  local meta = debug.getmetatable(value)
  if meta and rawget(meta, "__tostring") then return tostring(value) end
  return next(value) == nil and "{}" or nil
end

local ORDER = { number = 1, string = 2, boolean = 3 }

local function before(a, b)
  local x, y = ORDER[type(a)] or 4, ORDER[type(b)] or 4
  if x ~= y then return x < y end
  if x <= 2 then return a < b end
  return tostring(a) < tostring(b)
end

--- The first keys of a table, sorted, and how many there are.
local function keys_of(t)
  local keys, count = {}, 0
  local length = #t
  for i = 1, math.min(length, MOST_ENTRIES) do
    if rawget(t, i) ~= nil then keys[#keys + 1] = i end
  end
  for key in next, t do
    count = count + 1
    local listed = type(key) == "number" and key >= 1 and key <= length and key % 1 == 0
    if not listed and #keys < 4 * MOST_ENTRIES then keys[#keys + 1] = key end
  end
  table.sort(keys, before)
  for i = #keys, MOST_ENTRIES + 1, -1 do keys[i] = nil end
  return keys, count
end

function Writer:key(key)
  if type(key) == "string" and key:match "^[%a_][%w_]*$" then return self:paint("key", key) end
  return ("[%s]"):format(self:inline(key, true) or tostring(key))
end

function Writer:line(indent, text) self.lines[#self.lines + 1] = ("  "):rep(indent) .. text end

--- Several lines under a head.
function Writer:block(indent, head, text)
  if head == "" then indent = indent - 1 else self:line(indent, head) end
  for line in text:gmatch "[^\n]+" do self:line(indent + 1, line) end
end

function Writer:tensor(indent, head, t)
  if not T.is_valid(t) then return self:line(indent, head .. "[tensor that is no longer valid]") end
  if T.numel(t) > SMALL or T.numel(t) == 0 then return self:line(indent, head .. format.footer(t)) end
  local text = format.tensor(t)
  if select(2, text:gsub("\n", "")) == 1 then return self:line(indent, head .. text:gsub("\n", "  ")) end
  self:block(indent, (head:gsub("%s+$", "")), text)
end

--- A table of plain values on one line, if it fits.
function Writer:short(t, indent)
  local parts, used, count = {}, 2 * indent, 0
  for _ in next, t do
    count = count + 1
    if count > 32 then return nil end
  end
  for i, key in ipairs((keys_of(t))) do
    local value = rawget(t, key)
    if type(value) == "table" or type(value) == "function" or T.is_tensor(value) then return nil end
    local plain = setmetatable({}, Writer)
    local head = key == i and "" or plain:key(key) .. " = "
    used = used + #head + #(plain:inline(value, true)) + 2
    if used > self.width - 2 then return nil end
    parts[i] = (key == i and "" or self:key(key) .. " = ") .. self:inline(value, true)
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

function Writer:value(indent, head, value)
  if #self.lines > MOST_LINES then return end
  if T.is_tensor(value) then return self:tensor(indent, head, value) end
  local text = self:inline(value, true)
  if text and text:find "\n" then return self:block(indent, (head:gsub("%s+$", "")), text) end
  if text then return self:line(indent, head .. text) end
  if self.open[value] then return self:line(indent, head .. self:paint("note", "{ this table again }")) end
  text = self:short(value, indent)
  if text then return self:line(indent, head .. text) end
  if indent >= DEPTH then return self:line(indent, head .. self:paint("note", "{ ... }")) end
  self:line(indent, head .. "{")
  self:entries(indent + 1, value)
  self:line(indent, "}")
end

function Writer:entries(indent, t)
  self.open[t] = true
  local keys, count = keys_of(t)
  for i, key in ipairs(keys) do
    self:value(indent, key == i and "" or self:key(key) .. " = ", rawget(t, key))
  end
  if count > #keys then self:line(indent, self:paint("note", ("... and %d more"):format(count - #keys))) end
  self.open[t] = nil
end

--- The text of a value. Options: color, width of the terminal.
---@param value any
---@param options? { color: boolean, width: integer }
---@return string
return function(value, options)
  options = options or {}
  local self = setmetatable({ lines = {}, open = {}, color = options.color, width = options.width or 80 }, Writer)
  if T.is_tensor(value) then return tostring(value) end
  local text = self:inline(value, false)
  if text then return text end
  self:value(0, "", value)
  if #self.lines > MOST_LINES then
    self.lines[MOST_LINES + 1] = self:paint("note", "... cut here")
    for i = #self.lines, MOST_LINES + 2, -1 do self.lines[i] = nil end
  end
  return table.concat(self.lines, "\n")
end
