-- SPDX-License-Identifier: MIT
-- terminal: what the standard streams are connected to. Nothing here writes.

local ffi = require "ffi"

ffi.cdef [[
int isatty(int fd);
typedef struct { unsigned short rows, columns, x_pixels, y_pixels; } pln_WindowSize;
int ioctl(int fd, unsigned long request, ...);
]]

local WINDOW_SIZE = ffi.os == "OSX" and 0x40087468 or 0x5413

local terminal = {}

--- Whether a stream is a terminal.
---@param fd integer  0 standard input, 1 output, 2 errors
---@return boolean
function terminal.is(fd) return ffi.C.isatty(fd) == 1 end

--- Whether escape sequences may be written to a stream: it is a terminal that knows them, and NO_COLOR is not set.
---@param fd integer
---@return boolean
function terminal.colors(fd)
  local dumb = os.getenv "TERM"
  return terminal.is(fd) and dumb ~= nil and dumb ~= "dumb" and (os.getenv "NO_COLOR" or "") == ""
end

--- Columns and rows: of the environment's COLUMNS and LINES, else of the terminal on standard output, else 80 and 24.
---@return integer columns, integer rows
function terminal.size()
  local columns, rows = tonumber(os.getenv "COLUMNS"), tonumber(os.getenv "LINES")
  if not (columns and rows) then
    local size = ffi.new "pln_WindowSize"
    if ffi.C.ioctl(1, WINDOW_SIZE, size) == 0 and size.columns > 0 then
      columns, rows = columns or size.columns, rows or size.rows
    end
  end
  return columns or 80, rows or 24
end

return terminal
