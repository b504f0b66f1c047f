-- SPDX-License-Identifier: MIT
-- axes: from values to the unit square and back. Ticks are at round values (Heckbert, "Nice numbers for graph labels", Graphics Gems, 1990);
-- a logarithmic axis has them at powers of ten, a short one at 1, 2 and 5 times those, or as other axes do.

local axes = {}

local LARGEST = 1.7976931348623157e308

local function log10(v) return math.log(v) / math.log(10) end

--- The round number nearest to v: 1, 2 or 5 times a power of ten.
local function nice(v)
  local power = 10 ^ math.floor(log10(v))
  local f = v / power
  return (f < 1.5 and 1 or f < 3 and 2 or f < 7 and 5 or 10) * power
end

--- A tick's text: as few digits as tell it from its neighbours, scientific where that is long.
local function label(v, step)
  if math.abs(v) < step * 1e-9 then return "0" end
  if math.abs(v) >= 1e6 or step < 1e-5 then
    local digits = math.max(1, math.floor(log10(math.abs(v)) + 1e-9) - math.floor(log10(step) + 1e-9) + 1)
    return (("%%.%dg"):format(digits):format(v):gsub("e%+?(-?)0*(%d)", "e%1%2"))
  end
  local decimals = math.max(0, -math.floor(log10(step) + 1e-9))
  return (("%%.%df"):format(decimals)):format(v)
end

