-- SPDX-License-Identifier: MIT
-- elements: numbers as files hold them, to and from the dtypes of tensors. What no dtype holds is converted to one that holds all of its values:
-- 16-bit floats to f32, narrow integers to i32 or i64. u64 fits i64 only up to 2^63 - 1, and more is an error.

local ffi = require "ffi"
local bit = require "bit"

local elements = {}

---@class perilune.ElementType
---@field size integer  bytes
---@field dtype string  of the tensor that it becomes
---@field ctype? string  what it is converted from, if it isn't the dtype's own

---@type table<string, perilune.ElementType>
elements.types = {
  f64 = { size = 8, dtype = "f64" }, f32 = { size = 4, dtype = "f32" }, i64 = { size = 8, dtype = "i64" }, i32 = { size = 4, dtype = "i32" },
  u8 = { size = 1, dtype = "u8" }, bool = { size = 1, dtype = "bool" },
  i16 = { size = 2, dtype = "i32", ctype = "int16_t" }, i8 = { size = 1, dtype = "i32", ctype = "int8_t" },
  u16 = { size = 2, dtype = "i32", ctype = "uint16_t" }, u32 = { size = 4, dtype = "i64", ctype = "uint32_t" },
  u64 = { size = 8, dtype = "i64", ctype = "uint64_t" },
  f16 = { size = 2, dtype = "f32", ctype = "uint16_t" }, bf16 = { size = 2, dtype = "f32", ctype = "uint16_t" },
}

local OWN = { f64 = "double", f32 = "float", i64 = "int64_t", i32 = "int32_t", u8 = "uint8_t", bool = "uint8_t" }

-- arrays of each, made once by name: some versions of LuaJIT mix up types made by ffi.typeof("$[?]", type)
local ARRAYS = {}
for _, ctype in ipairs { "double", "float", "int64_t", "int32_t", "int16_t", "int8_t", "uint64_t", "uint32_t", "uint16_t", "uint8_t" } do
  ARRAYS[ctype] = ffi.typeof(ctype .. "[?]")
end

--- IEEE 754 binary16.
local function half(word)
  local sign = word >= 0x8000 and -1 or 1
  local exponent, fraction = bit.band(bit.rshift(word, 10), 31), bit.band(word, 1023)
  if exponent == 31 then return fraction == 0 and sign * math.huge or 0 / 0 end
  if exponent == 0 then return sign * fraction * 2 ^ -24 end
  return sign * (1 + fraction / 1024) * 2 ^ (exponent - 15)
end

local function swap(bytes, size)
  local n = #bytes
  local from, to = ffi.cast("const uint8_t *", bytes), ARRAYS.uint8_t(math.max(n, 1))
  for at = 0, n - size, size do
    for k = 0, size - 1 do to[at + k] = from[at + size - 1 - k] end
  end
  return ffi.string(to, n)
end

--- A file's bytes as those of a tensor of the type's dtype; or nil, the number (from 0) of the element that doesn't fit, and why.
---@param bytes string
---@param name string  key of elements.types
---@param big_endian? boolean
function elements.decode(bytes, name, big_endian)
  local kind = elements.types[name]
  if big_endian and kind.size > 1 then bytes = swap(bytes, kind.size) end
  if name == "bool" then
    local at = bytes:find "[^%z\1]"
    if at then return nil, at - 1, ("a bool of %d, neither 0 nor 1"):format(bytes:byte(at)) end
  end
  if not kind.ctype then return bytes end
  local n = #bytes / kind.size
  local from = ARRAYS[kind.ctype](math.max(n, 1)) -- aligned, whatever the string is
  ffi.copy(from, bytes, #bytes)
  local own = OWN[kind.dtype]
  local to = ARRAYS[own](math.max(n, 1))
  if name == "bf16" then
    local words = ffi.cast("uint32_t *", to)
    for i = 0, n - 1 do words[i] = from[i] * 65536 end
  elseif name == "f16" then
    for i = 0, n - 1 do to[i] = half(from[i]) end
  else
    for i = 0, n - 1 do
      if name == "u64" and from[i] > 0x7fffffffffffffffULL then return nil, i, "a u64 above 2^63 - 1" end
      to[i] = from[i]
    end
  end
  return ffi.string(to, n * ffi.sizeof(own))
end

--- The bytes of a list of Lua numbers as a dtype; or nil, the number (from 1) of the value that doesn't fit, and why.
function elements.encode(values, n, dtype)
  local to = ARRAYS[OWN[dtype]](math.max(n, 1))
  if dtype == "f32" or dtype == "f64" then
    for i = 1, n do to[i - 1] = values[i] end
  else
    local low, high = 1 - 2 ^ 53, 2 ^ 53 - 1 -- i64: from there on a Lua number stands for several
    if dtype == "i32" then low, high = -2 ^ 31, 2 ^ 31 - 1 elseif dtype == "u8" then low, high = 0, 255 elseif dtype == "bool" then low, high = 0, 1 end
    for i = 1, n do
      local v = values[i]
      if not (v >= low and v <= high and v % 1 == 0) then
        local why = dtype == "i64" and v % 1 == 0 and math.abs(v) < math.huge and "%.17g is beyond 2^53 - 1, which is read exactly" or "%.17g is no %s"
        return nil, i, why:format(v, dtype)
      end
      to[i - 1] = v
    end
  end
  return ffi.string(to, n * ffi.sizeof(OWN[dtype]))
end

--- Bytes of one element of a dtype.
elements.sizes = {}
for dtype, ctype in pairs(OWN) do elements.sizes[dtype] = ffi.sizeof(ctype) end

--- Number of elements of a shape; nil if it is more than 2^53.
function elements.count(shape)
  local n = 1
  for _, size in ipairs(shape) do
    if size == 0 then return 0 end
  end
  for _, size in ipairs(shape) do n = n * size end
  return n <= 2 ^ 53 and n or nil
end

--- A persistent tensor of such bytes.
function elements.tensor(eng, shape, dtype, bytes)
  local t = eng:persistent(shape, nil, { dtype = dtype })
  return t:set_bytes(bytes)
end

return elements
