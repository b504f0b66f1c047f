-- SPDX-License-Identifier: MIT
-- plot: curves, points, histograms and images, drawn in the terminal and as SVG or PNG files. A figure is data until it is drawn: printing it
-- draws it with characters, figure:save(path) as a picture. Values come from tensors, which are read once, or from tables of numbers.

local axes = require "perilune.plot.axes"
local caller = require "perilune.caller"
local core = require "perilune.core"
local suggest = require "perilune.suggest"

local T = core.tensor

local plot = {}

-- What is drawn together.
---@class perilune.plot.Figure
---@field items table[] { kind =, x =, y =, name = } | { kind = "bars", edges =, counts =, name = } | { kind = "image", ... }
---@field options perilune.plot.Options
local Figure = {}
Figure.__index = Figure

---@class perilune.plot.Options
---@field title? string
---@field xlabel? string
---@field ylabel? string
---@field name? string of the series, for the legend
---@field log? "x"|"y"|"xy" axes that are logarithmic: what is not positive is left out
---@field xlim? number[] lowest and highest value shown
---@field ylim? number[]
---@field width? integer of the drawing in the terminal, in columns
---@field height? integer in lines
---@field bins? integer of a histogram
---@field lo? number of an image: this is black,
---@field hi? number and this white

local function is_limits(v) return type(v) == "table" and type(v[1]) == "number" and type(v[2]) == "number" and v[1] < v[2] end
local function is_count(least) return function(v) return type(v) == "number" and v % 1 == 0 and v >= least and v <= 10000 end end
local function is_text(v) return type(v) == "string" end
local function is_number(v) return type(v) == "number" and v == v end

local CHECKS = {
  title = { is_text, "a string" }, xlabel = { is_text, "a string" }, ylabel = { is_text, "a string" }, name = { is_text, "a string" },
  log = { function(v) return v == "x" or v == "y" or v == "xy" end, '"x", "y" or "xy"' },
  xlim = { is_limits, "two numbers, the lower one first" }, ylim = { is_limits, "two numbers, the lower one first" },
  width = { is_count(16), "a whole number, 16 or more" }, height = { is_count(4), "a whole number, 4 or more" },
  bins = { is_count(1), "a whole number, 1 or more" }, lo = { is_number, "a number" }, hi = { is_number, "a number" },
}

local function fail(fn, text, ...) caller.fail("plot.%s: " .. text, fn, ...) end

local function check_options(fn, given)
  if given == nil then return {} end
  if type(given) ~= "table" or T.is_tensor(given) then fail(fn, "a table of options was expected, got %s", type(given)) end
  local options = {}
  for name, value in pairs(given) do
    local check = CHECKS[name]
    if not check then fail(fn, "there is no option '%s'%s", tostring(name), suggest(tostring(name), CHECKS)) end
    if not check[1](value) then fail(fn, "option '%s' is %s, got %s", name, check[2], tostring(value)) end
    options[name] = value
  end
  return options
end

