-- SPDX-License-Identifier: MIT
-- check: what constructors and losses are given, in one wording. All raise at the caller's line and change nothing.

local caller = require "perilune.caller"
local engine = require "perilune.engine"
local suggest = require "perilune.suggest"

local check = {}

local fail = caller.fail

local function shown(value)
  if type(value) == "string" then return ("%q"):format(value) end
  return type(value) == "number" and tostring(value) or type(value)
end

--- The options given over the defaults; one without default has `check.none` there.
---@param what string  who asks, for the message
---@param given? table
---@param defaults table
function check.options(what, given, defaults)
  if given ~= nil and type(given) ~= "table" then fail("%s: options are a table, got %s", what, type(given)) end
  local all = {}
  for key, value in pairs(defaults) do
    if value ~= check.none then all[key] = value end
  end
  for key, value in pairs(given or {}) do
    local default = defaults[key]
    if default == nil then fail("%s: there is no option '%s'%s", what, tostring(key), suggest(tostring(key), defaults)) end
    if default ~= check.none and type(value) ~= type(default) then
      fail("%s: option '%s' is a %s, got %s", what, key, type(default), shown(value))
    end
    all[key] = value
  end
  return all
end

check.none = setmetatable({}, { __tostring = function() return "no default" end })

function check.engine(what, eng)
  if not engine.is_engine(eng) then fail("%s: argument 1 is an engine, got %s", what, shown(eng)) end
end

--- A whole number of at least `least` (1).
function check.count(what, name, value, least)
  least = least or 1
  if type(value) ~= "number" or value % 1 ~= 0 or value < least then
    fail("%s: %s is a whole number of at least %d, got %s", what, name, least, shown(value))
  end
  return value
end

--- n counts, given as a list or as one number for all.
function check.counts(what, name, value, n, least)
  if type(value) ~= "table" then value = { value, value, value, n = n } end
  local list = {}
  for i = 1, n do list[i] = check.count(what, name, value[i], least) end
  return list
end

--- A number with lo <= value < hi.
function check.number(what, name, value, lo, hi)
  if type(value) ~= "number" or not (value >= lo and value < hi) then
    fail("%s: %s is a number from %g to below %g, got %s", what, name, lo, hi, shown(value))
  end
  return value
end

--- One of a list of words.
function check.word(what, name, value, words)
  for _, word in ipairs(words) do
    if value == word then return value end
  end
  fail("%s: %s is one of %s, got %s", what, name, table.concat(words, ", "), shown(value))
end

function check.callable(what, name, value)
  local meta = getmetatable(value)
  if type(value) ~= "function" and not (type(meta) == "table" and meta.__call) then
    fail("%s: %s is a layer or a function, got %s", what, name, shown(value))
  end
end

--- "(2, 3)"
function check.shape_text(shape)
  local list = {}
  for i, size in ipairs(shape) do list[i] = ("%.0f"):format(size) end
  return "(" .. table.concat(list, ", ") .. ")"
end

return check
