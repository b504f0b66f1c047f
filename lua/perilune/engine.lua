-- SPDX-License-Identifier: MIT
-- engine: opens engines and gives them their methods.

local core = require "perilune.core"
local settings = require "perilune.settings"
local suggest = require "perilune.suggest"

-- lines of the files beside this one are nobody's place: errors name the caller's
core.library.home((debug.getinfo(1, "S").source:gsub("engine%.lua$", "")))

local engine = {}

local metatable = core.metatables["perilune.engine"]
local methods = {}
local info = core.engine_info or setmetatable({}, { __mode = "k" }) -- engine -> { kind = }, for all who require this file
core.engine_info = info

local DEFAULT_ARENA = 64 * 1024 * 1024
local UNITS = { [""] = 1, B = 1, K = 1024, KIB = 1024, M = 1024 ^ 2, MIB = 1024 ^ 2, G = 1024 ^ 3, GIB = 1024 ^ 3 }

-- defaults of each kind
local KINDS = {
  cpu = {},
  stress = { arena = true, late = true, poison = true },
  cuda = { arena = true, managed = true, tf32 = true },
  ["cuda-emu"] = { arena = true, managed = true, tf32 = true, poison = true },
}
local OPTIONS = {
  device = "number", arena = true, poison = true, stale = "string", seed = "number", threads = "number", places = "boolean",
  test = "boolean", plans = "boolean", graph_resets = "number", managed = "boolean", tf32 = "boolean",
}

local LEAST = { device = 1, threads = 0, graph_resets = 0 } -- of options that are whole numbers

--- Bytes of "64MiB", "4K" or a number.
local function bytes(value, level)
  if type(value) == "number" then
    if value < 0 or value % 1 ~= 0 then error("arena: a whole number of bytes was expected, got " .. value, level + 1) end
    if value >= 2 ^ 62 then error("arena: fewer than 2^62 bytes were expected, got " .. value, level + 1) end
    return value
  end
  local number, unit = tostring(value):match "^%s*([%d%.]+)%s*(%a*)%s*$"
  local factor = unit and UNITS[unit:upper()]
  if not (tonumber(number) and factor) then
    error(("arena: a size such as \"64MiB\" was expected, got %q"):format(tostring(value)), level + 1)
  end
  return bytes(math.floor(tonumber(number) * factor), level)
end

local EVENTS = { reset = "on_reset", free = "on_free", alloc = "on_alloc" }

--- What eng:poison, the option and PERILUNE_POISON take, as flags.
local function poison_flags(value, level)
  local flags = { on_reset = false, on_free = false, on_alloc = false, word = 0x7FF8, redzone = 0 }
  local function on(event)
    local flag = EVENTS[event]
    if not flag then error(("poison: %q is none of reset, free, alloc"):format(tostring(event)), level + 2) end
    flags[flag] = true
  end
  if value == true or value == "1" then
    on "reset" on "free" on "alloc"
  elseif value == false or value == nil or value == "0" or value == "" then
    return flags
  elseif type(value) == "string" then
    local list = true
    for event in value:gmatch "[^,%s]+" do list = list and EVENTS[event] ~= nil end
    if not list then return poison_flags((settings.load(value, "poison", "PERILUNE_POISONS", level + 1)), level + 1) end
    for event in value:gmatch "[^,%s]+" do on(event) end
  elseif type(value) == "table" then
    for key in pairs(value) do
      if key ~= "on" and key ~= "word" and key ~= "redzone" and key ~= "name" and key ~= "doc" then
        error(("poison: there is no setting %q"):format(tostring(key)) .. suggest(tostring(key), { on = 1, word = 1, redzone = 1 }), level + 1)
      end
    end
    if value.on ~= nil and type(value.on) ~= "table" then
      error("poison: on is a list of reset, free, alloc, got " .. type(value.on), level + 1)
    end
    for _, event in ipairs(value.on or { "reset", "free", "alloc" }) do on(event) end
    flags.word = value.word or flags.word
    if type(flags.word) ~= "number" or flags.word < 0 or flags.word > 0xFFFF or flags.word % 1 ~= 0 then
      error("poison: word is a 16-bit number, got " .. tostring(value.word), level + 1)
    end
    flags.redzone = value.redzone or 0
    if type(flags.redzone) ~= "number" or flags.redzone < 0 or flags.redzone > 65536 or flags.redzone % 1 ~= 0 then
      error("poison: redzone is a number of bytes up to 65536, got " .. tostring(value.redzone), level + 1)
    end
  else
    error("poison: true, false, a list, a table or a setting's name was expected, got " .. type(value), level + 1)
  end
  return flags
