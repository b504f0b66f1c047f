-- SPDX-License-Identifier: MIT
-- The perilune command line: runs a script, a line of code, or a command.
-- What it takes is declared in perilune/commands.  This file is the only one that ends the process.

if not jit then -- LuaRocks wraps this file for whatever Lua it knows
  io.stderr:write("perilune: LuaJIT is needed, this is ", _VERSION, "\n")
  os.exit(2)
end

local commands = require "perilune.commands"
local trace = require "perilune.repl.trace"

local function quit(status)
  io.stdout:flush()
  os.exit(status, true) -- closing the state runs the finalizers
end

local function fail(message)
  io.stderr:write("perilune: ", message, "\n")
  quit(2)
end

--- The arguments from position `first` on, as a list.
local function rest(first)
  local list = {}
  for i = first, #arg do list[#list + 1] = arg[i] end
  return list
end

--- Calls `fn` with the list `args`; an error is printed with its traceback and ends with status 1.
local function run(fn, args)
  local function call() return fn(unpack(args)) end
  local ok, result = xpcall(call, trace.handler(function() return call end))
  if ok then return result end
  io.stdout:flush()
  local progress = package.loaded["perilune.progress"]
  if progress then progress.finish() end -- a bar whose loop the error ended
  io.stderr:write("perilune: ", result.message, "\n")
  for _, frame in ipairs(result.frames) do io.stderr:write("  ", frame, "\n") end
  quit(1)
end

--- Runs what load or loadfile gave as the main script: `arg` is what a script under luajit sees. `stay`: the REPL follows.
local function main(name, args, stay, chunk, message)
  if not chunk then fail(message) end
  _G.arg = args
  args[0] = name
  if stay then
    jit.off(chunk, true) -- so that Ctrl-C can stop it
    quit(run(function() return require("perilune.repl").run { first = function() chunk(unpack(args)) end } end, {}))
  end
  run(chunk, args)
  quit(0)
end

local function command(word, args)
  if not commands.of(word) then return false end
  quit(run(function() return commands.run(word, args) end, {}))
end

local function flags_of(word) return word:match "^%-[gi]+$" and word end

local function start(at)
  local flags, strict, stay = arg[at] and flags_of(arg[at]), false, false
  while flags do
    strict, stay = strict or flags:find "g" ~= nil, stay or flags:find "i" ~= nil
    at = at + 1
    flags = arg[at] and flags_of(arg[at])
  end
  if strict then require("perilune.repl.globals").strict() end
  local first = arg[at]
  if stay and not first then fail("-i needs a script\n" .. commands.usage()) end
  if not first then
    quit(run(function() return require("perilune.repl").run() end, {}))
  elseif first == "-e" then
    if not arg[at + 1] then fail("-e needs code\n" .. commands.usage()) end
    main("-e", rest(at + 2), stay, loadstring(arg[at + 1], "=(command line)"))
  elseif first:match "^%-" then
    fail("unknown option '" .. first .. "'\n" .. commands.usage())
  elseif first:match "[./\\]" then
    main(first, rest(at + 1), stay, loadfile(first))
  elseif strict or stay or command(first, rest(at + 1)) == false then
    fail("unknown command '" .. first .. "' (a script's name has an extension)\n" .. commands.usage())
  end
end

if arg[1] == "--help" or arg[1] == "-h" then
  print(commands.usage())
elseif arg[1] == "--version" then
  print(("perilune %s, %s"):format(require("perilune.core").version, jit.version))
else
  start(1)
end
