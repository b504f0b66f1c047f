-- SPDX-License-Identifier: MIT
-- repl: reads Lua, runs it, prints what it gives. On a terminal with prompts, editing, colour and times; through a pipe with none of them, and
-- then it ends with status 1 if anything failed. The user's code is not compiled to machine code: Ctrl-C can stop it at any line.

local core = require "perilune.core"
local caller = require "perilune.caller"
local clock = require "perilune.clock"
local engine = require "perilune.engine"
local globals = require "perilune.repl.globals"
local keyboard = require "perilune.repl.keyboard"
local scan = require "perilune.repl.scan"
local show = require "perilune.repl.show"
local terminal = require "perilune.terminal"
local trace = require "perilune.repl.trace"

local PROMPT, CONTINUED = "> ", ">> "

---@class perilune.Repl
local Repl = {}
Repl.__index = Repl

function Repl:paint(code, text) return self.color and ("\27[%sm%s\27[0m"):format(code, text) or text end

function Repl:say(text)
  io.stdout:write(text, "\n")
end

--- The path of the history: $XDG_STATE_HOME/perilune/history, by default below ~/.local/state; nil where there is no home.
---@return string?
local function history_path()
  local state = os.getenv "XDG_STATE_HOME"
  local home = os.getenv "HOME"
  if not state or state:sub(1, 1) ~= "/" then state = home and home ~= "" and home .. "/.local/state" end
  if not state then return nil end
  local ffi = require "ffi"
  ffi.cdef "int mkdir(const char *path, unsigned mode);"
  local folder = state .. "/perilune"
  for at in folder:gmatch "()/" do
    if at > 1 then ffi.C.mkdir(folder:sub(1, at - 1), 448) end -- 0700; what exists stays as it is
  end
  ffi.C.mkdir(folder, 448)
  return folder .. "/history"
end

-- Reading ------------------------------------------------------------------------------------------

--- Whether a message of loadstring means that more lines are to come.
local function unfinished(message)
  return message:find "near '<eof>'" ~= nil and not message:find("unfinished string", 1, true)
end

local Packed = {}

local function pack(...) return setmetatable({ n = select("#", ...), ... }, Packed) end

--- Compiles what was typed: an expression list, also behind "return" or "=" as elsewhere, to a function that returns it packed, else statements; true where results are to be printed. Or nil,
--- the message, and whether more lines may complete it. No tail call: errors of what the line calls find the line.
local function compile(text)
  local state, _, last = scan(text)
  local hidden = last and text:sub(last, last) == ";"
  local expression = text
  if last and state ~= "string" then expression = text:sub(1, hidden and last - 1 or last) end -- no comment behind it
  expression = expression:match "^%s*return%f[^%w_](.*)$" or expression:match "^%s*=([^=].*)$" or expression
  local ok, lacks = loadstring("return " .. expression)
  if ok then
    local fn = loadstring("local pack = ... return (pack(" .. expression .. "))", "=prompt")
    if fn then return fn, not hidden end
  end
  local fn, message = loadstring(text, "=prompt")
  if fn then return fn, false end
  return nil, message, unfinished(message) or (lacks ~= nil and unfinished(lacks))
end

--- A line from a terminal without an editor; false where Ctrl-C dropped it.
local function plain_line(prompt)
  local line
  keyboard.hold() -- before the prompt: whoever sees that may press Ctrl-C at once
  io.stdout:write(prompt)
  io.stdout:flush()
  repeat
    local ready = keyboard.ready()
    if ready then line = io.stdin:read "*l" elseif core.library.interrupt(false) then line = false end
  until ready or line == false
  keyboard.release()
  if line == false then io.stdout:write "\n" end
  return line
end

function Repl:line(prompt)
  if self.editor then return self.editor:read(prompt) end
  if self.interactive then return plain_line(prompt) end
  return io.stdin:read "*l"
end

--- The next complete piece: text; nil at the end of input; false where Ctrl-C dropped it.
function Repl:read()
  local text
  while true do
    local line = self:line(text and CONTINUED or PROMPT)
    if not line then
      if line == nil and text then return text end -- what is there is compiled, and says what it lacks
      return line
    end
    text = text and text .. "\n" .. line or line
    if line:match "^%s*[?$]" and line == text then return text end
    local fn, _, more = compile(text)
    if fn or not more then return text end
  end
end

-- Running ------------------------------------------------------------------------------------------

