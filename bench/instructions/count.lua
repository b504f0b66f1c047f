-- SPDX-License-Identifier: MIT
-- Counts the instructions of bench/instructions/settings.lua under callgrind, with LuaJIT's interpreter (-joff): what a noisy machine cannot hide.
--
--   luajit count.lua BUILD              the counts, beside those recorded
--   luajit count.lua BUILD --record     records them in counts.json, under this compiler and LuaJIT
--   luajit count.lua BUILD --count SETTING [FOLDER]   one count; FOLDER: of another perilune/core.so than BUILD's
--   luajit count.lua BUILD --where SETTING   the functions in which the setting's instructions lie, what they call included
--
-- A count is the difference of a long run and a short one of the same loop, so that nothing of the start is in it. As a module it gives
-- count, key and recorded. Invariant: valgrind shows all programs the same processor, so that a count depends on the compiler and on LuaJIT alone.

local here = (arg and arg[0] and arg[0]:match "count%.lua$" and arg[0] or debug.getinfo(1, "S").source:sub(2)):match "^(.*)/[^/]*$"
package.path = ("%s/../../lua/?.lua;%s"):format(here, package.path)
local json = require "perilune.json"
local settings = dofile(here .. "/settings.lua")

local count = {}

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

--- Output of a command; raises with it when the command failed.
local function output(command)
  local pipe = assert(io.popen(("unset MAKEFLAGS MAKELEVEL; { %s; } 2>&1 </dev/null; echo status $?"):format(command)))
  local text, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  if status ~= "0" then error(text ~= "" and text or ("status %s of %s"):format(status, command), 0) end
  return text
end

local function read(path)
  local file = io.open(path)
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

--- Why nothing can be counted here, or nil.
function count.unable()
  if not pcall(output, "command -v valgrind") then return "valgrind is not installed" end
  if jit.arch ~= "x64" then return "counts are recorded for x86-64" end
end

--- Folder of callgrind's files, one a run: SHORT and LONG of each setting in turn at 2, 4, 6 ...
local function callgrind(modules, only)
  local folder = output("mktemp -d"):gsub("\n", "")
  local ok, why = pcall(output, ("env -u LD_PRELOAD OPENBLAS_NUM_THREADS=1 valgrind --tool=callgrind --dump-before=engine_sync --callgrind-out-file=%s/out %s -joff %s %s %s")
    :format(folder, os.getenv "LUAJIT" or "luajit", quote(here .. "/loops.lua"), quote(modules), only and quote(only) or ""))
  if not ok then
    os.execute("rm -rf " .. folder)
    error(why, 0)
  end
  return folder
end

local function total(file)
  return tonumber(assert(read(file), file .. " is missing"):match "\ntotals: (%d+)" or error(file .. " has no total"))
end

--- Instructions a call or sample of each setting, or of one alone: { [name] = number }.
---@param modules string folder with perilune/core.so
---@param only string|nil
---@return table counts
function count.count(modules, only)
  local folder = callgrind(modules, only)
  local ok, counts = pcall(function()
    local found, at = {}, 2
    for _, s in ipairs(settings) do
      if not only or only == s.name then
        local short, long = total(("%s/out.%d"):format(folder, at)), total(("%s/out.%d"):format(folder, at + 2))
        found[s.name] = (long - short) / ((settings.LONG - settings.SHORT) * s.times * s.each)
        at = at + 4
      end
    end
    return found
  end)
  os.execute("rm -rf " .. folder)
  if not ok then error(counts, 0) end
  return counts
end

--- What counts depend on: the compiler's name and version, its flags, LuaJIT's version.
---@param build string
---@return string
function count.key(build)
  local function variable(name) return (output(("make -s --no-print-directory -C %s show VARIABLE=%s"):format(quote(build), name)):gsub("%s+$", "")) end
  local compiler = variable "CC":gsub("ccache ", "")
  local version = output(compiler .. " --version"):match "[^\n]*"
  local name = version:find "clang" and "clang" or "gcc"
  return ("%s %s, %s, %s"):format(name, version:match "(%d+)%.%d+%.%d+", variable "CFLAGS", jit.version)
end

local FILE = here .. "/counts.json"

--- The counts that were recorded under a key, or nil.
function count.recorded(key)
  local text = read(FILE)
  return text and json.decode(text)[key]
end

local function record(key, counts)
  local all = json.decode(read(FILE) or "{}")
  all[key] = {}
  for name, n in pairs(counts) do all[key][name] = math.floor(n + 0.5) end
  local file = assert(io.open(FILE, "w"))
  assert(file:write(json.encode(all), "\n"))
  assert(file:close())
end

--- The functions of one setting, most instructions first: instructions a call or sample, with what they call, and its share of all.
local function where(modules, name)
  local folder, setting = callgrind(modules, name)
  for _, s in ipairs(settings) do
    if s.name == name then setting = s end
  end
  local text = output(("callgrind_annotate --inclusive=yes --auto=no --threshold=98 %s/out.4"):format(folder))
  os.execute("rm -rf " .. folder)
  local seen, times = {}, settings.LONG * setting.times * setting.each
  for amount, share, fn in text:gmatch "\n *([%d,]+) %( *([%d.]+%%)%) +[^\n]-:([%w_]+)[^\n]*" do
    if not fn:find "^0x" and not seen[fn] then -- a function that has other files' inlined appears once for each; the first is the whole
      seen[fn] = true
      print(("%10.1f  %6s  %s"):format(tonumber((amount:gsub(",", ""))) / times, share, fn))
    end
  end
end

local function main(build, action, name, other)
  local why = count.unable()
  if why then
    io.stderr:write("count: ", why, "\n")
    os.exit(1)
  end
  local modules = other or build .. "/lib"
  if action == "--where" then return where(modules, name) end
  if action == "--count" then return print(count.count(modules, name)[name]) end
  local counts, key = count.count(modules), count.key(build)
  if action == "--record" then record(key, counts) end
  local before = count.recorded(key) or {}
  print(("%-32s %12s %12s   (%s)"):format("instructions a call or sample", "now", "recorded", key))
  for _, s in ipairs(settings) do print(("%-32s %12.0f %12s"):format(s.name, counts[s.name], before[s.name] or "-")) end
end

if arg and arg[0] and arg[0]:match "count%.lua$" then main(unpack(arg)) end

return count
