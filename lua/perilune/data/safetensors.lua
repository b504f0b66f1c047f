-- SPDX-License-Identifier: MIT
-- safetensors: tensors by name in one file: 8 bytes with the header's length, a JSON header, the tensors' bytes without holes
-- (github.com/huggingface/safetensors, "Format"). F16 and BF16 are read as f32, narrow integers as i32 or i64. Bytes in messages count from 0.

local core = require "perilune.core"
local caller = require "perilune.caller"
local check = require "perilune.nn.check"
local elements = require "perilune.data.elements"
local file = require "perilune.data.file"
local json = require "perilune.json"

local safetensors = {}

local NAMES = { F64 = "f64", F32 = "f32", F16 = "f16", BF16 = "bf16", I64 = "i64", I32 = "i32", I16 = "i16", I8 = "i8", U64 = "u64", U32 = "u32",
  U16 = "u16", U8 = "u8", BOOL = "bool" }
local CODES = { f64 = "F64", f32 = "F32", i64 = "I64", i32 = "I32", u8 = "U8", bool = "BOOL" }
local RANK = { i64 = 1, f64 = 2, f32 = 3, i32 = 4, u8 = 5, bool = 6 } -- the order of the format's own writer
local LARGEST_HEADER = 100000000 -- what the format's own reader takes

local function is_size(v) return type(v) == "number" and v >= 0 and v % 1 == 0 and v <= 2 ^ 53 end

--- Valid UTF-8 (RFC 3629), as JSON must be.
local function is_utf8(text)
  local at = 1
  while at <= #text do
    local stop = text:match("^[%z\1-\127]+()", at) or text:match("^[\194-\223][\128-\191]()", at) or text:match("^\224[\160-\191][\128-\191]()", at)
      or text:match("^[\225-\236\238\239][\128-\191][\128-\191]()", at) or text:match("^\237[\128-\159][\128-\191]()", at)
      or text:match("^\240[\144-\191][\128-\191][\128-\191]()", at) or text:match("^[\241-\243][\128-\191][\128-\191][\128-\191]()", at)
      or text:match("^\244[\128-\143][\128-\191][\128-\191]()", at)
    if not stop then return false end
    at = stop
  end
  return true
end

--- One entry of the header, checked: { name, kind, shape, first, last } with bytes from the start of the data.
local function entry(name, given, fail)
  if type(given) ~= "table" then fail "is no object" end
  local kind = NAMES[given.dtype]
  if not kind then fail(("has the dtype %s, which is not supported"):format(tostring(given.dtype))) end
  local shape, offsets = given.shape, given.data_offsets
  if type(shape) ~= "table" or not shape.n then fail "has no shape" end
  for i = 1, shape.n do
    if not is_size(shape[i]) then fail(("has the size %s"):format(tostring(shape[i]))) end
  end
  if shape.n > 8 then fail(("has %d dimensions, at most 8 are supported"):format(shape.n)) end
  if type(offsets) ~= "table" or offsets.n ~= 2 or not is_size(offsets[1]) or not is_size(offsets[2]) or offsets[1] > offsets[2] then
    fail "has no data_offsets [begin, end]"
  end
  local sizes = { unpack(shape, 1, shape.n) }
  local n = elements.count(sizes)
  local want = n and n * elements.types[kind].size
  if offsets[2] - offsets[1] ~= want then
    fail(("holds %d bytes, but its shape %s of %s needs %s"):format(offsets[2] - offsets[1], check.shape_text(sizes), given.dtype,
      want and ("%d"):format(want) or "too many"))
  end
  return { name = name, kind = kind, shape = sizes, first = offsets[1], last = offsets[2] }
end

