-- SPDX-License-Identifier: MIT
-- format: tensors as text. Rows without brackets, one format for all numbers shown, a footer that says what it is and where it
-- lives. Beyond 1,000 elements only three at each edge are shown, and only those are read from the device; of many matrices the outermost.

local core = require "perilune.core"
local terminal = require "perilune.terminal"

local T = core.tensor

local format = {}

local SUMMARIZE, EDGE = 1000, 3
local MOST_MATRICES = 64 -- where three at each edge would be more, one at each is shown

-- how many elements are shown at each edge of the dimensions that leave some out: cut[d]
local function cuts_of(shape)
  local matrices, edge, cut = 1, EDGE, {}
  for d = 1, #shape - 2 do matrices = matrices * math.min(shape[d], 2 * EDGE) end
  if matrices > MOST_MATRICES then edge = 1 end
  for d, size in ipairs(shape) do
    local at_edge = d > #shape - 2 and EDGE or edge
    if size > 2 * at_edge then cut[d] = at_edge end
  end
  return cut
end

-- appends `more` to `nested` along the dimension `depth` levels down
local function append(nested, more, depth)
  for i, v in ipairs(more) do
    if depth == 1 then nested[#nested + 1] = v else append(nested[i], v, depth - 1) end
  end
  return nested
end

-- the elements to show, nested
local function shown(t, shape, d, cut)
  if d > #shape then return T.totable(t, { int64 = T.dtype(t) == "i64" }) end
  local edge = cut[d]
  if not edge then return shown(t, shape, d + 1, cut) end
  local ranges = {}
  for k = 1, d - 1 do ranges[k] = {} end
  ranges[d] = { 1, edge }
  local head = shown(T.index(t, ranges), shape, d + 1, cut)
  ranges[d] = { -edge, -1 }
  return append(head, shown(T.index(t, ranges), shape, d + 1, cut), d)
end

local function each(nested, fn)
  if type(nested) ~= "table" then return fn(nested) end
  for _, v in ipairs(nested) do each(v, fn) end
end

local function integer_text(v) return (tostring(v):gsub("U?LL$", "")) end

--- The function that writes numbers of this tensor: whole numbers as such, decimals, or scientific where the range needs it.
local function number_writer(dtype, values)
  if dtype == "bool" then return tostring end
  if dtype ~= "f32" and dtype ~= "f64" then return integer_text end
  local largest, smallest, whole = 0, math.huge, true
  each(values, function(v)
    local a = math.abs(v)
    if a == a and a < math.huge then
      if a > largest then largest = a end
      if a > 0 and a < smallest then smallest = a end
      if v % 1 ~= 0 then whole = false end
    end
  end)
  local pattern
  if whole and largest < 1e8 then
    pattern = "%.0f"
  elseif largest >= 1e8 or smallest < 1e-4 or largest / smallest > 1e6 then
    pattern = "%.4e"
  else
    pattern = "%.4f"
  end
  return function(v)
    if v ~= v then return "nan" end
    if v == math.huge then return "inf" elseif v == -math.huge then return "-inf" end
    return (pattern:format(v))
  end
end

-- a row of texts with "..." in the middle where elements were left out
local function texts_of(row, write, edge)
  local out = {}
  for i, v in ipairs(row) do
    out[#out + 1] = write(v)
    if i == edge then out[#out + 1] = "..." end
  end
  return out
end

-- a matrix of texts as lines, in blocks of columns that fit the terminal
local function lines_of(rows, out)
  local width, count = 0, 0
  for _, row in ipairs(rows) do
    count = math.max(count, #row)
    for _, text in ipairs(row) do width = math.max(width, #text) end
  end
  local per_block = math.max(1, math.floor((terminal.size() + 2) / (width + 2)))
  for first = 1, math.max(count, 1), per_block do
    local last = math.min(first + per_block - 1, count)
    if count > per_block then out[#out + 1] = ("Columns %d to %d"):format(first, last) end
    for _, row in ipairs(rows) do
      local line = {}
      for k = first, last do line[#line + 1] = row[k] and (" "):rep(width - #row[k]) .. row[k] or "" end
      out[#out + 1] = table.concat(line, "  ")
    end
  end
end

local function matrix(rows, write, edge_of_rows, edge_of_columns, out)
  local texts = {}
  for i, row in ipairs(rows) do
    texts[#texts + 1] = texts_of(row, write, edge_of_columns)
    if i == edge_of_rows then
      local dots = {}
      for k = 1, #texts[#texts] do dots[k] = "..." end
      texts[#texts + 1] = dots
    end
  end
  lines_of(texts, out)
end

-- every matrix of a tensor with more than two dimensions, under its index
local function slices(nested, d, shape, cut, index, write, out)
  if d == #shape - 1 then
    out[#out + 1] = ("(%s, ., .) ="):format(table.concat(index, ", "))
    matrix(nested, write, cut[d], cut[d + 1], out)
    return
  end
  for i, part in ipairs(nested) do
    index[d] = cut[d] and i > cut[d] and shape[d] - 2 * cut[d] + i or i
    slices(part, d + 1, shape, cut, index, write, out)
    if i == cut[d] then out[#out + 1] = "..." end
  end
  index[d] = nil
end

--- What the tensor is: "[f32 tensor 2x3 on stress, arena epoch 4]".
function format.footer(t)
  local shape, eng, home = T.shape(t), T.engine(t), T.home(t)
  local place = home == "arena" and "arena epoch " .. core.engine.stats(eng).epoch or home
  return ("[%s tensor %s on %s, %s]"):format(T.dtype(t), #shape == 0 and "()" or table.concat(shape, "x"), eng.kind, place)
end

--- The text of a tensor; for tostring.
function format.tensor(t)
  local shape, numel = T.shape(t), T.numel(t)
  if numel == 0 then return format.footer(t) end
  local cut = numel > SUMMARIZE and cuts_of(shape) or {}
  local values = shown(t, shape, 1, cut)
  local write = number_writer(T.dtype(t), values)
  local out = {}
  if #shape == 0 then
    out[1] = write(values)
  elseif #shape == 1 then
    matrix({ values }, write, nil, cut[1], out)
  elseif #shape == 2 then
    matrix(values, write, cut[1], cut[2], out)
  else
    slices(values, 1, shape, cut, {}, write, out)
  end
  out[#out + 1] = format.footer(t)
  return table.concat(out, "\n")
end

return format
