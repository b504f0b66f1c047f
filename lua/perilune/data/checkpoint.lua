-- SPDX-License-Identifier: MIT
-- checkpoint: everything that a training goes on from, in one safetensors file. Its tensors are named PART.NAME; numbers, texts and the engine's
-- random numbers lie in the metadata as JSON. A load checks all of the file first: it changes everything or nothing.
--
--   local parts = { model = model, optimizer = opt, schedule = schedule, loader = loader, engine = eng, progress = { step = 0 } }
--   data.checkpoint.save("run.ckpt", parts)
--   data.checkpoint.load("run.ckpt", parts)     -- goes on bit for bit

local core = require "perilune.core"
local caller = require "perilune.caller"
local engine = require "perilune.engine"
local json = require "perilune.json"
local safetensors = require "perilune.data.safetensors"
local check = require "perilune.nn.check"

local T = core.tensor
local fail = caller.fail
local checkpoint = {}

local KEY = "perilune.checkpoint"

-- Plain values as JSON, so that just what was saved comes back. JSON has neither infinities nor NaN and perilune.json has texts for them,
-- and it takes a table with `n` for a list: texts and keys that would be taken for something else get a "'" in front. A list that has
-- names as well is an object of these, with its elements under "'list".

local SPECIAL = { nan = true, inf = true, ["-inf"] = true, n = true }
local LIST = "'list"

local function quoted(text) return (SPECIAL[text] or text:sub(1, 1) == "'") and "'" .. text or text end

local function unquoted(text) return text:sub(1, 1) == "'" and text:sub(2) or text end

--- A copy of a value for json.encode. `path` names it in messages, `within` holds the tables around it.
local function pack(value, path, within)
  local kind = type(value)
  if kind == "string" then return quoted(value) end
  if kind == "number" or kind == "boolean" then return value end
  if kind ~= "table" then fail("checkpoint: '%s' is a %s, which no file can hold", path, T.is_tensor(value) and "tensor within a table" or kind) end
  if within[value] then fail("checkpoint: '%s' is a table within itself", path) end
  within[value] = true
  local list, named, count = { n = 0 }, {}, 0
  for i, item in ipairs(value) do list[i], list.n = pack(item, path .. "." .. i, within), i end
  for key, item in pairs(value) do
    if type(key) == "string" then
      named[quoted(key)] = pack(item, path .. "." .. key, within)
    else
      count = count + 1
      if type(key) ~= "number" then fail("checkpoint: '%s' has a %s as a key: keys are names or count from 1", path, type(key)) end
    end
  end
  if count > list.n then fail("checkpoint: '%s' has no element %d, but others: numbers as keys count from 1", path, list.n + 1) end
  within[value] = nil
  if next(named) == nil and list.n > 0 then return list end
  if list.n > 0 then named[LIST] = list end
  return named
end

--- The reverse of pack.
local function unpacked(value)
  if type(value) == "string" then return unquoted(value) end
  if type(value) ~= "table" then return value end
  local out = {}
  for i, item in ipairs(value[LIST] or value) do out[i] = unpacked(item) end
  for key, item in pairs(value) do -- "n" is the length of a list, a name "n" is quoted
    if type(key) == "string" and key ~= LIST and key ~= "n" then out[unquoted(key)] = unpacked(item) end
  end
  return out
end

--- What a part holds: tensors by name, and plain values by name.
local function contents(name, part)
  if engine.is_engine(part) then return {}, { rng = part:rng() } end
  if type(part) ~= "table" then fail("checkpoint: part '%s' is a %s, not an engine or a table", name, type(part)) end
  local tensors, values = {}, {}
  for key, value in pairs(type(part.state) == "function" and part:state() or part) do
    if T.is_tensor(value) then tensors[tostring(key)] = value else values[key] = value end
  end
  return tensors, values
end

local function engine_of(parts)
  for _, part in pairs(parts) do
    if engine.is_engine(part) then return part end
  end
  for name, part in pairs(parts) do
    for _, t in pairs((contents(name, part))) do return T.engine(t) end
  end
  fail "checkpoint: none of the parts has an engine"
