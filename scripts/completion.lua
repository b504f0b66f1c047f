-- SPDX-License-Identifier: MIT
-- Completion for bash, on standard output:  luajit scripts/completion.lua   (LUA_PATH with lua/ in it)
-- Invariant: words, options and the kinds of their values are from perilune/commands; engines and names are asked of the command itself.

local commands = require "perilune.commands"

--- What completes a value, by the word in capitals that its help begins with.
local VALUES = { KIND = "engines", FILE = "files", DIR = "folders", NAMES = "schedules" }

local function words_of(list)
  local words = {}
  for _, item in ipairs(list) do words[#words + 1] = item[1]:match "^%-[%w%-]+" end
  return words
end

local flags, top = words_of(commands.flags), words_of(commands.forms)
for _, flag in ipairs(flags) do top[#top + 1] = flag end

local options, values, named = {}, {}, {}
for _, name in ipairs(commands.names) do
  local command, list = commands.of(name), { "--help" }
  for option, help in pairs(command.options) do
    list[#list + 1] = "--" .. option
    local value = help:match "^(%u+)%f[ ]"
    if value then values[#values + 1] = ("    %s.--%s) kind=%s ;;"):format(name, option, VALUES[value] or "nothing") end
  end
  table.sort(list)
  options[#options + 1] = ("    %s) options='%s' ;;"):format(name, table.concat(list, " "))
  if command.usage:find("[OPS...]", 1, true) or command.usage:find "%[NAME " then named[#named + 1] = name end
end
table.sort(values)

io.write((([[
# SPDX-License-Identifier: MIT
# bash completion for perilune; made by scripts/completion.lua.

_perilune_words() { # WORDS: those that go on from what was typed
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

_perilune_files() { # COMPGEN OPTIONS
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$@" -- "$cur")
}

_perilune() {
  local program=$1 cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} kind=words options=
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ] && [ "${cur#[-./]}" = "$cur" ]; then
    _perilune_words '@COMMANDS@'
    local found=("${COMPREPLY[@]}")
    _perilune_files -f
    COMPREPLY=("${found[@]}" "${COMPREPLY[@]}")
    return
  fi
  case $command in
@OPTIONS@
    *) kind=files options='@TOP@' ;;
  esac
  case $command.$prev in
@VALUES@
  esac
  case $kind.$cur in
    words.-* | files.-*) _perilune_words "$options" ;;
    files.*) _perilune_files -f ;;
    folders.*) _perilune_files -d ;;
    engines.*) _perilune_words "$("$program" -e \
      'for _, e in ipairs(require "perilune".engines()) do if e.available then print(e.kind) end end' 2>/dev/null)" ;;
    schedules.*) _perilune_words "$("$program" parity --list 2>/dev/null)" ;;
    words.*) case $command in @NAMED@) _perilune_words "$("$program" reference 2>/dev/null)" ;; esac ;;
  esac
}
complete -F _perilune perilune
]]):gsub("@(%u+)@", {
  COMMANDS = table.concat(commands.names, " "), OPTIONS = table.concat(options, "\n"), TOP = table.concat(top, " "),
  VALUES = table.concat(values, "\n"), NAMED = table.concat(named, " | "),
})))
