-- SPDX-License-Identifier: MIT
-- json: writes reports, reads bundles. Tables with `n` or elements from 1 on are arrays, others objects with sorted keys, so that the same
-- report has the same text. JSON has no NaN and no infinities: they are written, and read back, as the strings "nan", "inf" and "-inf".

local json = {}

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\b"] = "\\b", ["\f"] = "\\f" }

local function quoted(s)
  return '"' .. s:gsub('[%c"\\]', function(c) return ESCAPES[c] or ("\\u%04x"):format(c:byte()) end) .. '"'
end

local function number(v)
  if v ~= v then return '"nan"' elseif v == math.huge then return '"inf"' elseif v == -math.huge then return '"-inf"' end
  if v % 1 == 0 and math.abs(v) < 2 ^ 53 and (v ~= 0 or 1 / v > 0) then return ("%d"):format(v) end
  return ("%.17g"):format(v)
end

local function simple(v) return type(v) ~= "table" end

local encode

local function array(list, indent)
  local out, flat = {}, true
  for i = 1, list.n or #list do
    flat = flat and simple(list[i])
    out[i] = encode(list[i], indent .. "  ")
  end
  if #out == 0 then return "[]" end
  if flat then return "[" .. table.concat(out, ", ") .. "]" end
  return "[\n" .. indent .. "  " .. table.concat(out, ",\n" .. indent .. "  ") .. "\n" .. indent .. "]"
end

local function object(map, indent)
  local keys, out = {}, {}
  for k in pairs(map) do keys[#keys + 1] = k end
  table.sort(keys)
  for i, k in ipairs(keys) do out[i] = quoted(k) .. ": " .. encode(map[k], indent .. "  ") end
  if #out == 0 then return "{}" end
  return "{\n" .. indent .. "  " .. table.concat(out, ",\n" .. indent .. "  ") .. "\n" .. indent .. "}"
end

encode = function(v, indent)
  local kind = type(v)
  if kind == "string" then return quoted(v) end
  if kind == "number" then return number(v) end
  if kind == "boolean" then return tostring(v) end
  if kind == "nil" then return "null" end
  if kind ~= "table" then error("json: a " .. kind .. " cannot be written", 0) end
  if v.n or v[1] ~= nil then return array(v, indent) end
  return object(v, indent)
end

--- The text of a value; an empty table is an object, { n = 0 } an empty array.
function json.encode(value) return encode(value, "") end

local NAMED = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }
local UNESCAPED = { n = "\n", r = "\r", t = "\t", b = "\b", f = "\f" }

local function fail(text, at, what) error(("json: %s at character %d (%q)"):format(what, at, text:sub(at, at + 20)), 0) end

local decode
local plain -- whether the text being read comes from elsewhere: "nan" is a string then

--- The character at a \u escape as UTF-8, and where the escape ends; two escapes may be halves of one character.
local function unicode(text, at)
  local code, stop = tonumber(text:match("^\\u(%x%x%x%x)", at), 16), at + 6
  if code >= 0xD800 and code < 0xDC00 then
    local low = tonumber(text:match("^\\u([dD][c-fC-F]%x%x)", stop) or "", 16)
    if not low then fail(text, at, "half a character") end
    code, stop = 0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00, stop + 6
  elseif code >= 0xDC00 and code < 0xE000 then
    fail(text, at, "half a character")
  end
  if code < 0x80 then return string.char(code), stop end
  local tail = ""
  local first = code < 0x800 and 0xC0 or code < 0x10000 and 0xE0 or 0xF0
  for _ = 1, code < 0x800 and 1 or code < 0x10000 and 2 or 3 do
    tail = string.char(0x80 + code % 64) .. tail
    code = math.floor(code / 64)
  end
  return string.char(first + code) .. tail, stop
end

local function skip(text, at) return text:find("[^ \t\r\n]", at) or #text + 1 end

local function string_at(text, at)
  local out, from = {}, at + 1
  while true do
    local stop = text:find('["\\]', from) or fail(text, at, "a string without an end")
    out[#out + 1] = text:sub(from, stop - 1)
    if text:sub(stop, stop) == '"' then return table.concat(out), stop + 1 end
    local c = text:sub(stop + 1, stop + 1)
    if c == "u" then
      if not text:find("^%x%x%x%x", stop + 2) then fail(text, stop, "an escape that is not known") end
      out[#out + 1], from = unicode(text, stop)
    else
      out[#out + 1], from = UNESCAPED[c] or c, stop + 2
    end
  end
end

local function members(text, at, close, one)
  at = skip(text, at + 1)
  if text:sub(at, at) == close then return at + 1 end
  while true do
    at = skip(text, one(at))
    local c = text:sub(at, at)
    if c == close then return at + 1 end
    if c ~= "," then fail(text, at, "',' or '" .. close .. "' is missing") end
    at = skip(text, at + 1)
  end
end

decode = function(text, at)
  at = skip(text, at)
  local c = text:sub(at, at)
  if c == "{" then
    local out = {}
    return out, members(text, at, "}", function(i)
      if text:sub(i, i) ~= '"' then fail(text, i, "a key was expected") end
      local key
      key, i = string_at(text, i)
      if out[key] ~= nil then fail(text, i, ("the key %q for the second time"):format(key)) end
      i = skip(text, i)
      if text:sub(i, i) ~= ":" then fail(text, i, "':' is missing") end
      out[key], i = decode(text, i + 1)
      return i
    end)
  elseif c == "[" then
    local out, n = {}, 0
    local stop = members(text, at, "]", function(i)
      n = n + 1
      out[n], i = decode(text, i)
      return i
    end)
    out.n = n
    return out, stop
  elseif c == '"' then
    local s, stop = string_at(text, at)
    if NAMED[s] and not plain then return NAMED[s], stop end
    return s, stop
  end
  local word = text:match("^[%w%.%+%-]+", at) or fail(text, at, "a value was expected")
  if word == "true" then return true, at + 4 elseif word == "false" then return false, at + 5 elseif word == "null" then return nil, at + 4 end
  return tonumber(word) or fail(text, at, "a value was expected"), at + #word
end

--- The value of a text; arrays have their number of elements as n, null is nil.
---@param text string
---@param foreign? boolean  the text is not one of json.encode: the strings "nan", "inf" and "-inf" stay strings
function json.decode(text, foreign)
  plain = foreign or false
  local value, at = decode(text, 1)
  if skip(text, at) <= #text then fail(text, at, "more text than one value") end
  return value
end

return json
