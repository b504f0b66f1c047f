-- SPDX-License-Identifier: MIT
-- svg: a painter that writes SVG 1.1. Nothing in it refers to anything outside the file.

local NAMES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }

--- Text as XML takes it: what XML 1.0 does not allow is left out.
local function escaped(text) return (text:gsub("[%z\1-\8\11\12\14-\31]", ""):gsub('[&<>"]', NAMES)) end

local function number(v) return (("%.2f"):format(v):gsub("%.?0+$", "")) end

return function(width, height)
  local parts = {
    ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">'):format(width, height, width, height),
    '<rect width="100%" height="100%" fill="#ffffff"/>',
  }
  local p = {}
  local function put(...) parts[#parts + 1] = (...):format(select(2, ...)) end

  function p.line(points, color, thick)
    local at = {}
    for i, q in ipairs(points) do at[i] = number(q[1]) .. "," .. number(q[2]) end
    put('<polyline points="%s" fill="none" stroke="#%s" stroke-width="%s" stroke-linejoin="round" stroke-linecap="round"/>', table.concat(at, " "),
      color, number(thick))
  end

  function p.circle(x, y, r, color) put('<circle cx="%s" cy="%s" r="%s" fill="#%s"/>', number(x), number(y), number(r), color) end

  function p.rect(x, y, w, h, color)
    put('<rect x="%s" y="%s" width="%s" height="%s" fill="#%s"/>', number(x), number(y), number(w), number(h), color)
  end

  function p.text(x, y, text, anchor, size, color)
    put('<text x="%s" y="%s" font-family="sans-serif" font-size="%s" text-anchor="%s" fill="#%s">%s</text>', number(x), number(y), number(size),
      anchor, color, escaped(text))
  end

  --- Each run of equal pixels is a rectangle.
  function p.image(item, x, y, w, h)
    local dx, dy, ch = w / math.max(1, item.width), h / math.max(1, item.height), item.channels
    local function color(at)
      local r, g, b = item.levels[at], item.levels[at + (ch == 3 and 1 or 0)], item.levels[at + (ch == 3 and 2 or 0)]
      return ("%02x%02x%02x"):format(math.floor(r * 255 + 0.5), math.floor(g * 255 + 0.5), math.floor(b * 255 + 0.5))
    end
    for row = 0, item.height - 1 do
      local from, current = 0, nil
      for column = 0, item.width do
        local c = column < item.width and color((row * item.width + column) * ch + 1) or nil
        if c ~= current then
          if current then
            put('<rect x="%s" y="%s" width="%s" height="%s" fill="#%s" shape-rendering="crispEdges"/>', number(x + from * dx), number(y + row * dy),
              number((column - from) * dx), number(dy), current)
          end
          from, current = column, c
        end
      end
    end
  end

  function p.finish() return table.concat(parts, "\n") .. "\n</svg>\n" end

  function p.close() end

  return p
end