end

local function check_options(options, level)
  for key, value in pairs(options) do
    if key ~= 1 then
      local want = OPTIONS[key]
      if not want then
        error(("engine: there is no option %q"):format(tostring(key)) .. suggest(tostring(key), OPTIONS), level + 1)
      end
      if want ~= true and type(value) ~= want then
        error(("engine: option '%s' is a %s, got %s"):format(key, want, type(value)), level + 1)
      end
      local least = LEAST[key]
      if least and not (value >= least and value < 2 ^ 31 and value % 1 == 0) then
        error(("engine: option '%s' is a whole number from %d on, got %s"):format(key, least, tostring(value)), level + 1)
      end
    end
  end
end

local function default(value, otherwise)
  if value == nil then return otherwise end
  return value
end

--- Opens an engine: perilune.engine "cpu", or perilune.engine{ "stress", arena = "1MiB", poison = true, stale = "error", seed = 1 }.
--- Without a kind PERILUNE_ENGINE or "cpu". PERILUNE_ARENA, PERILUNE_POISON and PERILUNE_STALE give defaults. managed = true puts a CUDA device's
--- arena into managed memory; tf32 = true lets its products of f32 round their operands to TF32.
---@param spec? string|table
---@return userdata
function engine.open(spec)
  local options = type(spec) == "table" and spec or { spec }
  if spec ~= nil and type(spec) ~= "string" and type(spec) ~= "table" then
    error("engine: a kind or a table of options was expected, got " .. type(spec), 2)
  end
  check_options(options, 2)
  local name = options[1] or os.getenv "PERILUNE_ENGINE" or "cpu"
  local kind = KINDS[name]
  if not kind then error(("engine: there is no kind %q"):format(tostring(name)) .. suggest(tostring(name), KINDS), 2) end
  local reason = core.engine.reason(name)
  if reason then error(("engine: %s is not available: %s"):format(name, reason), 2) end
  local arena = options.arena
  if arena == nil and kind.arena then arena = os.getenv "PERILUNE_ARENA" or DEFAULT_ARENA end
  if arena == true then arena = DEFAULT_ARENA end
  arena = arena and bytes(arena, 2) or 0
  if kind.arena and arena == 0 then error(("engine: %s needs an arena"):format(name), 2) end
  for _, option in ipairs { "managed", "tf32" } do
    if options[option] and not kind[option] then error(("engine: option '%s' is for CUDA devices, not for %s"):format(option, name), 2) end
  end
  local poison = options.poison
  if poison == nil then poison = os.getenv "PERILUNE_POISON" end
  if poison == nil then poison = kind.poison end
  local flags = poison_flags(poison, 2)
  local stale = options.stale or os.getenv "PERILUNE_STALE" or "error"
  if stale ~= "error" and stale ~= "allow" then error(("engine: stale is \"error\" or \"allow\", got %q"):format(stale), 2) end
  local seed = options.seed or 0
  if seed < 0 or seed % 1 ~= 0 or seed > 2 ^ 53 then error("engine: seed is a whole number from 0 to 2^53, got " .. seed, 2) end
  local poisoned = flags.on_reset or flags.on_free or flags.on_alloc
  local ok, e = pcall(core.engine.open, name, {
    device = options.device, arena = arena, late = kind.late, poison = flags, stale_allow = stale == "allow",
    places = default(options.places, poisoned), test = options.test, threads = options.threads, seed = seed,
    graph_resets = options.graph_resets, plans = options.plans, managed = options.managed, tf32 = options.tf32,
  })
  if not ok then error(tostring(e):gsub("^[^:]+:%d+: ", ""), 2) end
  local kept = { name }
  for key, value in pairs(options) do
    if key ~= 1 then kept[key] = value end
  end
  info[e] = { kind = name, device = options.device or 1, options = kept }
  return e
end

--- Opens another engine with the options of `e` and its present poison, but for `changes`.
---@param changes table<string, any>
function engine.like(e, changes)
  local options, poison = {}, e:poison()
  for key, value in pairs(info[e].options) do options[key] = value end
  options.poison = #poison.on > 0 and poison or false
  for key, value in pairs(changes) do options[key] = value end
  return engine.open(options)
