-- SPDX-License-Identifier: MIT
-- npy: NumPy's file format for one array, versions 1.0 to 3.0 (numpy.lib.format). Read: all numbers of up to 64 bits, both byte orders, C and
-- Fortran order. Written: version 1.0, C order, little-endian. Bytes in messages count from 0.

local core = require "perilune.core"
local caller = require "perilune.caller"
local check = require "perilune.nn.check"
local elements = require "perilune.data.elements"
local file = require "perilune.data.file"

local npy = {}

local MAGIC = "\147NUMPY"

local NAMES = { f8 = "f64", f4 = "f32", f2 = "f16", i8 = "i64", i4 = "i32", i2 = "i16", i1 = "i8", u8 = "u64", u4 = "u32", u2 = "u16", u1 = "u8", b1 = "bool" }
local CODES = { f64 = "<f8", f32 = "<f4", i64 = "<i8", i32 = "<i4", u8 = "|u1", bool = "|b1" }

--- The value at `at` of a Python literal: a string, True or False, or a tuple of whole numbers; and where it ends.
local function literal(text, at, fail)
  local word, stop = text:match("^(%u%l+)()", at)
  if word == "True" or word == "False" then return word == "True", stop end
  local quote = text:match("^(['\"])", at)
  if quote then
    local value
    value, stop = text:match("^([^" .. quote .. "]*)" .. quote .. "()", at + 1)
    if not value then fail(at, "a string without an end") end
    return value, stop
  end
  local inner, behind = text:match("^%(([^()]*)%)()", at)
  if not inner then fail(at, "a string, True, False or a tuple of sizes was expected") end
  local sizes = {}
  for item in inner:gmatch "[^,]+" do
    local digits = item:match "^%s*(%d+)L?%s*$"
    if not digits and item:find "%S" then fail(at, ("%q is no size"):format(item)) end
    if digits then sizes[#sizes + 1] = tonumber(digits) end
  end
  return sizes, behind
end

--- The dictionary of a header: descr, fortran_order and shape.
local function parse(text, fail)
  local at = text:match "^%s*{()" or fail(1, "the header is no dictionary")
  local found, places = {}, {}
  while not text:match("^%s*}%s*$", at) do
    local key, from = text:match("^%s*['\"]([%w_]+)['\"]%s*:%s*()", at)
    if not key then fail(at, "a key was expected") end
    if found[key] ~= nil then fail(at, ("the key '%s' comes twice"):format(key)) end
    if key == "descr" and text:match("^%[", from) then fail(from, "arrays of records are not supported") end
    found[key], at = literal(text, from, fail)
    places[key] = from
    at = text:match("^%s*,()", at) or (text:match("^%s*}%s*$", at) and at) or fail(at, "',' or '}' was expected")
  end
  for key, kind in pairs { descr = "string", fortran_order = "boolean", shape = "table" } do
    if type(found[key]) ~= kind then fail(places[key] or 1, ("'%s' is missing or of the wrong kind"):format(key)) end
  end
  return found, places
end

--- Reads a file into a new persistent tensor.
---@param eng userdata
---@param path string
---@return userdata
function npy.load(eng, path)
  check.engine("npy", eng)
  local bytes = file.read(path, "npy")
  local function fail(at, what) caller.fail("npy: %s: %s at byte %d", path, what, at) end
  if bytes:sub(1, 6) ~= MAGIC then fail(0, "this is no NPY file: it does not begin with \"\\x93NUMPY\"") end
  local major, minor = bytes:byte(7, 8)
  if not minor then fail(#bytes, "the file ends within its version") end
  if major < 1 or major > 3 or minor ~= 0 then fail(6, ("version %d.%d is not known"):format(major, minor)) end
  local first = major == 1 and 11 or 13
  if #bytes < first - 1 then fail(#bytes, "the file ends within the header's length") end
  local a, b, c, d = bytes:byte(9, first - 1)
  local length = a + b * 256 + (c or 0) * 65536 + (d or 0) * 16777216
  local header = bytes:sub(first, first + length - 1)
  if #header < length then fail(#bytes, ("the file ends within its header of %d bytes"):format(length)) end
  local h, places = parse(header, function(at, what) fail(first + at - 2, what) end)
  local order, code = h.descr:match "^([<>|=]?)(%a%d+)$"
  local name = NAMES[code or ""]
  if not name then fail(first + places.descr - 2, ("dtype '%s' is not supported"):format(h.descr)) end
  local kind, n = elements.types[name], elements.count(h.shape)
  if #h.shape > 8 then fail(first + places.shape - 2, ("%d dimensions, at most 8 are supported"):format(#h.shape)) end
  local start = first - 1 + length
  local want = n and n * kind.size
  local got = #bytes - start
  if not want or got < want then
    fail(#bytes, ("the file ends; shape %s of '%s' needs %s bytes from byte %d on, there are %d"):format(check.shape_text(h.shape), h.descr,
      want and ("%d"):format(want) or "too many", start, got))
  end
  if got > want then fail(start + want, ("%d bytes too many"):format(got - want)) end
  local data, wrong, why = elements.decode(bytes:sub(start + 1), name, order == ">")
  if not data then fail(start + wrong * kind.size, why) end
  if not h.fortran_order or #h.shape < 2 then return elements.tensor(eng, h.shape, kind.dtype, data) end
  local dims = {}
  for i in ipairs(h.shape) do dims[i] = #h.shape + 1 - i end
  local t = eng:persistent(h.shape, nil, { dtype = kind.dtype })
  t:permute(dims):set_bytes(data)
  return t
end

--- Writes a tensor as a file; what was there is replaced only by the whole new file.
---@param path string
---@param t userdata
function npy.save(path, t)
  if not core.tensor.is_tensor(t) then caller.fail("npy: argument 2 is a tensor, got %s", type(t)) end
  local sizes = table.concat(t.shape, ", ")
  if #t.shape == 1 then sizes = sizes .. "," end
  local header = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }"):format(CODES[t.dtype], sizes)
  header = header .. (" "):rep((-(10 + #header + 1)) % 64) .. "\n"
  file.write(path, "npy", { MAGIC, "\1\0", string.char(#header % 256, math.floor(#header / 256)), header, t:bytes() })
end

return npy
