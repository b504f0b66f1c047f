-- SPDX-License-Identifier: MIT
-- pages: the Markdown pages of the tree and the programs that they print. A page's Lua blocks run in order as one script, so that a block uses what the
-- blocks before it made; one that begins with `return` is a file of its own.
--
-- What follows `-->` is what the block prints, line by line; "..." stands for anything. `--> error: MESSAGE` says that the block fails, and how. Places
-- in messages, "script.lua:3", count the lines of the block that they lie in.

local pages = {}

local source = os.getenv "PERILUNE_SRCDIR" or "."
local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

function pages.quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

function pages.read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

--- Paths of all pages, from the root of the tree.
function pages.paths()
  local list, pipe = {}, io.popen(("cd %s && ls *.md && find docs -name '*.md' | sort"):format(pages.quote(source)))
  for path in pipe:lines() do list[#list + 1] = path end
  pipe:close()
  return list
end

--- The headings of a page as links name them: small letters, hyphens for blanks, nothing else.
---@return table<string, boolean>
function pages.headings(path)
  local set = {}
  for line in (pages.read(source .. "/" .. path):gsub("\n```.-\n```", "") .. "\n"):gmatch "(.-)\n" do
    local text = line:match "^#+%s+(.*)$"
    if text then set[text:lower():gsub("[^%w%s_-]", ""):gsub("%s", "-")] = true end
  end
  return set
end

---@class Block
---@field language string
---@field line integer  of the page, where its code begins
---@field code string
---@field expected string[]  what it prints, where it says so
---@field fails boolean
---@field alone boolean

--- What a block says that it prints.
local function expected_of(code)
  local list = {}
  for line in (code .. "\n"):gmatch "(.-)\n" do
    local text = line:match "%-%->%s?(.*)$"
    if text then list[#list + 1] = text:match "^(.-)%s*$" end
  end
  return list
end

---@return Block[]
function pages.blocks(path)
  local list, block, number = {}, nil, 0
  for line in (pages.read(source .. "/" .. path) .. "\n"):gmatch "(.-)\n" do
    number = number + 1
    local language = line:match "^```(.*)$"
    if language and not block then
      block = { language = language, line = number + 1, lines = {} }
    elseif language then
      block.code = table.concat(block.lines, "\n")
      block.expected = expected_of(block.code)
      block.fails = #block.expected > 0 and block.expected[#block.expected]:match "^error: " ~= nil
      block.alone = block.code:match "^%s*return%s" ~= nil
      list[#list + 1] = block
      block = nil
    elseif block then
      block.lines[#block.lines + 1] = line
    end
  end
  return list
end

local HEAD = [[
local function begin_block(n) io.write("\1", n, "\n") end
local function fails(fn) local ok, message = pcall(fn) print("error: " .. (ok and "none" or tostring(message))) end
]]

--- Runs the Lua blocks of a page. Gives what each printed, as a list of lines, by the position of the block, and what went wrong outside of a failing block,
--- or nil.
function pages.run(blocks)
  local script, lines, first = { HEAD }, select(2, HEAD:gsub("\n", "")) + 1, {}
  local function put(text)
    script[#script + 1] = text .. "\n"
    lines = lines + 1 + select(2, text:gsub("\n", ""))
  end
  for i, block in ipairs(blocks) do
    if block.language == "lua" and not block.alone then
      put(("begin_block(%d)%s"):format(i, block.fails and " fails(function()" or ""))
      first[#first + 1] = { at = lines, block = i }
      put(block.code)
      if block.fails then put "end)" end
    end
  end
  local folder = io.popen("mktemp -d"):read "*l"
  local file = assert(io.open(folder .. "/script.lua", "w"))
  file:write(table.concat(script))
  file:close()
  local pipe = io.popen(("p=$(realpath %s) && cd %s && \"$p\" script.lua 2>errors </dev/null; s=$?; echo; echo \"\1status $s\"; cat errors; rm -r %s"):format(
    pages.quote(launcher), folder, folder))
  local output, status, errors = pipe:read("*a"):match "^(.*)\n\1status (%d+)\n(.*)$"
  pipe:close()
  local function place(line)
    line = tonumber(line)
    for i = #first, 1, -1 do
      if line >= first[i].at then return "script.lua:" .. line - first[i].at + 1 end
    end
    return "script.lua:" .. line
  end
  local printed = {}
  for number, text in output:gmatch "\1(%d+)\n([^\1]*)" do
    local list = {}
    for line in text:gmatch "([^\n]*)\n" do list[#list + 1] = line:gsub("script%.lua:(%d+)", place):match "^(.-)%s*$" end
    printed[tonumber(number)] = list
  end
  return printed, status ~= "0" and errors:gsub("script%.lua:(%d+)", place) or nil
end

--- Whether a printed line is the expected one, whose "..." stand for anything.
function pages.agrees(expected, line)
  local pattern = expected:gsub("%%", "%%%%"):gsub("[%^%$%(%)%[%]%*%+%-%?]", "%%%0"):gsub("%.%.%.", "\1"):gsub("%.", "%%."):gsub("\1", ".-")
  return line:match("^" .. pattern .. "$") ~= nil
end

return pages