end

--- Every kind of engine: { kind =, available =, reason = }.
function engine.list()
  local list = {}
  for name in pairs(KINDS) do
    local reason = core.engine.reason(name)
    list[#list + 1] = { kind = name, available = reason == nil, reason = reason }
  end
  table.sort(list, function(a, b) return a.kind < b.kind end)
  return list
end

--- Whether a value is an engine, open or closed.
---@return boolean
function engine.is_engine(value) return info[value] ~= nil end

for name, fn in pairs(core.engine) do
  if name ~= "open" and name ~= "from_values" and name ~= "set_poison" and name ~= "get_poison" then methods[name] = fn end
end
for _, row in ipairs(core.ops.rows) do
  if not row.internal then methods[row.name] = core.ops[row.name] end
end

local from_values = core.engine.from_values

local function creation_options(name, options, level)
  if options == nil then return nil, nil end
  if type(options) ~= "table" then error(("%s: options are a table, got %s"):format(name, type(options)), level + 1) end
  for key in pairs(options) do
    if key ~= "dtype" and key ~= "shape" then
      error(("%s: there is no option %q"):format(name, tostring(key)) .. suggest(tostring(key), { dtype = 1, shape = 1 }), level + 1)
    end
  end
  return options.dtype, options.shape
end

--- A tensor of Lua values: a number, or tables nested or flat with { shape = }. In the arena where there is one.
---@param values number|boolean|table
---@param options? { dtype: string, shape: integer[] }
function methods:tensor(values, options)
  if values == nil then error("tensor: values were expected, got nil", 2) end
  local dtype, shape = creation_options("tensor", options, 2)
  return from_values(self, "tensor", values, dtype, shape, nil)
end

--- A tensor outside the arena (C9). values: nil for zeros, a number, a flat or nested table, a tensor.
---@param shape integer|integer[]
function methods:persistent(shape, values, options)
  local dtype = creation_options("persistent", options, 2)
  if shape == nil then error("persistent: a shape was expected, got nil", 2) end
  return from_values(self, "persistent", values, dtype, shape, "persistent")
end

--- A parameter: persistent, requires grad, with a gradient (zero) from the start. values: as persistent's.
---@param shape integer|integer[]
function methods:param(shape, values, options)
  local dtype = creation_options("param", options, 2)
  if shape == nil then error("param: a shape was expected, got nil", 2) end
  return from_values(self, "param", values, dtype, shape, "param")
end

for name, fn in pairs(require "perilune.autograd".engine_methods) do methods[name] = fn end
for name, fn in pairs(require "perilune.capture".engine_methods) do methods[name] = fn end

--- Poison on or off, or a table { on = {"reset", "free", "alloc"}, word =, redzone = }, or the name of a setting's file; without an argument
--- the present setting.
function methods:poison(value)
  if value == nil then
    local p = core.engine.get_poison(self)
    local on = {}
    for _, event in ipairs { "reset", "free", "alloc" } do
      if p[EVENTS[event]] then on[#on + 1] = event end
    end
    return { on = on, word = p.word, redzone = p.redzone }
  end
  core.engine.set_poison(self, poison_flags(value, 2))
end

-- eng.arena: the raw arena
local arena_methods = {}
for name, fn in pairs(core.arena) do
  arena_methods[name] = function(self, ...) return fn(type(self) == "table" and rawget(self, 1), ...) end
end
for _, name in ipairs { "reset", "free", "pin", "unpin" } do
  local fn = core.engine[name]
  arena_methods[name] = function(self, ...) return fn(type(self) == "table" and rawget(self, 1), ...) end
end
local arena_metatable = { __index = arena_methods }

local fields = {
  kind = function(self) return info[self].kind end,
  arena = function(self) return setmetatable({ self }, arena_metatable) end,
}

metatable.__index = function(self, key)
  local method = methods[key]
  if method then return method end
  local field = fields[key]
  if field then return field(self) end
  error(("an engine has no method '%s'"):format(tostring(key)) .. suggest(tostring(key), methods, fields), 2)
end
metatable.__newindex = function(_, key) error(("an engine has no field '%s' to set"):format(tostring(key)), 2) end
metatable.__tostring = function(self)
  local i = info[self]
  return ("engine %s%s"):format(i.kind, core.engine.closed(self) and " (closed)" or "")
end
metatable.__metatable = "perilune engine"

engine.methods = methods

return engine
