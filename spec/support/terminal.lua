-- SPDX-License-Identifier: MIT
-- terminal: a program on a pseudo-terminal, as a person would run it: type into it, wait for text, see what the screen was sent.

local ffi = require "ffi"

ffi.cdef [[
struct pln_SpecWindow { unsigned short rows, columns, x, y; };
int forkpty(int *master, char *name, void *termios, struct pln_SpecWindow *window);
int execvp(const char *file, char *const argv[]);
void _exit(int status);
long read(int fd, void *buffer, size_t count);
long write(int fd, const void *buffer, size_t count);
int close(int fd);
int kill(int pid, int signal);
int waitpid(int pid, int *status, int options);
typedef struct { int fd; short events, revents; } pln_SpecPoll;
int poll(pln_SpecPoll *fds, unsigned long count, int timeout);
]]

local ok, util = pcall(ffi.load, "libutil.so.1")
local has_forkpty = pcall(function() return ffi.C.forkpty end)
local library = has_forkpty and ffi.C or ok and util

require "perilune.terminal" -- declares ioctl
local SET_WINDOW_SIZE = 0x5414 -- of Linux

local Terminal = {}
Terminal.__index = Terminal

--- Runs a shell command line on a new terminal.
---@param command string
---@param columns? integer
function Terminal.open(command, columns)
  local master = ffi.new "int[1]"
  local window = ffi.new("struct pln_SpecWindow", 24, columns or 80, 0, 0)
  local words = ffi.new("const char *[4]", "sh", "-c", command)
  local pid = library.forkpty(master, nil, nil, window)
  if pid == 0 then
    ffi.C.execvp("sh", ffi.cast("char *const *", words))
    ffi.C._exit(127)
  end
  assert(pid > 0, "no pseudo-terminal")
  return setmetatable({ fd = master[0], pid = pid, screen = "", seen = 1 }, Terminal)
end

function Terminal:type(text) ffi.C.write(self.fd, text, #text) end

--- Gives the window another width, of which the program is told.
function Terminal:resize(columns)
  assert(ffi.C.ioctl(self.fd, SET_WINDOW_SIZE, ffi.new("struct pln_SpecWindow", 24, columns, 0, 0)) == 0)
end

--- Reads what comes within `milliseconds`; false at the end.
function Terminal:pump(milliseconds)
  local p = ffi.new "pln_SpecPoll[1]"
  p[0].fd, p[0].events = self.fd, 1
  if ffi.C.poll(p, 1, milliseconds) <= 0 then return true end
  local buffer = ffi.new "char[65536]"
  local n = tonumber(ffi.C.read(self.fd, buffer, 65536))
  if n <= 0 then return false end
  self.screen = self.screen .. ffi.string(buffer, n)
  return true
end

--- Waits until a plain text comes after what was waited for before; returns what came up to its end, without escape sequences and carriage returns.
---@param text string
---@param seconds? number
function Terminal:expect(text, seconds)
  local clock = require "perilune.clock"
  local stop = clock() + (seconds or 10)
  while true do
    local plain = self:plain()
    local _, last = plain:find(text, self.seen, true)
    if last then
      local part = plain:sub(self.seen, last)
      self.seen = last + 1
      return part
    end
    if clock() > stop then error(("no %q within %g s, the screen has:\n%s"):format(text, seconds or 10, plain:sub(self.seen)), 2) end
    if not self:pump(50) then
      if not self:plain():find(text, self.seen, true) then error(("ended before %q:\n%s"):format(text, plain:sub(self.seen)), 2) end
    end
  end
end

function Terminal:plain()
  return (self.screen:gsub("\27%[[%d;?]*%a", ""):gsub("\27[=>]", ""):gsub("\r", ""):gsub("\7", ""))
end

--- Ends it, if it has not ended, and gives its exit status; nil after a signal.
function Terminal:close(seconds)
  if self.closed then return self.status end
  local clock = require "perilune.clock"
  local stop, status = clock() + (seconds or 5), ffi.new "int[1]"
  while ffi.C.waitpid(self.pid, status, 1) == 0 do
    if clock() > stop then ffi.C.kill(self.pid, 9) end
    self:pump(20)
  end
  while self:pump(0) and #self.screen < 1e7 do
    local before = #self.screen
    self:pump(20)
    if #self.screen == before then break end
  end
  ffi.C.close(self.fd)
  self.closed = true
  local code = status[0]
  self.status = code % 128 == 0 and math.floor(code / 256) or nil
  return self.status
end

return Terminal