--- Ticks at multiples of a round step.
local function even_ticks(a, lo, hi, wanted)
  local step = nice(hi / math.max(1, wanted - 1) - lo / math.max(1, wanted - 1)) -- hi - lo may be infinite
  local ticks = {}
  for i = math.ceil(lo / step - 1e-9), math.floor(hi / step + 1e-9) do ticks[#ticks + 1] = { at = a.at(i * step), text = label(i * step, step) } end
  return ticks
end

--- Ticks of a logarithmic axis from 10^from to 10^to.
local function log_ticks(a, from, to, wanted)
  local first, last, ticks = math.ceil(from - 1e-9), math.floor(to + 1e-9), {}
  if last > first then
    for p = first, last, math.ceil((last - first + 1) / wanted) do ticks[#ticks + 1] = { at = a.at(10 ^ p), text = ("1e%d"):format(p) } end
    return ticks
  end
  for p = math.floor(from), math.ceil(to) do
    for _, f in ipairs { 1, 2, 5 } do
      local v = f * 10 ^ p
      if v >= a.lo * (1 - 1e-9) and v <= a.hi * (1 + 1e-9) then ticks[#ticks + 1] = { at = a.at(v), text = label(v, v) } end
    end
  end
  return #ticks >= 2 and ticks or even_ticks(a, a.lo, a.hi, wanted)
end

--- One axis: shows(v), at(v) in 0 .. 1, ticks as { { at =, text = }, ... }.
local function axis(lo, hi, log, fixed, wanted)
  if lo > hi then lo, hi = log and 1 or 0, log and 10 or 1 end
  local large = math.max(math.abs(lo), math.abs(hi))
  if log then
    if hi < 1e-300 then hi = 1e-300 elseif lo == hi then lo, hi = lo / 2, math.min(LARGEST, hi * 2) end
  elseif hi - lo <= large * 1e-12 or hi - lo < 1e-300 then -- nothing that ticks could tell apart
    local by = large < 1e-299 and 0.5 or large * 0.1
    lo, hi = math.max(-LARGEST, lo - by), math.min(LARGEST, hi + by)
  elseif not fixed then
    local by = hi * 0.03 - lo * 0.03
    lo, hi = math.max(-LARGEST, lo - by), math.min(LARGEST, hi + by)
  end
  local a = { lo = lo, hi = hi, ticks = {} }
  if log then
    local from, over = log10(lo), log10(hi) - log10(lo)
    function a.shows(v) return v > 0 and v < math.huge end
    function a.at(v) return (log10(v) - from) / over end
    a.ticks = log_ticks(a, from, from + over, wanted)
    return a
  end
  function a.shows(v) return v - v == 0 end
  function a.at(v) return (v / 2 - lo / 2) / (hi / 2 - lo / 2) end -- halves, whose difference is finite
  a.ticks = even_ticks(a, lo, hi, wanted)
  return a
end

local function widen(range, v, log)
  if v - v ~= 0 or (log and v <= 0) then return end
  if v < range[1] then range[1] = v end
  if v > range[2] then range[2] = v end
end

--- The axes x and y of a figure.
function axes.of(figure, nx, ny)
  local o = figure.options
  local logx, logy = o.log and o.log:find "x" and true, o.log and o.log:find "y" and true
  local rx, ry = { math.huge, -math.huge }, { math.huge, -math.huge }
  local bars = false
  for _, item in ipairs(figure.items) do
    if item.kind == "bars" then
      bars = true
      for _, e in ipairs(item.edges) do widen(rx, e, logx) end
      for _, n in ipairs(item.counts) do widen(ry, n, logy) end
      if not logy then widen(ry, 0) end
    elseif item.x then
      for i = 1, #item.x do
        local x, y = item.x[i], item.y[i]
        if x - x == 0 and y - y == 0 and not (logx and x <= 0) and not (logy and y <= 0) then
          widen(rx, x)
          widen(ry, y)
        end
      end
    end
  end
  if o.xlim then rx = o.xlim end
  if o.ylim then ry = o.ylim end
  return axis(rx[1], rx[2], logx, o.xlim or bars, nx), axis(ry[1], ry[2], logy, o.ylim or bars, ny)
end

--- The part of a segment within the unit square, nil if none (Liang and Barsky, "A new concept and method for line clipping", 1984).
function axes.clip(x0, y0, x1, y1)
  local from, to, dx, dy = 0, 1, x1 - x0, y1 - y0
  local function edge(p, q)
    if p == 0 then return q >= 0 end
    local r = q / p
    if p < 0 then
      if r > to then return false end
      if r > from then from = r end
    else
      if r < from then return false end
      if r < to then to = r end
    end
    return true
  end
  if edge(-dx, x0) and edge(dx, 1 - x0) and edge(-dy, y0) and edge(dy, 1 - y0) then
    return x0 + from * dx, y0 + from * dy, x0 + to * dx, y0 + to * dy
  end
end

--- A line that looks the same in so many columns: of the points of a column only the first, the lowest, the highest and the last (Jugel et al.,
--- "M4", 2014). The item itself where it is short already, or where x does not grow.
function axes.thinned(item, ax, ay, columns)
  local xs, ys = item.x, item.y
  if #xs <= 8 * columns then return item end
  local out = { x = {}, y = {} }
  local first, low, high, last, column
  local function keep(i)
    if i and i ~= out.newest then out.x[#out.x + 1], out.y[#out.y + 1], out.newest = xs[i], ys[i], i end
  end
  local function close()
    keep(first)
    keep(low and math.min(low, high))
    keep(high and math.max(low, high))
    keep(last)
    first, low, high, last = nil, nil, nil, nil
  end
  for i = 1, #xs do
    local x, y = xs[i], ys[i]
    if i > 1 and x < xs[i - 1] then return item end
    if ax.shows(x) and ay.shows(y) then
      local at = math.floor(ax.at(x) * columns)
      if not first or at ~= column then
        close()
        first, low, high, column = i, i, i, at
      end
      if y < ys[low] then low = i elseif y > ys[high] then high = i end
      last = i
    else
      close()
      keep(i)
    end
  end
  close()
  return out
end

--- Calls fn(x0, y0, x1, y1) for each visible segment of a line, in the unit square. What an axis cannot show interrupts the line; a value between two
--- such is a segment without length.
function axes.segments(item, ax, ay, fn)
  local px, py, alone
  for i = 1, #item.x + 1 do
    local x, y = item.x[i], item.y[i]
    if x and ax.shows(x) and ay.shows(y) then
      x, y = ax.at(x), ay.at(y)
      if px then
        local x0, y0, x1, y1 = axes.clip(px, py, x, y)
        if x0 then fn(x0, y0, x1, y1) end
        alone = false
      else
        alone = true
      end
      px, py = x, y
    else
      if px and alone and axes.clip(px, py, px, py) then fn(px, py, px, py) end
      px, py = nil, nil
    end
  end
end

--- Calls fn(x, y) for each visible point, in the unit square.
function axes.points(item, ax, ay, fn)
  for i = 1, #item.x do
    local x, y = item.x[i], item.y[i]
    if ax.shows(x) and ay.shows(y) then
      x, y = ax.at(x), ay.at(y)
      if axes.clip(x, y, x, y) then fn(x, y) end
    end
  end
end

return axes
