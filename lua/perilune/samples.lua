-- SPDX-License-Identifier: MIT
-- samples: the columns `samples` and `domain` of the op table (src/ops.def), read and made into calls. What runs every op (sweeps,
-- gradcheck, parity, oracle) takes its arguments from here. The same row, sample, dtype and seed give the same values on every machine.
--
--   for _, row in ipairs(core.ops.rows) do
--     for _, sample in ipairs(samples.of(row)) do
--       local values = samples.values(row, sample, { dtype = "f64" })
--       local args = samples.build(eng, row, sample, values, { layout = samples.layouts.transposed })
--       local results = samples.call(eng, row, args)

local ffi = require "ffi"
local bit = require "bit"
local core = require "perilune.core"

local samples = {}

---@class perilune.samples.Tensor
---@field kind "tensor"
---@field shape integer[]
---@field dtype? string what the sample says; else the caller's choice
---@field fill? number every element
---@field max? integer elements are whole numbers 1 .. max

---@class perilune.samples.Tensors
---@field kind "tensors"

---@class perilune.samples.Value
---@field kind "value"
---@field value number|boolean|string|number[]

---@alias perilune.samples.Spec perilune.samples.Tensor|perilune.samples.Tensors|perilune.samples.Value

---@class perilune.samples.Sample
---@field text string the call alone
---@field bad? string the error that it must raise contains this
---@field args (perilune.samples.Spec|false)[] one for each slot of the row, false where it is skipped

---@class perilune.samples.Array
---@field shape integer[]
---@field dtype string and from 1 on the elements, row-major; bools are 0 or 1

---@class perilune.samples.Domain
---@field lo number
---@field hi number
---@field kinks number[] values that have no derivative
---@field tie boolean equal elements have none

-- Text to samples ---------------------------------------------------------------------------

local dtypes = {}
for _, name in ipairs(core.dtypes) do dtypes[name] = true end

local operand_kinds = { tensor = true, ["tensor or number"] = true, index = true, mask = true, tensors = true }

---@class perilune.samples.Scanner
local Scanner = {}
Scanner.__index = Scanner

function Scanner:fail(message, ...)
  error(("samples of '%s', character %d (%q): "):format(self.row.name, self.at, self.text:sub(self.at, self.at + 20))
    .. message:format(...), 0)
end

--- The captures of an anchored pattern here, behind which the scanner then stands; nil where it does not match.
function Scanner:take(pattern)
  local first, last, a, b = self.text:find("^" .. pattern, self.at)
  if not first or last > self.stop then return nil end
  self.at = last + 1
  return a or self.text:sub(first, last), b
end

local words = { ["true"] = true, ["false"] = false, inf = math.huge, ["-inf"] = -math.huge, nan = 0 / 0 }

