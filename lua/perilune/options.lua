-- SPDX-License-Identifier: MIT
-- options: the command lines of the harnesses: --name VALUE, --flag, and words. One way to say what is wrong and one for help.

local options = {}

--- Reads arguments. `known` maps names to a line of help; those whose help begins with a word in capitals take a value.
--- Returns the options and the words; or nil and the exit status, when help was asked for (0) or something is wrong (2).
---@param args string[]
---@param usage string
---@param known table<string, string>
function options.read(args, usage, known)
  local function help(out)
    local names = {}
    for name in pairs(known) do names[#names + 1] = name end
    table.sort(names)
    out:write("usage: ", usage, "\n")
    for _, name in ipairs(names) do out:write(("  --%-12s %s\n"):format(name, known[name])) end
  end
  local found, words, i = {}, {}, 1
  while i <= #args do
    local name = args[i]:match "^%-%-(.+)$"
    if not name then
      words[#words + 1] = args[i]
    elseif name == "help" then
      help(io.stdout)
      return nil, 0
    elseif not known[name] then
      io.stderr:write("perilune: unknown option '", args[i], "'\n")
      help(io.stderr)
      return nil, 2
    elseif known[name]:match "^%u%u" or known[name]:match "^%u " then
      i = i + 1
      if not args[i] then
        io.stderr:write("perilune: --", name, " needs a value\n")
        return nil, 2
      end
      found[name] = args[i]
    else
      found[name] = true
    end
    i = i + 1
  end
  return found, words
end

--- A script's options, each with a default: reads arguments as options.read does, numbers where the default is one, and fills in the defaults. `flags` are
--- names and help of options without a default: those whose help begins with a word in capitals take a value.
---@param args string[]
---@param usage string
---@param defaults table<string, number|string>
---@param flags? table<string, string>
function options.read_over(args, usage, defaults, flags)
  local known = {}
  for name, default in pairs(defaults) do known[name] = ("%s (%s)"):format(type(default) == "number" and "NUMBER" or "TEXT", default) end
  for name, help in pairs(flags or {}) do known[name] = help end
  local found, words = options.read(args, usage, known)
  if not found then return nil, words end
  for name, default in pairs(defaults) do
    local value = found[name]
    if value == nil then value = default elseif type(default) == "number" then value = tonumber(value) end
    if value == nil then
      io.stderr:write("perilune: --", name, " needs a number, got '", found[name], "'\n")
      return nil, 2
    end
    found[name] = value
  end
  return found, words
end

--- A list from "a,b,c", nil from nil.
function options.list(text)
  if not text then return nil end
  local list = {}
  for word in text:gmatch "[^,]+" do list[#list + 1] = word end
  return list
end

--- What --about FILE says of what is tested: an object that goes into each report as "about". Returns it (nil from nil); or false and
--- what is wrong.
---@param path? string
function options.about(path)
  if not path then return nil end
  local file, message = io.open(path)
  if not file then return false, message end
  local ok, about = pcall(require("perilune.json").decode, file:read "*a")
  file:close()
  if not ok or type(about) ~= "table" then return false, path .. ": a JSON object was expected" end
  return about
end

--- The engine that --engine KIND and --arena SIZE ask for; or nil and what perilune.engine said.
function options.engine(kind, arena)
  local ok, eng = pcall(require("perilune.engine").open, { kind, arena = arena })
  if ok then return eng end
  return nil, (tostring(eng):gsub("^[^:]+:%d+: ", ""))
end

return options
