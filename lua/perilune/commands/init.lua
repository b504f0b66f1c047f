-- SPDX-License-Identifier: MIT
-- commands: what the perilune command line takes, as data. Its usage text, the man page and the shell's completion are all made of this, so none of
-- them can say something else. A command is a file beside this one that returns { about, usage, options, run }: run(found, words) gets the options
-- and the other words and gives an exit status. Nothing here, and nothing that a command's file does when it is loaded, needs the C module.

local options = require "perilune.options"

local commands = {
  names = { "gradcheck", "oracle", "parity", "redproof", "reference" },
  forms = {
    { "", "read and run what is typed, or comes through a pipe" },
    { "FILE.lua [ARGS]", "run a script" },
    { "-e CODE [ARGS]", "run a line of code" },
    { "COMMAND [ARGS]", "run a command" },
    { "--version", "print the versions of perilune and LuaJIT" },
    { "--help", "print this; COMMAND --help prints a command's options" },
  },
  flags = {
    { "-i", "stay afterwards and read what is typed" },
    { "-g", "strict globals: reading one that does not exist is an error, and so is setting a new one in a function" },
  },
  environment = {
    { "PERILUNE_ENGINE", "kind of engine that perilune.engine() opens, without it cpu" },
    { "PERILUNE_ARENA", "size of arenas, such as 64MiB" },
    { "PERILUNE_POISON", "0, 1, a list such as reset,free,alloc, or the name of a setting" },
    { "PERILUNE_STALE", "error or allow: what reading a dead tensor does" },
    { "PERILUNE_SCHEDULES, PERILUNE_POISONS", "folders, separated by colons, where schedules and poison settings are looked for after ./schedules and ./poison" },
    { "PERILUNE_BLAS", "1, or a library's name: matrix products on the CPU by OpenBLAS instead of the own kernels" },
    { "PERILUNE_ISA", "v2, v3 or v4: the instructions that CPU kernels may use, not beyond those of the machine" },
    { "PERILUNE_CUDA_MEMORY", "bytes that a CUDA engine may take" },
    { "PERILUNE_CUDA_GRAPHS", "0: captured steps launch their records one by one instead of being CUDA graphs" },
    { "PERILUNE_CUBLAS", "a file: the cuBLAS that makes products on CUDA devices; off: none" },
    { "PERILUNE_CUDA_SYNC", "1: wait after each launch, so that an error of the device names its op" },
    { "XDG_STATE_HOME", "folder below which the prompt keeps its history, in perilune/history; without it ~/.local/state" },
  },
}

--- The declaration of a command, nil for a word that is none.
---@param word string
---@return { about: string, usage: string, options: table<string, string>, run: function }?
function commands.of(word)
  for _, name in ipairs(commands.names) do
    if name == word then return require("perilune.commands." .. name) end
  end
  return nil
end

--- What `perilune --help` prints.
---@return string
function commands.usage()
  local lines = {}
  for i, form in ipairs(commands.forms) do
    lines[#lines + 1] = ("%s perilune %-17s %s"):format(i == 1 and "usage:" or "      ", form[1], form[2])
  end
  lines[#lines + 1] = "before FILE.lua or -e:"
  for _, flag in ipairs(commands.flags) do lines[#lines + 1] = ("       %-26s %s"):format(flag[1], flag[2]) end
  lines[#lines + 1] = "commands:"
  for _, name in ipairs(commands.names) do lines[#lines + 1] = ("       %-26s %s"):format(name, commands.of(name).about) end
  return table.concat(lines, "\n")
end

--- Reads the arguments of a command and runs it.
---@param word string  the name of a command
---@param args string[]
---@return integer status  of the process
function commands.run(word, args)
  local command = commands.of(word)
  local found, words = options.read(args, command.usage, command.options)
  if not found then return words end
  if command.options.about then
    local about, wrong = options.about(found.about)
    if about == false then
      io.stderr:write("perilune: --about: ", wrong, "\n")
      return 2
    end
    found.about = about
  end
  return command.run(found, words)
end

return commands
