-- SPDX-License-Identifier: MIT
-- png: a painter that draws with cairo, loaded when the first PNG is asked for.

local ffi = require "ffi"

ffi.cdef [[
typedef struct _cairo cairo_t;
typedef struct _cairo_surface cairo_surface_t;
typedef struct { double x_bearing, y_bearing, width, height, x_advance, y_advance; } cairo_text_extents_t;
typedef int (*cairo_write_func_t)(void *closure, const unsigned char *data, unsigned int length);
cairo_surface_t *cairo_image_surface_create(int format, int width, int height);
int cairo_surface_status(cairo_surface_t *surface);
int cairo_surface_write_to_png_stream(cairo_surface_t *surface, cairo_write_func_t write, void *closure);
void cairo_surface_destroy(cairo_surface_t *surface);
cairo_t *cairo_create(cairo_surface_t *target);
void cairo_destroy(cairo_t *cr);
int cairo_status(cairo_t *cr);
const char *cairo_status_to_string(int status);
void cairo_set_source_rgb(cairo_t *cr, double red, double green, double blue);
void cairo_set_line_width(cairo_t *cr, double width);
void cairo_set_line_cap(cairo_t *cr, int cap);
void cairo_set_line_join(cairo_t *cr, int join);
void cairo_set_antialias(cairo_t *cr, int antialias);
void cairo_move_to(cairo_t *cr, double x, double y);
void cairo_line_to(cairo_t *cr, double x, double y);
void cairo_arc(cairo_t *cr, double xc, double yc, double radius, double from, double to);
void cairo_rectangle(cairo_t *cr, double x, double y, double width, double height);
void cairo_stroke(cairo_t *cr);
void cairo_fill(cairo_t *cr);
void cairo_paint(cairo_t *cr);
void cairo_select_font_face(cairo_t *cr, const char *family, int slant, int weight);
void cairo_set_font_size(cairo_t *cr, double size);
void cairo_text_extents(cairo_t *cr, const char *text, cairo_text_extents_t *extents);
void cairo_show_text(cairo_t *cr, const char *text);
]]

local RGB24, ROUND, ROUND_JOIN, NO_ANTIALIAS, ANTIALIAS = 1, 1, 1, 1, 0
local WRITE_ERROR, SHARE = 11, { start = 0, middle = 0.5, ["end"] = 1 }

local cairo

local function rgb(color)
  local r, g, b = color:match "(%x%x)(%x%x)(%x%x)"
  return tonumber(r, 16) / 255, tonumber(g, 16) / 255, tonumber(b, 16) / 255
end

return function(width, height)
  if not cairo then
    local found, library = pcall(ffi.load, "libcairo.so.2")
    if not found then return nil, "a PNG needs cairo (libcairo.so.2), which is not here; SVG does not" end
    cairo = library
  end
  -- destroyed by p.close, not by finalizers: those may run when the library is already unloaded
  local surface = cairo.cairo_image_surface_create(RGB24, width, height)
  local status = cairo.cairo_surface_status(surface)
  if status ~= 0 then
    cairo.cairo_surface_destroy(surface)
    return nil, "cairo: " .. ffi.string(cairo.cairo_status_to_string(status))
  end
  local cr = cairo.cairo_create(surface)
  local extents = ffi.new "cairo_text_extents_t"
  local p = {}

  local function use(color) cairo.cairo_set_source_rgb(cr, rgb(color)) end

  use "ffffff"
  cairo.cairo_paint(cr)
  cairo.cairo_set_line_cap(cr, ROUND)
  cairo.cairo_set_line_join(cr, ROUND_JOIN)
  cairo.cairo_select_font_face(cr, "sans-serif", 0, 0)

  function p.line(points, color, thick)
    use(color)
    cairo.cairo_set_line_width(cr, thick)
    cairo.cairo_move_to(cr, points[1][1], points[1][2])
    for i = 2, #points do cairo.cairo_line_to(cr, points[i][1], points[i][2]) end
    cairo.cairo_stroke(cr)
  end

  function p.circle(x, y, r, color)
    use(color)
    cairo.cairo_arc(cr, x, y, r, 0, 2 * math.pi)
    cairo.cairo_fill(cr)
  end

  function p.rect(x, y, w, h, color)
    use(color)
    cairo.cairo_rectangle(cr, x, y, w, h)
    cairo.cairo_fill(cr)
  end

  function p.text(x, y, text, anchor, size, color)
    use(color)
    text = text:gsub("%z.*", "")
    cairo.cairo_set_font_size(cr, size)
    cairo.cairo_text_extents(cr, text, extents)
    cairo.cairo_move_to(cr, x - extents.x_advance * SHARE[anchor], y)
    cairo.cairo_show_text(cr, text)
  end

  function p.image(item, x, y, w, h)
    local dx, dy, ch = w / math.max(1, item.width), h / math.max(1, item.height), item.channels
    cairo.cairo_set_antialias(cr, NO_ANTIALIAS)
    for row = 0, item.height - 1 do
      for column = 0, item.width - 1 do
        local at = (row * item.width + column) * ch + 1
        cairo.cairo_set_source_rgb(cr, item.levels[at], item.levels[at + (ch == 3 and 1 or 0)], item.levels[at + (ch == 3 and 2 or 0)])
        cairo.cairo_rectangle(cr, x + column * dx, y + row * dy, dx, dy)
        cairo.cairo_fill(cr)
      end
    end
    cairo.cairo_set_antialias(cr, ANTIALIAS)
  end

  function p.finish()
    local parts = {}
    local write = ffi.cast("cairo_write_func_t", function(_, data, length)
      local ok, part = pcall(ffi.string, data, length)
      if not ok then return WRITE_ERROR end
      parts[#parts + 1] = part
      return 0
    end)
    local failed = cairo.cairo_status(cr)
    if failed == 0 then failed = cairo.cairo_surface_write_to_png_stream(surface, write, nil) end
    write:free()
    if failed ~= 0 then return nil, "cairo: " .. ffi.string(cairo.cairo_status_to_string(failed)) end
    return table.concat(parts)
  end
  jit.off(p.finish, true) -- calls back into Lua

  function p.close()
    cairo.cairo_destroy(cr)
    cairo.cairo_surface_destroy(surface)
  end

  return p
end
