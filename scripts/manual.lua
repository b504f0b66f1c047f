-- SPDX-License-Identifier: MIT
-- The man page, perilune(1), on standard output:  luajit scripts/manual.lua VERSION   (LUA_PATH with lua/ in it)
-- Invariant: all that it says of forms, flags, commands, options and variables is from perilune/commands.

local commands = require "perilune.commands"

local version = assert(arg[1], "which version?")

--- Text as roff: hyphens of options stay hyphens, and no line begins with a control character.
local function roff(text) return (text:gsub("\\", "\\e"):gsub("%-", "\\-"):gsub("^([.'])", "\\&%1")) end

--- "FILE.lua [ARGS]": what one types in bold, what one replaces in italics.
local function synopsis(form)
  return (form:gsub("[^%s%[%]|.]+", function(word)
    local style = word:match "^%-" and "\\fB" or word:match "^%u+$" and "\\fI" or "\\fB"
    return style .. roff(word) .. "\\fR"
  end))
end

--- A sentence of words that stand alone elsewhere.
local function sentence(text) return roff(text:sub(1, 1):upper() .. text:sub(2)) .. "." end

local out = {}
local function put(line, ...) out[#out + 1] = line:format(...) end

put('.TH PERILUNE 1 "" "perilune %s" "User Commands"', version)
put ".SH NAME\nperilune \\- tensor engine driven from LuaJIT: run scripts, type at a prompt, check engines"
put ".SH SYNOPSIS"
for i, form in ipairs(commands.forms) do
  if i > 1 then put ".br" end
  local flags = form[1]:match "^FILE" or form[1]:match "^%-e"
  put(".B perilune\n%s%s", flags and "[\\fB\\-ig\\fR] " or "", form[1] == "" and "\\&" or synopsis(form[1]))
end
put ".SH DESCRIPTION"
put [[Perilune is a tensor library for LuaJIT with engines for the CPU, for finding lifetime faults, and for CUDA devices.
The library is loaded by
.BR "require \(dqperilune\(dq" ,
in any program; this command runs scripts with it, and reads what is typed when there is no script.
At the prompt
.B perilune
and
.B eng
are there,
.BI "? " NAME
explains a function and
.BI "?? " WORD
searches.]]
for i, form in ipairs(commands.forms) do
  if i > 1 then put(".TP\n\\fBperilune\\fR %s\n%s", synopsis(form[1]), sentence(form[2])) end
end
put ".SH OPTIONS\nBefore a script or\n.BR \\-e :"
for _, flag in ipairs(commands.flags) do put(".TP\n.B %s\n%s", roff(flag[1]), sentence(flag[2])) end
put ".SH COMMANDS\nEach prints its options with\n.BR \\-\\-help ."
for _, name in ipairs(commands.names) do
  local command = commands.of(name)
  put(".SS %s\n%s", name, sentence(command.about))
  for line in command.usage:gmatch "[^\n]+" do put(".PP\n.B perilune\n%s", synopsis(line:match "^%s*perilune (.*)$")) end
  local names = {}
  for option in pairs(command.options) do names[#names + 1] = option end
  table.sort(names)
  for _, option in ipairs(names) do
    local help = command.options[option]
    local value = help:match "^%u+%f[ ]"
    put(".TP\n.B \\-\\-%s%s\n%s", roff(option), value and (" \\fI%s\\fR"):format(value) or "", sentence((help:gsub("^N ", ""))))
  end
end
put ".SH EXIT STATUS\n0 if all went well, 1 if a script raised an error or a check failed, 2 on wrong usage. A script may end with its own."
put ".SH ENVIRONMENT"
for _, variable in ipairs(commands.environment) do put(".TP\n.B %s\n%s", roff(variable[1]), sentence(variable[2])) end
put [[.SH FILES
The guide, further pages and the examples lie in the folder that
.B pkg\-config \-\-variable=docdir perilune
names; declarations for the Lua language server lie in
.IR share/perilune/luals .]]
put ".SH SEE ALSO\n.BR luajit (1)"
io.write(table.concat(out, "\n"), "\n")
