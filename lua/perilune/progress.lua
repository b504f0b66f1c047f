-- SPDX-License-Identifier: MIT
-- progress: a bar on standard error while a loop runs: how far it is, how fast, and how long it will take. Where standard error is no terminal
-- nothing is written and the loop is what it would be without.

local caller = require "perilune.caller"
local clock = require "perilune.clock"
local terminal = require "perilune.terminal"

local INTERVAL = 0.1 -- seconds between two drawings
local BAR = 24       -- columns

local progress = {}
local open -- the bar that stands unfinished on the terminal

--- Seconds as m:ss or h:mm:ss.
local function duration(seconds)
  if seconds ~= seconds or seconds >= 3600000 then return "?" end
  local s = math.floor(seconds + 0.5)
  if s < 3600 then return ("%d:%02d"):format(s / 60, s % 60) end
  return ("%d:%02d:%02d"):format(s / 3600, s / 60 % 60, s % 60)
end

--- Items per second: three digits, or seconds per item where it is slow.
local function speed(rate)
  if rate >= 1000 then return ("%.0f/s"):format(rate) end
  if rate >= 1 then return ("%.3g/s"):format(rate) end
  return rate > 0 and ("%.3g s each"):format(1 / rate) or "?/s"
end

--- One line: what is done of the total (nil: unknown) after so many seconds.
function progress.line(title, done, total, seconds)
  local parts = {}
  local rate = seconds > 0 and done / seconds or 0
  if title then parts[1] = title end
  if total then
    local share = total > 0 and math.min(1, done / total) or 1
    local full = math.floor(share * BAR)
    parts[#parts + 1] = ("%3d %% |%s%s| %d/%d"):format(math.floor(share * 100), ("="):rep(full), (" "):rep(BAR - full), done, total)
    parts[#parts + 1] = speed(rate)
    parts[#parts + 1] = done >= total and duration(seconds) or duration(rate > 0 and (total - done) / rate or math.huge) .. " left"
  else
    parts[#parts + 1] = ("%d"):format(done)
    parts[#parts + 1] = speed(rate)
    parts[#parts + 1] = duration(seconds)
  end
  return table.concat(parts, "  ")
end

local function draw(bar, now)
  local columns = terminal.size()
  local text = progress.line(bar.title, bar.done, bar.total, now - bar.started)
  io.stderr:write("\r", text:sub(1, columns - 1), "\27[K")
  io.stderr:flush()
  bar.drawn = now
end

--- Ends the line of a bar whose loop was left early. The next bar does so before it begins, the REPL before it prints, the command before it tells
--- an error, and the end of the Lua state.
function progress.finish()
  if not open then return end
  open = nil
  io.stderr:write "\n"
  io.stderr:flush()
end

local at_end = newproxy(true)
getmetatable(at_end).__gc = progress.finish
progress.at_end = at_end -- collected with the state

--- What to iterate over: iterator, state, control, total.
local function iterator_of(what, state, control)
  if type(what) == "number" then
    if what ~= what or what % 1 ~= 0 or what < 0 then caller.fail("progress: a number of steps is whole and not negative, got %s", tostring(what)) end
    return function(_, i)
      if i < what then return i + 1 end
    end, nil, 0, what
  end
  if type(what) == "function" then return what, state, control end
  local meta = getmetatable(what)
  if type(meta) == "table" and meta.__call then return what, state, control, tonumber(what.count) end
  if type(what) == "table" and meta == nil then
    local i = 0
    return function()
      i = i + 1
      return what[i]
    end, nil, nil, #what
  end
  caller.fail("progress: a loader, a number, a list or an iterator was expected, got %s", type(what))
end

local function read_options(given)
  for name, value in pairs(given) do
    if name ~= 1 and name ~= "total" and name ~= "title" then caller.fail("progress: there is no option '%s'", tostring(name)) end
    if name == "total" and (type(value) ~= "number" or value < 0) then caller.fail("progress: total is a number of steps, got %s", tostring(value)) end
    if name == "title" and type(value) ~= "string" then caller.fail("progress: title is a string, got %s", type(value)) end
  end
  if given[1] == nil then caller.fail "progress: what shall be gone through? progress { loader, title = ... }" end
  return given[1], given.title, given.total
end

--- For a `for` loop: what the loader, iterator (with its state and control), list (its values) or number (1 .. n) gives, with a bar:
--- `for x, y in perilune.progress(loader) do`. A table { what, title =, total = } says more. A loop that is left early leaves its bar on the
--- terminal; its line is ended by perilune.progress.finish(), the next bar, the prompt, or the end of the program.
---@param what any
---@param state? any
---@param control? any
---@return function, any, any
local function run(_, what, state, control)
  local title, total
  if type(what) == "table" and getmetatable(what) == nil and (what.title ~= nil or what.total ~= nil) then what, title, total = read_options(what) end
  local f, s, first, count = iterator_of(what, state, control)
  if not terminal.is(2) then return f, s, first end
  progress.finish()
  local bar = { title = title, total = total or count, done = 0, started = clock(), drawn = -math.huge }
  local function pass(...)
    local now = clock()
    if (...) == nil then
      draw(bar, now)
      open = bar
      progress.finish()
      return nil
    end
    if now - bar.drawn >= INTERVAL then
      draw(bar, now)
      open = bar
    end
    bar.done = bar.done + 1
    return ...
  end
  return function(_, c) return pass(f(s, c)) end, nil, first
end

return setmetatable(progress, { __call = run })