end

local function checked(parts)
  if type(parts) ~= "table" or next(parts) == nil then fail("checkpoint: a table of parts by name was expected, got %s", type(parts)) end
  for name in pairs(parts) do
    if type(name) ~= "string" or name:find("[^%w_-]") then fail("checkpoint: %q is no name for a part", tostring(name)) end
  end
end

--- Writes the parts: modules, optimizers, schedules, loaders (whatever has state and load), engines (their random numbers) and tables of plain values.
---@param path string
---@param parts table<string, any>
function checkpoint.save(path, parts)
  checked(parts)
  local tensors, plain = {}, {}
  for name, part in pairs(parts) do
    local own, values = contents(name, part)
    for key, t in pairs(own) do tensors[name .. "." .. key] = t end
    plain[quoted(name)] = pack(values, name, {})
  end
  safetensors.save(path, tensors, { [KEY] = json.encode(plain) })
end

--- Fails with all that differs, in the order of names.
local function compare(path, name, own, given)
  local wrong = {}
  for key, t in pairs(own) do
    local g = given[key]
    local want, got = ("%s %s"):format(T.dtype(t), check.shape_text(T.shape(t))), nil
    if g then got = ("%s %s"):format(T.dtype(g), check.shape_text(T.shape(g))) end
    if not g then
      wrong[#wrong + 1] = ("'%s.%s' is missing"):format(name, key)
    elseif want ~= got then
      wrong[#wrong + 1] = ("'%s.%s' is %s, expected %s"):format(name, key, got, want)
    end
  end
  for key in pairs(given) do
    if not own[key] then wrong[#wrong + 1] = ("'%s.%s' is not known here"):format(name, key) end
  end
  table.sort(wrong)
  if wrong[1] then fail("checkpoint: %s: %s", path, table.concat(wrong, "; ")) end
end

--- Gives a part its plain values.
local function put(part, values)
  if engine.is_engine(part) then
    part:rng { values.rng[1], values.rng[2] }
  elseif type(part.load) == "function" then
    if next(values) then part:load(values) end
  else
    for key in pairs(part) do
      if not T.is_tensor(part[key]) then part[key] = nil end
    end
    for key, value in pairs(values) do part[key] = value end
  end
end

--- Reads what `save` wrote for the same parts and makes them go on from there. Tables of plain values get the file's.
---@param path string
---@param parts table<string, any>
function checkpoint.load(path, parts)
  checked(parts)
  local tensors, metadata = safetensors.load(engine_of(parts), path)
  if not metadata[KEY] then fail("checkpoint: %s is no checkpoint: its metadata lack '%s'", path, KEY) end
  local ok, plain = pcall(function() return unpacked(json.decode(metadata[KEY])) end)
  if not ok or type(plain) ~= "table" then fail("checkpoint: %s: '%s' in the metadata is no JSON", path, KEY) end
  local by_part = {}
  for name in pairs(plain) do
    if parts[name] == nil then fail("checkpoint: %s also holds '%s', which was not asked for", path, name) end
  end
  for full, t in pairs(tensors) do
    local name, key = full:match "^([^.]+)%.(.*)$"
    by_part[name or full] = by_part[name or full] or {}
    by_part[name or full][key or ""] = t
  end
  for name, part in pairs(parts) do
    if not plain[name] then fail("checkpoint: %s holds no '%s'", path, name) end
    local own = contents(name, part)
    compare(path, name, own, by_part[name] or {})
  end
  local before = {}
  for name, part in pairs(parts) do
    before[name] = select(2, contents(name, part))
    local fine, message = pcall(put, part, plain[name])
    if not fine then
      for undone, old in pairs(before) do put(parts[undone], old) end
      fail("checkpoint: %s: '%s' was not taken: %s", path, name, (tostring(message):gsub("^[^:]+:%d+: ", "")))
    end
  end
  for name, part in pairs(parts) do
    for key, t in pairs((contents(name, part))) do T.set_bytes(t, T.bytes(by_part[name][key])) end
  end
end

return checkpoint
