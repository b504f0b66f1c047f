-- SPDX-License-Identifier: MIT
-- page: a figure laid out in pixels and drawn by a painter (svg.lua, png.lua): { line, circle, rect, text, image, finish,
-- close }. y goes downwards.
-- The palette is that of Okabe and Ito, "Color Universal Design" (2008), which the colour-blind can tell apart.

local axes = require "perilune.plot.axes"

local PALETTE = { "0072b2", "d55e00", "009e73", "cc79a7", "e69f00", "56b4e9", "000000" }
local INK, GRID = "333333", "e4e4e4"
local SIZE = 12 -- of letters

local function draw_axes(p, o, box, ax, ay)
  for _, tick in ipairs(ax.ticks) do
    local x = box.x + tick.at * box.w
    p.line({ { x, box.y }, { x, box.y + box.h } }, GRID, 1)
    p.text(x, box.y + box.h + SIZE + 4, tick.text, "middle", SIZE, INK)
  end
  for _, tick in ipairs(ay.ticks) do
    local y = box.y + (1 - tick.at) * box.h
    p.line({ { box.x, y }, { box.x + box.w, y } }, GRID, 1)
    p.text(box.x - 6, y + SIZE / 3, tick.text, "end", SIZE, INK)
  end
  p.line({ { box.x, box.y }, { box.x, box.y + box.h }, { box.x + box.w, box.y + box.h } }, INK, 1)
  if o.xlabel then p.text(box.x + box.w / 2, box.y + box.h + 2 * SIZE + 10, o.xlabel, "middle", SIZE, INK) end
  if o.ylabel then p.text(8, box.y - 8, o.ylabel, "start", SIZE, INK) end
end

local function draw_item(p, item, box, ax, ay, color)
  local function place(x, y) return box.x + x * box.w, box.y + (1 - y) * box.h end
  if item.kind == "line" then
    local run, last = nil, {}
    axes.segments(axes.thinned(item, ax, ay, 2 * box.w), ax, ay, function(x0, y0, x1, y1)
      if not run or x0 ~= last[1] or y0 ~= last[2] then
        if run then p.line(run, color, 1.8) end
        run = { { place(x0, y0) } }
      end
      run[#run + 1] = { place(x1, y1) }
      last[1], last[2] = x1, y1
    end)
    if run then p.line(run, color, 1.8) end
  elseif item.kind == "points" then
    axes.points(item, ax, ay, function(x, y)
      x, y = place(x, y)
      p.circle(x, y, 2.5, color)
    end)
  elseif item.kind == "bars" then
    for i, n in ipairs(item.counts) do
      if ay.shows(n) then
        local x0, y1 = place(math.max(0, ax.at(item.edges[i])), math.max(0, math.min(1, ay.at(n))))
        local x1, y0 = place(math.min(1, ax.at(item.edges[i + 1])), 0)
        if x1 > x0 and y0 > y1 then p.rect(x0, y1, math.max(1, x1 - x0 - 1), y0 - y1, color) end
      end
    end
  end
end

local function draw_legend(p, figure, box)
  local row = 0
  for i, item in ipairs(figure.items) do
    if item.name then
      local y = box.y + 14 + row * (SIZE + 6)
      p.rect(box.x + box.w - 18, y - 8, 10, 10, PALETTE[(i - 1) % #PALETTE + 1])
      p.text(box.x + box.w - 24, y, item.name, "end", SIZE, INK)
      row = row + 1
    end
  end
end

local function draw(figure, p, width, height)
  local o = figure.options
  local top = (o.title and 2 * SIZE or 8) + (o.ylabel and SIZE + 8 or 4)
  if o.title then p.text(width / 2, SIZE + 8, o.title, "middle", SIZE + 2, INK) end
  local first = figure.items[1]
  if first and first.kind == "image" then
    local scale = math.min((width - 16) / math.max(1, first.width), (height - top - 8) / math.max(1, first.height))
    if scale >= 1 then scale = math.floor(scale) end
    local w, h = first.width * scale, first.height * scale
    p.image(first, (width - w) / 2, top + (height - top - 8 - h) / 2, w, h)
    return p.finish()
  end
  local bottom = SIZE + 12 + (o.xlabel and SIZE + 8 or 0)
  local ax, ay = axes.of(figure, math.max(2, math.floor(width / 90)), math.max(2, math.floor(height / 60)))
  local longest = 0
  for _, tick in ipairs(ay.ticks) do longest = math.max(longest, #tick.text) end
  local left = longest * SIZE * 0.62 + 14
  local box = { x = left, y = top, w = math.max(8, width - left - 16), h = math.max(8, height - top - bottom) }
  draw_axes(p, o, box, ax, ay)
  for i, item in ipairs(figure.items) do draw_item(p, item, box, ax, ay, PALETTE[(i - 1) % #PALETTE + 1]) end
  draw_legend(p, figure, box)
  return p.finish()
end

--- The bytes of a picture of width x height pixels, or nil and why there is none.
return function(figure, painter, width, height)
  local p, trouble = painter(width, height)
  if not p then return nil, trouble end
  local ok, bytes, why = pcall(draw, figure, p, width, height)
  p.close()
  if not ok then error(bytes, 0) end
  return bytes, why
end