--- Numbers of a tensor or table, in a row.
local function numbers(fn, what, values)
  local list = {}
  if T.is_tensor(values) then
    if T.dtype(values) == "bool" then values = T.to(values, "u8") end
    values = T.totable(values)
    if type(values) == "number" then values = { values } end
  end
  if type(values) ~= "table" then fail(fn, "%s: a tensor or a table of numbers was expected, got %s", what, type(values)) end
  local function add(v)
    if type(v) == "table" then
      for _, inner in ipairs(v) do add(inner) end
    elseif type(v) == "number" then
      list[#list + 1] = v
    elseif T.is_tensor(v) then
      add(T.totable(v))
    else
      fail(fn, "%s: a number was expected, got %s", what, type(v))
    end
  end
  add(values)
  return list
end

local function series(fn, kind, x, y, name)
  y = numbers(fn, "y", y)
  if x == nil then
    x = {}
    for i = 1, #y do x[i] = i end
  else
    x = numbers(fn, "x", x)
  end
  if #x ~= #y then fail(fn, "x has %d values, y has %d", #x, #y) end
  return { kind = kind, x = x, y = y, name = name }
end

--- Arguments (y), (x, y) or (list of { x =, y =, name = }), each with options behind; adds the series to the figure.
local function add_series(figure, fn, kind, a, b, c)
  local many = type(a) == "table" and not T.is_tensor(a) and type(a[1]) == "table" and not T.is_tensor(a[1]) and a[1].y ~= nil
  local given
  if a == nil then fail(fn, "what shall be drawn?") end
  if many then
    given = b
    for i, s in ipairs(a) do
      if type(s) ~= "table" or s.y == nil then fail(fn, "series %d: a table { y = values } was expected", i) end
      figure.items[#figure.items + 1] = series(fn, kind, s.x, s.y, s.name)
    end
  elseif b ~= nil and (T.is_tensor(b) or (type(b) == "table" and (b[1] ~= nil or next(b) == nil) and c == nil) or c ~= nil) then
    given = c
    figure.items[#figure.items + 1] = series(fn, kind, a, b, c and c.name)
  else
    given = b
    figure.items[#figure.items + 1] = series(fn, kind, nil, a, type(b) == "table" and b.name or nil)
  end
  for name, value in pairs(check_options(fn, given)) do figure.options[name] = value end
  return figure
end

local function new() return setmetatable({ items = {}, options = {} }, Figure) end

--- Values joined by lines: line(y), line(x, y), or line { { x =, y =, name = }, ... }, each with options behind. NaN leaves a gap.
---@param x any tensor or table of numbers: x, or y where there is no other
---@param y? any
---@param options? perilune.plot.Options
---@return perilune.plot.Figure
function plot.line(x, y, options) return add_series(new(), "line", "line", x, y, options) end

--- Points, with the arguments of plot.line.
---@param x any
---@param y? any
---@param options? perilune.plot.Options
---@return perilune.plot.Figure
function plot.scatter(x, y, options) return add_series(new(), "scatter", "points", x, y, options) end

--- One more curve in a figure; returns the figure.
---@return perilune.plot.Figure
function Figure:line(x, y, options) return add_series(self, "line", "line", x, y, options) end

--- More points in a figure; returns the figure.
---@return perilune.plot.Figure
function Figure:scatter(x, y, options) return add_series(self, "scatter", "points", x, y, options) end

--- How many values lie in each of `bins` equal parts of their range (without the option: by Sturges 1926, at most 100). What is not finite is left out.
---@param values any tensor or table of numbers
---@param options? perilune.plot.Options
---@return perilune.plot.Figure
function plot.histogram(values, options)
  local figure = new()
  figure.options = check_options("histogram", options)
  local list, lo, hi = {}, math.huge, -math.huge
  for _, v in ipairs(numbers("histogram", "values", values)) do
    if v - v == 0 then
      list[#list + 1] = v
      if v < lo then lo = v end
      if v > hi then hi = v end
    end
  end
  local bins = figure.options.bins or math.min(100, math.ceil(math.log(math.max(#list, 1)) / math.log(2)) + 1)
  if #list == 0 then lo, hi = 0, 1 end
  if lo == hi then lo, hi = lo - 0.5, hi + 0.5 end
  local edges, counts = {}, {}
  for i = 0, bins do edges[i + 1] = lo + (hi - lo) * i / bins end
  for i = 1, bins do counts[i] = 0 end
  for _, v in ipairs(list) do
    local i = math.min(bins, math.floor((v - lo) / (hi - lo) * bins) + 1)
    counts[i] = counts[i] + 1
  end
  figure.items[1] = { kind = "bars", edges = edges, counts = counts, name = figure.options.name }
  return figure
end

--- A picture: (H, W) in grey, or (H, W, 3) in colours, from lo (0 for u8, else the smallest value) to hi (255 for u8, else the largest).
---@param values any tensor, or table of rows
---@param options? perilune.plot.Options
---@return perilune.plot.Figure
function plot.image(values, options)
  local figure = new()
  figure.options = check_options("image", options)
  local rows, lo, hi = values, figure.options.lo, figure.options.hi
  if T.is_tensor(values) then
    local shape = T.shape(values)
    if not (#shape == 2 or #shape == 3 and shape[3] == 3) then
      fail("image", "shape (H, W) or (H, W, 3) was expected, got (%s)", table.concat(shape, ", "))
    end
    if T.dtype(values) == "u8" then lo, hi = lo or 0, hi or 255 end
    if T.dtype(values) == "bool" then values = T.to(values, "u8") end
    rows = T.totable(values)
  elseif type(values) ~= "table" then
    fail("image", "a tensor or a table of rows was expected, got %s", type(values))
  end
  local width = type(rows[1]) == "table" and #rows[1] or 0
  local list = {}
  for i, row in ipairs(rows) do
    if type(row) ~= "table" or #row ~= width then fail("image", "row %d: %d values were expected", i, width) end
    for _, v in ipairs(numbers("image", "row " .. i, row)) do list[#list + 1] = v end
  end
  local small, large = math.huge, -math.huge
  for _, v in ipairs(list) do
    if v - v == 0 then small, large = math.min(small, v), math.max(large, v) end
  end
  lo, hi = lo or (small < math.huge and small or 0), hi or (large > -math.huge and large or 1)
  if lo >= hi then hi = lo + 1 end
  local channels = width > 0 and #rows > 0 and #list / (width * #rows) or 1
  if channels ~= 1 and channels ~= 3 then fail("image", "each element is a number, or three of them") end
  for i, v in ipairs(list) do
    local level = (v - lo) / (hi - lo)
    list[i] = v ~= v and 0 or math.max(0, math.min(1, level))
  end
  figure.items[1] = { kind = "image", width = width, height = #rows, channels = channels, levels = list, lo = lo, hi = hi }
  return figure
end

--- The drawing in characters. Without a size: as wide as the terminal, a third as high. `color` (whether standard output shows colours) makes
--- it with escape sequences.
---@param opts? { width?: integer, height?: integer, color?: boolean }
---@return string
function Figure:text(opts) return require("perilune.plot.text")(self, opts or {}) end

function Figure:__tostring() return self:text() end

--- Writes a picture: SVG, or PNG, by the name's ending. The file is whole or not there.
---@param path string ending in .svg or .png
---@param opts? { width?: integer, height?: integer } in pixels, 640 x 400
---@return perilune.plot.Figure
function Figure:save(path, opts)
  local kind = type(path) == "string" and path:lower():match "%.(%a+)$"
  if kind ~= "svg" and kind ~= "png" then
    fail("save", "a name that ends in .svg or .png was expected, got %s", type(path) == "string" and ("%q"):format(path) or type(path))
  end
  opts = opts or {}
  for name, value in pairs(opts) do
    if name ~= "width" and name ~= "height" then fail("save", "there is no option '%s'", tostring(name)) end
    if not is_count(64)(value) then fail("save", "option '%s' is a whole number from 64 to 10000, got %s", name, tostring(value)) end
  end
  local painter = require("perilune.plot." .. kind)
  local bytes, trouble = require("perilune.plot.page")(self, painter, opts.width or 640, opts.height or 400)
  if not bytes then fail("save", "%s", trouble) end
  require("perilune.data.file").write(path, "plot.save", { bytes })
  return self
end

--- The ranges and ticks of the figure's axes, `nx` and `ny` ticks being about right.
function Figure:axes(nx, ny) return axes.of(self, nx, ny) end

return plot