function Scanner:value()
  local list = self:take "{([^}]*)}"
  if list then
    local out = {}
    for item in list:gmatch "[^,]+" do
      out[#out + 1] = tonumber(item) or self:fail("a list holds numbers, got '%s'", item)
    end
    return out
  end
  local word = self:take "[%w%.%-%+_]+" or self:fail "a value is missing"
  if words[word] ~= nil then return words[word] end
  return tonumber(word) or word
end

function Scanner:tensor()
  local sizes = self:take "%(([%d,]*)%)"
  if not sizes then return nil end
  local spec = { kind = "tensor", shape = {} }
  for size in sizes:gmatch "%d+" do spec.shape[#spec.shape + 1] = tonumber(size) end
  spec.dtype = self:take ":(%l%d*%l*)"
  if spec.dtype and not dtypes[spec.dtype] then self:fail("there is no dtype '%s'", spec.dtype) end
  local fill, max = self:take "=([%d%.%-e]+)", self:take "<(%d+)"
  spec.fill, spec.max = tonumber(fill), tonumber(max)
  return spec
end

function Scanner:list()
  if not self:take "%[" then return nil end
  local spec = { kind = "tensors" }
  while not self:take "%]" do
    self:take " *"
    spec[#spec + 1] = self:tensor() or self:fail "a list holds tensors"
  end
  return spec
end

--- The next slot of an operand, for what has no name.
function Scanner:next_slot(k)
  local slots = self.row.slots
  repeat k = k + 1 until not slots[k] or operand_kinds[slots[k].kind]
  return slots[k] and k or self:fail "there is no slot for this"
end

function Scanner:named()
  local name = self:take "([%a_][%w_]*)="
  if not name then return nil end
  for k, slot in ipairs(self.row.slots) do
    if slot.name == name then return k end
  end
  self:fail("there is no slot '%s'", name)
end

--- One alternative, from self.at to self.stop.
function Scanner:sample()
  local bad = self:take "bad "
  local sample = { args = {} }
  for k = 1, #self.row.slots do sample.args[k] = false end
  local first = self.at
  if bad then
    local colon = self.text:find(": ", self.at, true)
    if not colon or colon > self.stop then self:fail "a bad sample ends in ': ' and the error's text" end
    sample.bad = self.text:sub(colon + 2, self.stop)
    self.stop = colon - 1
  end
  sample.text = self.text:sub(first, self.stop)
  local at = 0
  while self.at <= self.stop do
    local tensors = self:tensor() or self:list()
    if tensors then
      at = self:next_slot(at)
      sample.args[at] = tensors
    elseif self:take "%-" then
      at = self:next_slot(at)
    elseif not self:take " +" then
      local k = self:named() or self:fail "a tensor, a list, '-' or name=value was expected"
      sample.args[k] = { kind = "value", value = self:value() }
    end
  end
  return sample
end

--- The samples in a text of that form for a row; an error names row and position.
---@param text string
---@return perilune.samples.Sample[]
function samples.parse(row, text)
  local list, at = {}, 1
  while at <= #text do
    local first, last = text:find(" | ", at, true)
    local scanner = setmetatable({ row = row, text = text, at = at, stop = (first or #text + 1) - 1 }, Scanner)
    list[#list + 1] = scanner:sample()
    at = (last or #text) + 1
  end
  return list
end

local known = {}

--- The samples of a row of core.ops.rows.
---@return perilune.samples.Sample[]
function samples.of(row)
  known[row] = known[row] or samples.parse(row, row.samples)
  return known[row]
end

--- One domain for each operand; the last one stands for all that follow.
---@return perilune.samples.Domain[]
function samples.domains(row)
  local list = {}
  for text in row.domain:gmatch "[^;]+" do
    local lo, hi, rest = text:match "^%s*([%d%.%-]-)%.%.([%d%.%-]+)%s*(.*)$"
    local domain = { lo = tonumber(lo), hi = tonumber(hi), kinks = {}, tie = false }
    if not (domain.lo and domain.hi and domain.lo < domain.hi) then
      error(("domain of '%s': '%s' is no range"):format(row.name, text), 0)
    end
    for word in rest:gmatch "%S+" do
      if word == "!tie" then
        domain.tie = true
      else
        domain.kinks[#domain.kinks + 1] = tonumber(word:match "^!(.+)$")
          or error(("domain of '%s': '%s' is no kink"):format(row.name, word), 0)
      end
    end
    list[#list + 1] = domain
  end
  return list
end

local function fractional(value)
  return type(value) == "number" and value % 1 ~= 0 and math.abs(value) < math.huge
end

--- The dtypes to run a sample with: those of the row where the sample leaves the choice, else one. Fractional options are for floats.
---@return string[]
function samples.dtypes(row, sample)
  local free, fraction = false, false
  for k, spec in ipairs(sample.args) do
    local slot = row.slots[k]
    if spec and spec.kind == "tensor" then
      free = free or (slot.kind ~= "mask" and not spec.dtype)
    elseif spec and spec.kind == "tensors" then
      for _, one in ipairs(spec) do free = free or not one.dtype end
    elseif spec then
      fraction = fraction or (slot.kind == "num" and fractional(spec.value))
    end
  end
  if sample.bad or not free then return { "f32" } end
  local list = {}
  for _, dtype in ipairs(row.dtypes) do
    if not fraction or dtype == "f32" or dtype == "f64" then list[#list + 1] = dtype end
  end
  return list
end

-- Samples to values -------------------------------------------------------------------------

local rounded = ffi.new "float[1]"
local function round_f32(v)
  rounded[0] = v
  return rounded[0]
end

--- Uniform numbers in [0, 1): xorshift on 32 bits.
local function generator(seed)
  local state = bit.tobit(seed)
  if state == 0 then state = 0x9e3779b9 end
  local function word()
    state = bit.bxor(state, bit.lshift(state, 13))
    state = bit.bxor(state, bit.rshift(state, 17))
    state = bit.bxor(state, bit.lshift(state, 5))
    return state % 4294967296
  end
  for _ = 1, 8 do word() end
  return function() return word() / 4294967296 end
end

local function hash(seed, ...)
  local h = bit.tobit(0x811c9dc5 + seed * 0x9e3779b9)
  for i = 1, select("#", ...) do
    local text = tostring((select(i, ...)))
    for k = 1, #text do h = bit.tobit(bit.bxor(h, text:byte(k)) % 65536 * 16777619 + bit.rol(h, 7)) end
  end
  return h
end

local RANGES = { bool = { 0, 1 }, u8 = { 0, 255 }, i32 = { -2 ^ 31, 2 ^ 31 - 1 }, i64 = { -2 ^ 53, 2 ^ 53 } }

--- Kinks keep this distance.
local MARGIN = 1 / 16

local function away_from(v, domain)
  for _, kink in ipairs(domain.kinks) do
    local d = v - kink
    if math.abs(d) < MARGIN then v = kink + (d < 0 and -MARGIN or MARGIN) * (1 + math.abs(d)) end
  end
  return v
end

local function shuffled(n, uniform)
  local order = {}
  for i = 1, n do order[i] = i end
  for i = n, 2, -1 do
    local k = 1 + math.floor(uniform() * i)
    order[i], order[k] = order[k], order[i]
  end
  return order
end

local function draw_floats(out, n, dtype, domain, uniform, hit)
  local lo, width, kinks = domain.lo, domain.hi - domain.lo, domain.kinks
  local order = domain.tie and n > 1 and shuffled(n, uniform)
  for i = 1, n do
    local v
    if order then
      v = lo + width * (order[i] - 0.5) / n
    else
      v = lo + width * uniform()
    end
    if hit and #kinks > 0 and i % 4 == 0 then
      v = kinks[i / 4 % #kinks + 1]
    elseif order and #kinks > 0 then
      -- distinct as well: both sides of the kink give up their margin
      local k = kinks[1]
      v = v < k and lo + (v - lo) * (k - lo - MARGIN) / (k - lo) or domain.hi - (domain.hi - v) * (domain.hi - k - MARGIN) / (domain.hi - k)
    else
      v = away_from(v, domain)
    end
    out[i] = dtype == "f32" and round_f32(v) or v
  end
end

local function draw_whole(out, n, dtype, domain, uniform)
  local range = RANGES[dtype]
  local lo, hi = math.max(math.ceil(domain.lo), range[1]), math.min(math.floor(domain.hi), range[2])
  if lo >= hi and dtype ~= "bool" then hi = lo + 1 end
  for i = 1, n do out[i] = lo + math.floor(uniform() * (hi - lo + 1)) end
end

--- Half of a mask is 0, the rest is not, whatever the dtype.
local function draw_mask(out, n, dtype, domain, uniform)
  local whole = RANGES[dtype] ~= nil
  for i = 1, n do
    local u = uniform()
    out[i] = u < 0.5 and 0 or whole and 1 or round_f32(domain.lo + (domain.hi - domain.lo) * u)
  end
end

local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function draw(spec, slot, dtype, domain, seed, hit)
  dtype = spec.dtype or dtype
  local out, n, uniform = { shape = spec.shape, dtype = dtype }, count(spec.shape), generator(seed)
  if spec.fill then
    local v = dtype == "bool" and (spec.fill ~= 0 and 1 or 0) or dtype == "f32" and round_f32(spec.fill) or spec.fill
    for i = 1, n do out[i] = v end
  elseif spec.max then
    for i = 1, n do out[i] = 1 + math.floor(uniform() * spec.max) end
  elseif slot.kind == "mask" then
    draw_mask(out, n, dtype, domain, uniform)
  elseif RANGES[dtype] then
    draw_whole(out, n, dtype, domain, uniform)
  else
    draw_floats(out, n, dtype, domain, uniform, hit)
  end
  return out
end

--- The values of a sample's arguments, one for each slot, with n = number of slots: arrays for tensors, lists of arrays for lists of tensors,
--- Lua values for the rest, nil where a slot is skipped. Arrays have shape, dtype and the elements from 1 on, exact in their dtype.
---@param opts? { dtype?: string, seed?: integer, domain?: perilune.samples.Domain, kinks?: "avoid"|"hit" }
---  dtype of tensors where the sample leaves the choice (f32); domain instead of the row's; kinks are kept away from, or hit by every fourth element
function samples.values(row, sample, opts)
  opts = opts or {}
  local domains, operand = samples.domains(row), 0
  local dtype, hit = opts.dtype or "f32", opts.kinks == "hit"
  local values = { n = #row.slots }
  for k, spec in ipairs(sample.args) do
    local slot = row.slots[k]
    if operand_kinds[slot.kind] then operand = operand + 1 end
    local domain = opts.domain or domains[math.min(math.max(operand, 1), #domains)]
    local function array(one, i)
      return draw(one, slot, dtype, domain, hash(opts.seed or 0, row.name, sample.text, k, i), hit)
    end
    if spec and spec.kind == "tensor" then
      values[k] = array(spec, 1)
    elseif spec and spec.kind == "tensors" then
      local list = {}
      for i, one in ipairs(spec) do list[i] = array(one, i) end
      values[k] = list
    elseif spec then
      values[k] = spec.value
    end
  end
  return values
end

-- Values to tensors -------------------------------------------------------------------------

local ctypes = { f32 = "float[?]", f64 = "double[?]", i64 = "int64_t[?]", i32 = "int32_t[?]", u8 = "uint8_t[?]", bool = "uint8_t[?]" }
for name, ctype in pairs(ctypes) do ctypes[name] = ffi.typeof(ctype) end

--- The elements of an array as t:bytes() has them.
---@param array perilune.samples.Array
---@return string
function samples.encode(array)
  local n = count(array.shape)
  local buffer = ctypes[array.dtype](math.max(n, 1))
  for i = 1, n do buffer[i - 1] = array[i] end
  return ffi.string(buffer, n * ffi.sizeof(buffer) / math.max(n, 1))
end

--- What t:bytes() gave as C array of n elements. Each NaN becomes the plain one: LuaJIT would take some others for booleans or nil.
function samples.elements(bytes, n, dtype)
  local buffer = ctypes[dtype](math.max(n, 1))
  ffi.copy(buffer, bytes, #bytes)
  local words = ffi.cast("int32_t *", buffer)
  if dtype == "f32" then
    for i = 0, n - 1 do
      if bit.band(words[i], 0x7fffffff) > 0x7f800000 then words[i] = 0x7fc00000 end
    end
  elseif dtype == "f64" then
    for i = 0, n - 1 do
      local high = bit.band(words[2 * i + 1], 0x7fffffff)
      if high > 0x7ff00000 or (high == 0x7ff00000 and words[2 * i] ~= 0) then words[2 * i], words[2 * i + 1] = 0, 0x7ff80000 end
    end
  end
  return buffer
end

--- An array from what t:bytes() gave. i64 beyond 2^53 become LuaJIT's int64.
---@return perilune.samples.Array
function samples.decode(bytes, shape, dtype)
  local out, n = { shape = shape, dtype = dtype }, count(shape)
  local from = samples.elements(bytes, n, dtype)
  for i = 1, n do out[i] = from[i - 1] end
  if dtype == "i64" then
    for i = 1, n do
      local v = out[i]
      if v >= -0x20000000000000LL and v <= 0x20000000000000LL then out[i] = tonumber(v) end
    end
  elseif dtype == "bool" then
    for i = 1, n do out[i] = out[i] ~= 0 and 1 or 0 end
  end
  return out
end

--- A tensor's elements as an array; waits for them.
---@return perilune.samples.Array
function samples.read(t) return samples.decode(t:bytes(), t.shape, t.dtype) end

---@class perilune.samples.Layout
---@field name string
---@field make fun(eng, array: perilune.samples.Array): any a tensor with the array's values, laid out in this way
---@field adapt? fun(array: perilune.samples.Array): perilune.samples.Array the values that this layout can hold, made of others

---@type table<string, perilune.samples.Layout>
samples.layouts = {}

local function put(t, array) return t:set_bytes(samples.encode(array)) end

--- A larger tensor of 77s, which an element read out of place would show.
local function surroundings(eng, shape, dtype) return eng:full(shape, 77 % (dtype == "bool" and 2 or 78), { dtype = dtype }) end

samples.layouts.contiguous = {
  name = "contiguous",
  make = function(eng, array) return put(eng:empty(array.shape, { dtype = array.dtype }), array) end,
}

samples.layouts.transposed = {
  name = "transposed",
  make = function(eng, array)
    local n, shape, dims = #array.shape, {}, {}
    for d = 1, n do shape[d], dims[d] = array.shape[n + 1 - d], n + 1 - d end
    return put(eng:empty(shape, { dtype = array.dtype }):permute(dims), array)
  end,
}

samples.layouts.offset = {
  name = "offset",
  make = function(eng, array)
    local shape, ranges = {}, {}
    for d, size in ipairs(array.shape) do shape[d], ranges[d] = size + 3, { 2, size + 1 } end
    if #shape == 0 then return put(surroundings(eng, { 3 }, array.dtype)[2], array) end
    return put(surroundings(eng, shape, array.dtype)[ranges], array)
  end,
}

samples.layouts.stepped = {
  name = "stepped",
  make = function(eng, array)
    local shape, ranges = {}, {}
    for d, size in ipairs(array.shape) do
      shape[d], ranges[d] = 2 * size + 1, size > 0 and { 2, 2 * size, 2 } or { 2, 1 }
    end
    if #shape == 0 then return put(surroundings(eng, { 3 }, array.dtype)[2], array) end
    return put(surroundings(eng, shape, array.dtype)[ranges], array)
  end,
}

--- The dimension that is expanded, and the elements before and behind it.
local function wide(shape)
  for d, size in ipairs(shape) do
    if size > 1 then
      local behind = 1
      for i = d + 1, #shape do behind = behind * shape[i] end
      return d, size, behind
    end
  end
end

samples.layouts.expanded = {
  name = "expanded",
  adapt = function(array)
    local d, size, behind = wide(array.shape)
    if not d then return array end
    local out = { shape = array.shape, dtype = array.dtype }
    for i = 0, count(array.shape) - 1 do
      local inner, outer = i % behind, math.floor(i / (behind * size))
      out[i + 1] = array[outer * behind * size + inner + 1]
    end
    return out
  end,
  make = function(eng, array)
    local d, size, behind = wide(array.shape)
    if not d then return samples.layouts.contiguous.make(eng, array) end
    local one = { shape = { unpack(array.shape) }, dtype = array.dtype }
    one.shape[d] = 1
    for i = 0, count(one.shape) - 1 do
      one[i + 1] = array[math.floor(i / behind) * behind * size + i % behind + 1]
    end
    return samples.layouts.contiguous.make(eng, one):expand(array.shape)
  end,
}

--- Whether an argument's value (of samples.values) is an array.
function samples.is_array(value) return type(value) == "table" and value.shape ~= nil end

--- fn(array, slot number, number within its list or nil) for each array among the values, replaced by what fn returns; makes a new list.
function samples.map(row, values, fn)
  local out = { n = values.n }
  for k = 1, values.n do
    local v = values[k]
    if samples.is_array(v) then
      out[k] = fn(v, k)
    elseif v ~= nil and row.slots[k].kind == "tensors" then
      out[k] = {}
      for i, one in ipairs(v) do out[k][i] = fn(one, k, i) end
    else
      out[k] = v
    end
  end
  return out
end

--- The values that a layout can hold (only `expanded` changes them).
---@param layout perilune.samples.Layout
function samples.adapt(row, values, layout)
  if not layout.adapt then return values end
  return samples.map(row, values, function(array) return layout.adapt(array) end)
end

--- The positional arguments for core.ops[row.name], tensors made on the engine, with n.
---@param opts? { layout?: perilune.samples.Layout, make?: fun(eng, array: perilune.samples.Array, slot: integer): any }
---  layout of every tensor (contiguous); make instead of it, to decide for each tensor
function samples.build(eng, row, sample, values, opts)
  opts = opts or {}
  local make = opts.make or (opts.layout or samples.layouts.contiguous).make
  assert(#sample.args == values.n, "values of another sample")
  return samples.map(row, values, function(array, k) return make(eng, array, k) end)
end

--- Runs the op; out is a destination, or a list of them. Returns the list of its results.
function samples.call(eng, row, args, out)
  local fn = core.ops[row.name]
  if out == nil then return { fn(eng, unpack(args, 1, args.n)) } end
  local all = { unpack(args, 1, args.n) }
  all[args.n + 1] = { out = out }
  return { fn(eng, unpack(all, 1, args.n + 1)) }
end

return samples