function Repl:report(err)
  local function paint(code, text) return terminal.colors(2) and self:paint(code, text) or text end
  io.stdout:flush()
  local place = err.message:match "^[^\n:]+:%d+: "
  if place and caller.is_own(place) then err.message = err.message:sub(#place + 1) end
  local message = #err.frames == 0 and self.single and err.message:gsub("^prompt:1: ", "") or err.message
  io.stderr:write(paint("31", message), "\n")
  for _, frame in ipairs(err.frames) do io.stderr:write("  ", paint("2", frame), "\n") end
end

--- Results of the last command that had any: _ and _1, _2, ...
function Repl:keep(results)
  for i = 1, math.max(results.n, self.kept) do rawset(_G, "_" .. i, results[i]) end
  rawset(_G, "_", results[1])
  self.kept = results.n
end

function Repl:print(results)
  local options = { color = self.color, width = (terminal.size()) }
  for i = 1, results.n do self:say(show(results[i], options)) end
end

local function duration(seconds)
  if seconds < 1e-3 then return ("%.0f us"):format(seconds * 1e6) end
  if seconds < 1 then return ("%.1f ms"):format(seconds * 1e3) end
  return ("%.2f s"):format(seconds)
end

function Repl:print_time(seconds)
  local text = "[" .. duration(seconds) .. "]"
  self:say(self:paint("2", (" "):rep((terminal.size()) - #text) .. text))
end

--- Calls fn; afterwards queued work of `eng` is done, so that its errors belong to this command and its time to the clock.
local function call(fn)
  local results = fn(pack)
  local eng = globals.peek "eng"
  if engine.is_engine(eng) and not eng:closed() then eng:sync() end
  return getmetatable(results) == Packed and results or pack()
end

--- Runs a function under the handler for Ctrl-C and prints what it gives; whether it went well.
function Repl:run(fn, printed)
  local bottom
  local handler = trace.handler(function() return bottom end)
  local start = clock()
  core.library.interrupt(false)
  bottom = call
  local ok, results = xpcall(call, handler, fn)
  core.library.interrupt(false)
  local seconds = clock() - start
  local progress = package.loaded["perilune.progress"]
  if progress then progress.finish() end -- a bar whose loop was left early
  if not ok then
    self:report(results)
    return false
  end
  if results.n > 0 then
    self:keep(results)
    if printed then
      local well, err = xpcall(function() self:print(results) end, handler)
      if not well then
        self:report(err)
        return false
      end
    end
  end
  self.seconds = self.seconds + seconds
  return true
end

function Repl:shell(command)
  io.stdout:flush()
  local start = clock()
  local status = os.execute(command) -- as wait has it
  self.seconds = self.seconds + clock() - start
  if status % 128 ~= 0 then
    self:say(("signal %d"):format(status % 128))
  elseif status ~= 0 then
    self:say(("status %d"):format(status / 256))
  end
  return status == 0
end

function Repl:help(text)
  local reference = require "perilune.reference"
  local word = text:match "^%?%s*(.-)%s*$"
  if word then
    self:say(reference.search(word))
  else
    self:say(reference.help(text:match "^%s*(.-)%s*$", _G))
  end
  return true
end

--- Statements that were pasted with expressions between them: line by line.
function Repl:pieces(text)
  local list, piece = {}, nil
  for line in (text .. "\n"):gmatch "(.-)\n" do
    piece = piece and piece .. "\n" .. line or line
    local fn, _, more = compile(piece)
    if fn or not more then
      list[#list + 1] = piece
      piece = nil
    end
  end
  list[#list + 1] = piece
  return list
end

function Repl:evaluate(text)
  local help, shell = text:match "^%s*%?(.*)$", text:match "^%s*%$%s*(.*)$"
  if help then return self:help(help) end
  if shell then return self:shell(shell) end
  local state, _, last = scan(text)
  if not last and state ~= "string" then return true end -- nothing but blanks and comments
  local fn, printed = compile(text)
  self.single = not text:find "\n"
  if fn then return self:run(fn, printed) end
  local pieces = self.single and {} or self:pieces(text)
  if #pieces < 2 then
    self:report { message = printed, frames = {} }
    return false
  end
  for _, piece in ipairs(pieces) do
    if not self:evaluate(piece) then return false end
  end
  return true
end

-- The loop -----------------------------------------------------------------------------------------

--- Names of the NVIDIA devices that the kernel knows; without waking a driver.
local function gpu_names()
  local names = {}
  local pipe = io.popen "cat /proc/driver/nvidia/gpus/*/information 2>/dev/null"
  for line in pipe:lines() do
    local name = line:match "^Model:%s*(.-)%s*$"
    if name then names[#names + 1] = name end
  end
  pipe:close()
  return names
end

function Repl:banner()
  self:say(("perilune %s, %s; ? for help, Ctrl-D ends"):format(core.version, jit.version))
  local devices = { "cpu" }
  if package.searchpath("perilune.cuda", package.cpath) then
    for i, name in ipairs(gpu_names()) do devices[#devices + 1] = ("cuda %d: %s"):format(i, name) end
  end
  if package.searchpath("perilune.cuda_emu", package.cpath) then devices[#devices + 1] = "cuda-emu" end
  self:say("devices: " .. table.concat(devices, ", "))
end

local function keep_interpreted()
  -- every function that is compiled from text from now on, but the library's
  require("jit").attach(function(proto)
    if not caller.own(require("jit.util").funcinfo(proto).source) then jit.off(proto) end
  end, "bc")
end

function Repl:loop()
  local status = 0
  while true do
    local text = self:read()
    if text == nil then break end
    if text then
      if self.editor then self.editor:remember(text) end
      self.seconds = 0
      if not self:evaluate(text) then status = 1 end
      if self.interactive and self.seconds > 0 then self:print_time(self.seconds) end
    end
  end
  if self.interactive then io.stdout:write "\n" end
  return status
end

local repl = {}

--- Runs the REPL until the end of input; the status with which the command ends. Options: first(): runs before the first prompt, errors are printed.
---@param options? { first: function }
---@return integer
function repl.run(options)
  options = options or {}
  local interactive = terminal.is(0) and terminal.is(1)
  local self = setmetatable({ interactive = interactive, color = interactive and terminal.colors(1), kept = 0, seconds = 0 }, Repl)
  local perilune = require "perilune"
  globals.interactive(perilune, function(text) self:say(text) end)
  keep_interpreted()
  core.library.handle_interrupts(true)
  local ok, status = pcall(function()
    if interactive then
      self:banner()
      self.editor = require("perilune.repl.editor").open(require("perilune.repl.complete").for_editor, history_path())
      if not self.editor then self:say "no line editing: libreadline.so.8 is not here (Debian: libreadline8)" end
    end
    local well = not options.first or self:run(options.first, false)
    local status = self:loop()
    return interactive and 0 or well and status or 1 -- errors that somebody saw are no failure
  end)
  core.library.handle_interrupts(false)
  if not ok then error(status, 0) end
  return status
end

return repl
