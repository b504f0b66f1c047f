-- SPDX-License-Identifier: MIT
-- text: a figure in characters. Lines and points are dots of braille characters, two by four in each; without colours the second series and
-- those after it are drawn with letters of their own, so that they can be told apart. Bars and images are blocks.

local axes = require "perilune.plot.axes"
local terminal = require "perilune.terminal"

local DOT = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 } } -- by row and column, Unicode 2800 on
local MARKS = { "o", "x", "+", "*", "#", "@" }
local COLORS = { 34, 31, 32, 35, 33, 36 }
local EIGHTHS = { "\226\150\129", "\226\150\130", "\226\150\131", "\226\150\132", "\226\150\133", "\226\150\134", "\226\150\135", "\226\150\136" }
local SHADES = { " ", "\226\150\145", "\226\150\146", "\226\150\147", "\226\150\136" }
local UPPER_HALF = "\226\150\128"

--- The UTF-8 of U+2800 + bits.
local function braille(bits) return string.char(0xe2, 0xa0 + math.floor(bits / 64), 0x80 + bits % 64) end

--- How many columns a text takes: its characters, as far as each is as wide as a letter.
local function columns_of(text) return select(2, text:gsub("[^\128-\191]", "")) end

local function pad_left(text, width) return (" "):rep(width - columns_of(text)) .. text end

local function centered(text, width)
  local left = math.max(0, math.floor((width - columns_of(text)) / 2))
  return (" "):rep(left) .. text
end

-- cells of a drawing: dots, or a character that lies over them; the series that drew last gives the colour
local function new_canvas(width, height)
  local c = { width = width, height = height, bits = {}, mark = {}, owner = {} }
  for i = 1, width * height do c.bits[i] = 0 end
  function c.cell(column, row) return (row - 1) * width + column end
  --- A dot at (x, y) in the unit square, y upwards.
  function c.dot(x, y, owner)
    local px, py = math.min(2 * width - 1, math.floor(x * 2 * width)), math.min(4 * height - 1, math.floor((1 - y) * 4 * height))
    local i = c.cell(math.floor(px / 2) + 1, math.floor(py / 4) + 1)
    local bit = DOT[py % 4 + 1][px % 2 + 1]
    if c.bits[i] % (2 * bit) < bit then c.bits[i] = c.bits[i] + bit end
    c.owner[i] = owner
  end
  function c.letter(x, y, owner, letter)
    local column, row = math.min(width, math.floor(x * width) + 1), math.min(height, math.floor((1 - y) * height) + 1)
    local i = c.cell(column, row)
    c.mark[i], c.owner[i] = letter, owner
  end
  return c
end

--- Points of a segment, closer than the dots.
local function walk(x0, y0, x1, y1, width, height, fn)
  local steps = math.max(1, math.ceil(math.max(math.abs(x1 - x0) * 2 * width, math.abs(y1 - y0) * 4 * height)))
  for i = 0, steps do fn(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps) end
end

local function draw_bars(item, ax, ay, canvas, owner)
  for column = 1, canvas.width do
    local at = (column - 0.5) / canvas.width
    for i, n in ipairs(item.counts) do
      if at >= ax.at(item.edges[i]) and at < ax.at(item.edges[i + 1]) and ay.shows(n) then
        local eighths = math.floor(math.min(1, ay.at(n)) * canvas.height * 8 + 0.5)
        if n > 0 and eighths == 0 then eighths = 1 end -- what is there is seen
        for row = canvas.height, 1, -1 do
          local level = math.min(8, eighths - (canvas.height - row) * 8)
          if level > 0 then
            local cell = canvas.cell(column, row)
            canvas.mark[cell], canvas.owner[cell] = EIGHTHS[level], owner
          end
        end
      end
    end
  end
end

