-- SPDX-License-Identifier: MIT
-- file: whole files in, whole files out. A file is written beside its place under another name, flushed to the disk and renamed, so that
-- whatever happens the place holds either the old file or the new one.

local ffi = require "ffi"
local caller = require "perilune.caller"

-- under names of their own: a script's own declarations of these functions stay what they are
ffi.cdef [[
int pln_file_fileno(void *stream) __asm__("fileno");
int pln_file_fsync(int fd) __asm__("fsync");
int pln_file_getpid(void) __asm__("getpid");
int pln_file_open(const char *path, int flags, ...) __asm__("open");
int pln_file_close(int fd) __asm__("close");
]]

local file = {}

--- The bytes of a file.
---@param path string
---@param what string  who reads, for the message
function file.read(path, what)
  if type(path) ~= "string" then caller.fail("%s: a file's path was expected, got %s", what, type(path)) end
  local f, message = io.open(path, "rb")
  if not f then caller.fail("%s: %s", what, message) end
  local bytes, trouble = f:read "*a"
  f:close()
  if not bytes then caller.fail("%s: %s: %s", what, path, trouble or "cannot be read") end
  return bytes
end

--- Flushes a folder's list of names; a system that cannot is left as it is.
local function flush_folder(path)
  local fd = ffi.C.pln_file_open(path:match "^(.*/)[^/]*$" or ".", 0)
  if fd >= 0 then
    ffi.C.pln_file_fsync(fd)
    ffi.C.pln_file_close(fd)
  end
end

--- Writes strings, one after the other, as the file at `path`, or raises and leaves what was there.
---@param path string
---@param what string
---@param chunks string[]
function file.write(path, what, chunks)
  if type(path) ~= "string" then caller.fail("%s: a file's path was expected, got %s", what, type(path)) end
  local temporary = ("%s.%d.tmp"):format(path, ffi.C.pln_file_getpid())
  local f, message = io.open(temporary, "wb")
  if not f then caller.fail("%s: %s", what, message) end
  local function check(ok, trouble)
    if ok then return end
    f:close()
    os.remove(temporary)
    caller.fail("%s: %s was not written: %s", what, path, trouble)
  end
  for _, chunk in ipairs(chunks) do check(f:write(chunk)) end
  check(f:flush())
  check(ffi.C.pln_file_fsync(ffi.C.pln_file_fileno(f)) == 0, "the disk did not take it (fsync, error " .. ffi.errno() .. ")")
  f:close()
  local ok, trouble = os.rename(temporary, path)
  if not ok then
    os.remove(temporary)
    caller.fail("%s: %s was not written: %s", what, path, trouble)
  end
  flush_folder(path)
end

return file