--- Reads a file: persistent tensors by name, and the metadata (strings by name).
---@param eng userdata
---@param path string
---@return table<string, userdata>, table<string, string>
function safetensors.load(eng, path)
  check.engine("safetensors", eng)
  local bytes = file.read(path, "safetensors")
  local function fail(at, what) caller.fail("safetensors: %s: %s at byte %d", path, what, at) end
  if #bytes < 8 then fail(#bytes, "the file ends within the header's length") end
  local length = 0
  for i = 8, 1, -1 do length = length * 256 + bytes:byte(i) end
  if length > LARGEST_HEADER then fail(0, ("a header of %.0f bytes, more than %d"):format(length, LARGEST_HEADER)) end
  if length > #bytes - 8 then fail(#bytes, ("the file ends within its header of %d bytes"):format(length)) end
  local header = bytes:sub(9, 8 + length)
  if header:sub(1, 1) ~= "{" then fail(8, "the header does not begin with '{'") end
  local ok, parsed = pcall(json.decode, header, true)
  if not ok then
    local what, at = tostring(parsed):match "^json: (.-) at character (%d+)"
    fail(7 + (tonumber(at) or 1), "the header is no JSON: " .. (what or tostring(parsed)))
  end
  local metadata = parsed.__metadata__ or {}
  parsed.__metadata__ = nil
  for key, value in pairs(type(metadata) == "table" and metadata or { metadata }) do
    if type(value) ~= "string" or type(key) ~= "string" then
      fail(7 + header:find("__metadata__", 1, true), "__metadata__ is no object of strings")
    end
  end
  local list = {}
  for name, given in pairs(parsed) do
    list[#list + 1] = entry(name, given, function(what)
      fail(7 + (header:find(json.encode(name), 1, true) or 1), ("tensor '%s' %s"):format(name, what))
    end)
  end
  table.sort(list, function(a, b)
    if a.first ~= b.first then return a.first < b.first end
    return a.last < b.last
  end)
  local start, at = 8 + length, 0
  for _, e in ipairs(list) do
    if e.first ~= at then fail(start + at, ("tensor '%s' begins at byte %d: %s"):format(e.name, start + e.first, e.first > at and "there is a hole" or "tensors overlap")) end
    at = e.last
  end
  if start + at > #bytes then fail(#bytes, ("the file ends; its tensors need %d bytes from byte %d on, there are %d"):format(at, start, #bytes - start)) end
  if start + at < #bytes then fail(start + at, ("%d bytes behind the last tensor"):format(#bytes - start - at)) end
  local decoded = {}
  for i, e in ipairs(list) do
    local wrong, why
    decoded[i], wrong, why = elements.decode(bytes:sub(start + e.first + 1, start + e.last), e.kind)
    if not decoded[i] then fail(start + e.first + wrong * elements.types[e.kind].size, ("tensor '%s' has %s"):format(e.name, why)) end
  end
  local tensors = {}
  for i, e in ipairs(list) do tensors[e.name] = elements.tensor(eng, e.shape, elements.types[e.kind].dtype, decoded[i]) end
  return tensors, metadata
end

--- Writes tensors by name as a file, with metadata (strings by name) if given; what was there is replaced only by the whole new file. The same
--- tensors give the same bytes.
---@param path string
---@param tensors table<string, userdata>
---@param metadata? table<string, string>
function safetensors.save(path, tensors, metadata)
  if type(tensors) ~= "table" then caller.fail("safetensors: a table of tensors by name was expected, got %s", type(tensors)) end
  local list = {}
  for name, t in pairs(tensors) do
    if type(name) ~= "string" or name == "__metadata__" or not is_utf8(name) then
      caller.fail("safetensors: %s is no name for a tensor", type(name) == "string" and ("%q"):format(name) or "a " .. type(name))
    end
    if not core.tensor.is_tensor(t) then caller.fail("safetensors: '%s' is a %s, not a tensor", name, type(t)) end
    list[#list + 1] = { name = name, rank = RANK[t.dtype], tensor = t }
  end
  table.sort(list, function(a, b) -- large elements first, so that each lies at a multiple of its size
    if a.rank ~= b.rank then return a.rank < b.rank end
    return a.name < b.name
  end)
  local at, header, chunks = 0, {}, { "", "" }
  if metadata ~= nil then
    for key, value in pairs(type(metadata) == "table" and metadata or { metadata }) do
      if type(key) ~= "string" or type(value) ~= "string" or not is_utf8(key) or not is_utf8(value) then
        caller.fail("safetensors: metadata are strings by name, got %s for '%s'", type(value), tostring(key))
      end
    end
    local keys, items = {}, {}
    for key in pairs(metadata) do keys[#keys + 1] = key end
    table.sort(keys)
    for i, key in ipairs(keys) do items[i] = json.encode(key) .. ":" .. json.encode(metadata[key]) end
    if keys[1] then header[1] = '"__metadata__":{' .. table.concat(items, ",") .. "}" end
  end
  for _, e in ipairs(list) do
    local bytes = e.tensor:bytes()
    header[#header + 1] = ('%s:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(json.encode(e.name), CODES[e.tensor.dtype],
      table.concat(e.tensor.shape, ","), at, at + #bytes)
    at = at + #bytes
    chunks[#chunks + 1] = bytes
  end
  local text = "{" .. table.concat(header, ",") .. "}"
  text = text .. (" "):rep(-#text % 8)
  local length, left = {}, #text
  for i = 1, 8 do length[i], left = left % 256, math.floor(left / 256) end
  chunks[1], chunks[2] = string.char(unpack(length)), text
  file.write(path, "safetensors", chunks)
end

return safetensors
