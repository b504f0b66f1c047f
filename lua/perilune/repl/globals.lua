-- SPDX-License-Identifier: MIT
-- globals: the table of globals as the command gives it to the user: `perilune` and `eng`; who(); strict
-- mode. Invariant: nothing here is seen by a script that does not ask for it.

local core = require "perilune.core"
local engine = require "perilune.engine"
local suggest = require "perilune.suggest"

local T = core.tensor
local globals = {}

local PREFERRED = { "cuda", "cpu" }

--- The kind of the best engine that this machine has: PERILUNE_ENGINE, or a GPU, or the CPU.
---@return string
function globals.best_kind()
  local asked = os.getenv "PERILUNE_ENGINE"
  if asked then return asked end
  for _, kind in ipairs(PREFERRED) do
    if not core.engine.reason(kind) then return kind end
  end
  error "perilune: no engine is available"
end

local meta = { lazy = {} } -- lazy: names that get their value when they are first asked for
local declared = {}

local function resolve(t, name)
  local make = meta.lazy[name]
  if not make then return nil end
  meta.lazy[name] = nil
  local value = make()
  rawset(t, name, value)
  return value
end

function meta.__index(t, name)
  local value = resolve(t, name)
  if value ~= nil or not meta.strict or declared[name] then return value end
  local info = debug.getinfo(2, "S")
  if not info or info.what == "C" then return nil end -- rawget by another name: tools look
  error(("there is no global '%s'"):format(tostring(name)) .. suggest(tostring(name), t, meta.lazy), 2)
end

function meta.__newindex(t, name, value)
  meta.lazy[name] = nil
  if meta.strict and not declared[name] then
    local info = debug.getinfo(2, "S")
    if info and info.what ~= "main" and info.what ~= "C" then
      error(("a function sets global '%s', which does not exist: 'local' is missing, or set it first in the main chunk"):format(tostring(name)), 2)
    end
  end
  declared[name] = true
  rawset(t, name, value)
end

local function install()
  local before = debug.getmetatable(_G)
  if before ~= nil and before ~= meta then error("perilune: the table of globals has a metatable already", 0) end
  debug.setmetatable(_G, meta)
end

--- Reading a global that does not exist is an error, and so is setting a new one in a function. What main chunks set exists.
function globals.strict()
  install()
  meta.strict = true
end

local own = {} -- names that were there at the start

local SIZES = { "B", "KiB", "MiB", "GiB" }

local function size_text(bytes)
  local unit = 1
  while bytes >= 1024 and unit < #SIZES do bytes, unit = bytes / 1024, unit + 1 end
  return (unit == 1 and "%d %s" or "%.1f %s"):format(bytes, SIZES[unit])
end

local WIDTHS = { f64 = 8, i64 = 8, f32 = 4, i32 = 4, bool = 1, u8 = 1, i8 = 1, f16 = 2, bf16 = 2, i16 = 2 }

local function describe(value)
  if T.is_tensor(value) then
    if not T.is_valid(value) then return "tensor", "no longer valid" end
    local footer = require("perilune.format").footer(value)
    return "tensor", ("%s, %s"):format(footer:sub(2, -2):gsub("tensor ", ""), size_text(T.numel(value) * WIDTHS[T.dtype(value)]))
  elseif engine.is_engine(value) then
    return "engine", tostring(value):gsub("^engine ", "")
  elseif type(value) == "table" then
    local m = debug.getmetatable(value)
    if m and rawget(m, "__tostring") then return "table", (tostring(value):match "^[^\n]*") end
    local count = 0
    for _ in next, value do count = count + 1 end
    return "table", ("%d entr%s"):format(count, count == 1 and "y" or "ies")
  elseif type(value) == "function" then
    local info = debug.getinfo(value, "S")
    return "function", info.what == "C" and "built in" or ("%s:%d"):format(info.short_src, info.linedefined)
  end
  local text = tostring(value):gsub("%c", " ")
  return type(value), #text > 60 and text:sub(1, 57) .. "..." or text
end

--- The globals that the user made, with what they are; as text, one a line.
---@return string
function globals.who()
  local names, width = {}, 0
  for name in next, _G do
    if type(name) == "string" and not own[name] and not name:match "^_%d*$" then
      names[#names + 1] = name
      width = math.max(width, #name)
    end
  end
  table.sort(names)
  local lines = {}
  for i, name in ipairs(names) do
    local kind, what = describe(rawget(_G, name))
    lines[i] = ("%-" .. width .. "s  %-8s  %s"):format(name, kind, what)
  end
  return table.concat(lines, "\n")
end

--- Gives the user `perilune`, `eng` (opened when it is first asked for: waking a GPU takes long) and who().
---@param show fun(text: string)
function globals.interactive(perilune, show)
  install()
  rawset(_G, "perilune", perilune)
  meta.lazy.eng = function() return engine.open(globals.best_kind()) end
  rawset(_G, "who", function()
    local text = globals.who()
    if text ~= "" then show(text) end
  end)
  for name in next, _G do own[name] = true end
end

--- The value of a global that was asked for already, without making it.
function globals.peek(name) return rawget(_G, name) end

return globals