local function paint(canvas, color)
  local lines = {}
  for row = 1, canvas.height do
    local parts, current = {}, nil
    for column = 1, canvas.width do
      local i = canvas.cell(column, row)
      local text = canvas.mark[i] or (canvas.bits[i] > 0 and braille(canvas.bits[i])) or " "
      local wanted = color and text ~= " " and COLORS[(canvas.owner[i] - 1) % #COLORS + 1] or nil
      if wanted ~= current then
        parts[#parts + 1] = wanted and ("\27[%dm"):format(wanted) or "\27[0m"
        current = wanted
      end
      parts[#parts + 1] = text
    end
    if current then parts[#parts + 1] = "\27[0m" end
    lines[row] = table.concat(parts)
  end
  return lines
end

--- The labels under the axis, as many as do not touch.
local function tick_line(ax, width)
  local cells, free = {}, 1
  for i = 1, width do cells[i] = " " end
  for _, tick in ipairs(ax.ticks) do
    local n = #tick.text
    local first = math.floor(tick.at * width + 0.5) + 1 - math.floor(n / 2)
    first = math.max(1, math.min(first, width - n + 1))
    if first >= free then
      for k = 1, n do cells[first + k - 1] = tick.text:sub(k, k) end
      free = first + n + 2
    end
  end
  return (table.concat(cells):gsub(" +$", ""))
end

local function legend(figure, color)
  local parts, owner = {}, 0
  for _, item in ipairs(figure.items) do
    owner = owner + 1
    if item.name then
      local mark = not color and owner > 1 and MARKS[(owner - 2) % #MARKS + 1] or item.kind == "bars" and EIGHTHS[8] or braille(0x12 + 0x24)
      if color then mark = ("\27[%dm%s\27[0m"):format(COLORS[(owner - 1) % #COLORS + 1], mark) end
      parts[#parts + 1] = mark .. " " .. item.name
    end
  end
  return parts[1] and table.concat(parts, "   ")
end

local function draw_curves(figure, width, height, color)
  local o = figure.options
  local rows = height - 2 - (o.title and 1 or 0) - (o.xlabel and 1 or 0) - (o.ylabel and 1 or 0)
  local names = legend(figure, color)
  if names then rows = rows - 1 end
  rows = math.max(2, rows)
  local ax, ay = axes.of(figure, math.max(2, math.floor(width / 12)), math.max(4, math.floor(rows / 3)))
  local margin = 1
  for _, tick in ipairs(ay.ticks) do margin = math.max(margin, #tick.text) end
  local canvas = new_canvas(math.max(8, width - margin - 2), rows)
  for owner, item in ipairs(figure.items) do
    local letter = not color and owner > 1 and MARKS[(owner - 2) % #MARKS + 1]
    local function put(x, y)
      if letter then canvas.letter(x, y, owner, letter) else canvas.dot(x, y, owner) end
    end
    if item.kind == "line" then
      axes.segments(axes.thinned(item, ax, ay, 2 * canvas.width), ax, ay, function(x0, y0, x1, y1) walk(x0, y0, x1, y1, canvas.width, rows, put) end)
    elseif item.kind == "points" then
      axes.points(item, ax, ay, put)
    elseif item.kind == "bars" then
      draw_bars(item, ax, ay, canvas, owner)
    end
  end
  local left = {}
  for _, tick in ipairs(ay.ticks) do
    local row = math.min(rows, math.floor((1 - tick.at) * rows) + 1)
    left[row] = tick.text
  end
  local lines = {}
  if o.title then lines[1] = centered(o.title, width) end
  if o.ylabel then lines[#lines + 1] = o.ylabel end
  for row, text in ipairs(paint(canvas, color)) do
    local body = pad_left(left[row] or "", margin) .. (left[row] and " \226\148\164" or " \226\148\130") .. text
    lines[#lines + 1] = (body:gsub(" +$", ""))
  end
  local ruler = {}
  for i = 1, canvas.width do ruler[i] = "\226\148\128" end
  for _, tick in ipairs(ax.ticks) do ruler[math.min(canvas.width, math.floor(tick.at * canvas.width + 0.5) + 1)] = "\226\148\172" end
  lines[#lines + 1] = (" "):rep(margin + 1) .. "\226\148\148" .. table.concat(ruler)
  lines[#lines + 1] = (" "):rep(margin + 2) .. tick_line(ax, canvas.width)
  if o.xlabel then lines[#lines + 1] = (" "):rep(margin + 2) .. centered(o.xlabel, canvas.width) end
  if names then lines[#lines + 1] = (" "):rep(margin + 2) .. names end
  return table.concat(lines, "\n")
end

--- Mean level of a rectangle of an image, per channel; the rectangle is not empty.
local function average(item, x0, x1, y0, y1)
  local sum, n, ch = { 0, 0, 0 }, 0, item.channels
  for y = y0, math.max(y0, y1 - 1) do
    for x = x0, math.max(x0, x1 - 1) do
      local at = (y * item.width + x) * ch
      for c = 1, 3 do sum[c] = sum[c] + item.levels[at + (ch == 3 and c or 1)] end
      n = n + 1
    end
  end
  return sum[1] / n, sum[2] / n, sum[3] / n
end

--- A pixel is two columns wide, or with colours one column and half a line; large images are averaged down.
local function draw_image(item, title, width, height, color)
  local across = color and 1 or 2
  local down = color and 2 or 1
  local shrink = math.max(1, item.width * across / width, item.height / (height * down))
  local w, h = math.max(1, math.floor(item.width / shrink)), math.max(1, math.floor(item.height / shrink))
  if item.width == 0 or item.height == 0 then return "(an image without pixels)" end
  local function at(x, y)
    return average(item, math.floor(x * item.width / w), math.floor((x + 1) * item.width / w), math.floor(y * item.height / h),
      math.floor((y + 1) * item.height / h))
  end
  local lines = {}
  if title then lines[1] = centered(title, w * across) end
  for y = 0, h - 1, down do
    local parts = {}
    for x = 0, w - 1 do
      local r, g, b = at(x, y)
      if color then
        local function byte(v) return math.floor(v * 255 + 0.5) end
        parts[#parts + 1] = ("\27[38;2;%d;%d;%dm"):format(byte(r), byte(g), byte(b))
        if y + 1 < h then
          local r2, g2, b2 = at(x, y + 1)
          parts[#parts + 1] = ("\27[48;2;%d;%d;%dm"):format(byte(r2), byte(g2), byte(b2))
        end
        parts[#parts + 1] = UPPER_HALF
      else
        local level = 0.299 * r + 0.587 * g + 0.114 * b -- luma of ITU-R BT.601
        parts[#parts + 1] = SHADES[math.min(5, math.floor(level * 5) + 1)]:rep(2)
      end
    end
    if color then parts[#parts + 1] = "\27[0m" end
    lines[#lines + 1] = table.concat(parts)
  end
  return table.concat(lines, "\n")
end

return function(figure, opts)
  local columns, rows = terminal.size()
  local o = figure.options
  local width = opts.width or o.width or math.min(columns - 1, 100)
  local height = opts.height or o.height or math.max(8, math.min(math.floor(width / 4), rows - 2))
  local color = opts.color
  if color == nil then color = terminal.colors(1) end
  local first = figure.items[1]
  if first and first.kind == "image" then return draw_image(first, o.title, width, height, color) end
  return draw_curves(figure, math.max(16, width), math.max(4, height), color)
end
