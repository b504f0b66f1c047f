-- SPDX-License-Identifier: MIT
-- text: tensors from CSV, from raw bytes and from plain text. All are persistent. Rows and fields in messages count from 1, bytes from 0.

local ffi = require "ffi"
local core = require "perilune.core"
local caller = require "perilune.caller"
local check = require "perilune.nn.check"
local elements = require "perilune.data.elements"
local file = require "perilune.data.file"

local text = {}

local fail = caller.fail

local function checked_dtype(what, dtype)
  if not elements.sizes[dtype] then fail("%s: there is no dtype %q", what, tostring(dtype)) end
  return dtype
end

--- The fields of a line, nil if quotes are wrong; quotes around a field may hold the delimiter, and two of them stand for one (RFC 4180, of one line).
local function fields_of(line, delimiter)
  local list = {}
  if not line:find('"', 1, true) then
    local at = 1
    while true do
      local stop = line:find(delimiter, at, true)
      list[#list + 1] = line:sub(at, (stop or 0) - 1)
      if not stop then return list end
      at = stop + 1
    end
  end
  local blanks = delimiter == " " and "^\t*" or delimiter == "\t" and "^ *" or "^[ \t]*" -- around quotes
  local at = 1
  while true do
    local quoted, behind = line:match(blanks .. '"([^"]*)"()', at)
    local stop
    if quoted then
      while line:sub(behind, behind) == '"' do -- a quote within the field
        local more, stop_of_more = line:match('^"([^"]*)"()', behind)
        if not more then return nil end
        quoted, behind = quoted .. '"' .. more, stop_of_more
      end
      list[#list + 1], stop = quoted, line:match(blanks .. "()", behind)
      if stop <= #line and line:sub(stop, stop) ~= delimiter then return nil end
      if stop > #line then return list end
    else
      stop = line:find(delimiter, at, true)
      list[#list + 1] = line:sub(at, (stop or 0) - 1)
      if not stop then return list end
    end
    at = stop + 1
  end
end

--- A table of numbers, one row a line. Returns the tensor (rows, columns) and the names in the first line, if it has any. Empty lines are skipped.
--- Options: header: true, false, or nil for "if the first line has a field that is no number"; delimiter (","), dtype ("f32"), missing: what an empty
--- field is (an error without).
---@param eng userdata
---@param path string
---@param options? { header?: boolean, delimiter?: string, dtype?: string, missing?: number }
---@return userdata, string[]?
function text.csv(eng, path, options)
  check.engine("csv", eng)
  options = check.options("csv", options, { header = check.none, delimiter = ",", dtype = "f32", missing = check.none })
  local dtype = checked_dtype("csv", options.dtype)
  if #options.delimiter ~= 1 then fail("csv: the delimiter is one character, got %q", options.delimiter) end
  local bytes = file.read(path, "csv")
  local values, n, names, width, number = {}, 0, nil, nil, 0
  for line in bytes:gmatch "([^\n]*)\n?" do
    number = number + 1
    line = line:gsub("\r$", "")
    if line:find "%S" then
      local fields = fields_of(line, options.delimiter) or fail("csv: %s:%d: text behind a closing quote", path, number)
      if not width then
        width = #fields
        local named = options.header
        if named == nil then
          for _, field in ipairs(fields) do named = named or (field:find "%S" and not tonumber(field)) end
        end
        names = named and fields or false
      end
      if #fields ~= width then fail("csv: %s:%d: %d fields, the first line has %d", path, number, #fields, width) end
      if fields ~= names then
        for i, field in ipairs(fields) do
          local value = tonumber(field)
          if not value and not field:find "%S" then value = options.missing end
          if not value then fail("csv: %s:%d: field %d is %q, which is no number", path, number, i, field) end
          n = n + 1
          values[n] = value
        end
      end
    end
  end
  if not width then fail("csv: %s holds no line", path) end
  local data, at, why = elements.encode(values, n, dtype)
  if not data then fail("csv: %s: row %d, field %d: %s", path, math.floor((at - 1) / width) + 1, (at - 1) % width + 1, why) end
  return elements.tensor(eng, { n / width, width }, dtype, data), names or nil
end

--- The bytes of a file as a tensor, little-endian. Options: dtype ("f32"), shape (what the file holds, one dim; one size may be -1), offset (0): bytes to skip.
---@param eng userdata
---@param path string
---@param options? { dtype?: string, shape?: integer[], offset?: integer }
function text.raw(eng, path, options)
  check.engine("raw", eng)
  options = check.options("raw", options, { dtype = "f32", shape = check.none, offset = 0 })
  local dtype = checked_dtype("raw", options.dtype)
  check.count("raw", "offset", options.offset, 0)
  local bytes = file.read(path, "raw")
  if options.offset > #bytes then fail("raw: %s ends at byte %d, before the offset %d", path, #bytes, options.offset) end
  bytes = bytes:sub(options.offset + 1)
  local size = elements.sizes[dtype]
  local shape, open, known = {}, nil, 1
  for i, s in ipairs(options.shape or { -1 }) do
    shape[i] = s
    if s == -1 and not open then open = i else known = known * check.count("raw", "size " .. i, s, 0) end
  end
  if open then
    shape[open] = known > 0 and math.floor(#bytes / size / known) or 0
    known = known * shape[open]
  end
  if known * size ~= #bytes then
    fail("raw: %s holds %d bytes from byte %d on, shape %s of %s needs %.0f", path, #bytes, options.offset, check.shape_text(shape), dtype, known * size)
  end
  local data, at, why = elements.decode(bytes, dtype)
  if not data then fail("raw: %s has %s at byte %d", path, why, options.offset + at * size) end
  return elements.tensor(eng, shape, dtype, data)
end

---@class perilune.Vocabulary
---@field size integer
---@field bytes string  byte number i is that of id i
local Vocabulary = {}
Vocabulary.__index = Vocabulary

--- The bytes that occur in a text, sorted, as ids from 1 on.
---@param sample string
---@return perilune.Vocabulary
function text.vocabulary(sample)
  if type(sample) ~= "string" then fail("vocabulary: a text was expected, got %s", type(sample)) end
  local seen, ids, list = {}, {}, {}
  for i = 1, #sample do seen[sample:byte(i)] = true end
  for b = 0, 255 do
    if seen[b] then
      list[#list + 1] = string.char(b)
      ids[b] = #list
    end
  end
  return setmetatable({ size = #list, bytes = table.concat(list), ids = ids }, Vocabulary)
end

--- The ids of a text, a list.
---@param sample string
---@return integer[]
function Vocabulary:encode(sample)
  local list = {}
  for i = 1, #sample do
    list[i] = self.ids[sample:byte(i)]
    if not list[i] then fail("vocabulary: %q at byte %d has no id", sample:sub(i, i), i - 1) end
  end
  return list
end

--- The text of ids, a list or a tensor.
---@param ids integer[]|userdata
function Vocabulary:decode(ids)
  local list = {}
  for i, id in ipairs(core.tensor.is_tensor(ids) and ids:reshape({ -1 }):totable() or ids) do
    list[i] = self.bytes:sub(id, id)
    if list[i] == "" or id < 1 then fail("vocabulary: id %s is outside 1..%d", tostring(id), self.size) end
  end
  return table.concat(list)
end

--- A text file as a tensor of ids (i64), one for each byte, and its vocabulary. Options: vocabulary: one made before.
---@param eng userdata
---@param path string
---@return userdata, perilune.Vocabulary
function text.text(eng, path, options)
  check.engine("text", eng)
  options = check.options("text", options, { vocabulary = check.none })
  local sample = file.read(path, "text")
  local vocabulary = options.vocabulary or text.vocabulary(sample)
  local ids = ffi.new("int64_t[?]", math.max(#sample, 1))
  for i = 1, #sample do
    local id = vocabulary.ids[sample:byte(i)]
    if not id then fail("text: %s: %q at byte %d is not in the vocabulary", path, sample:sub(i, i), i - 1) end
    ids[i - 1] = id
  end
  return elements.tensor(eng, { #sample }, "i64", ffi.string(ids, #sample * 8)), vocabulary
end

return text
