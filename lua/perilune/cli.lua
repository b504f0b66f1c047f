-- SPDX-License-Identifier: MIT
-- The perilune command line: runs a script, a line of code, or a command.
-- A command is a module perilune.commands.WORD that returns a function of the remaining arguments (a list); that
-- function returns an exit status, or nothing for success.  This file is the only one that ends the process.

local usage = [[
usage: perilune FILE.lua [ARGS]    run a script
       perilune -e CODE [ARGS]     run a line of code
       perilune COMMAND [ARGS]     run a command: parity, gradcheck, oracle, redproof
       perilune --version
       perilune --help]]

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

local function traced(message)
  if type(message) ~= "string" then return message end
  return (debug.traceback(message, 2):gsub("\n%s*%[C%]: in function 'xpcall'.*", "")) -- the script's frames only
end

--- Calls `fn` with the list `args`; an error is printed with its traceback and ends with status 1.
local function run(fn, args)
  local ok, result = xpcall(function() return fn(unpack(args)) end, traced)
  if ok then return result end
  io.stdout:flush()
  io.stderr:write("perilune: ", tostring(result), "\n")
  quit(1)
end

--- Runs what load or loadfile gave as the main script: `arg` is what a script under luajit sees.
local function main(name, args, chunk, message)
  if not chunk then fail(message) end
  _G.arg = args
  args[0] = name
  run(chunk, args)
  quit(0)
end

local function command(word, args)
  local name = "perilune.commands." .. word
  if not package.searchpath(name, package.path) then return false end
  local status = run(function() return require(name)(args) end, {})
  if type(status) == "boolean" then status = status and 0 or 1 end
  quit(status or 0)
end

local first = arg[1] or "repl"
if first == "--help" or first == "-h" then
  print(usage)
elseif first == "--version" then
  print(("perilune %s, %s"):format(require("perilune.core").version, jit.version))
elseif first == "-e" then
  if not arg[2] then fail("-e needs code\n" .. usage) end
  main("-e", rest(3), loadstring(arg[2], "=(command line)"))
elseif first:match "^%-" then
  fail("unknown option '" .. first .. "'\n" .. usage)
elseif first:match "[./\\]" then
  main(first, rest(2), loadfile(first))
elseif command(first, rest(2)) == false then
  fail("unknown command '" .. first .. "' (a script's name has an extension)\n" .. usage)
end
