-- SPDX-License-Identifier: MIT
-- caller: errors of the Lua library at the line of whoever uses it: the nearest line on the stack that isn't in the library's own files.

local caller = {}

local FOLDER = debug.getinfo(1, "S").source:match "^(@.*/)caller%.lua$"

local homes = { [FOLDER] = true } -- folders by name: the library's, or not; one folder can have several names in package.path

local function is_home(folder)
  if homes[folder] == nil then
    local file = io.open(folder:sub(2) .. "caller.lua")
    if file then file:close() end
    homes[folder] = file ~= nil
  end
  return homes[folder]
end

--- Whether a source, as debug.getinfo gives it, is one of the library's files.
local function own(source)
  local folder = source:match "^(@.*/perilune/)" or source:match "^(@perilune/)"
  return folder ~= nil and is_home(folder) and not source:find("/schedules/", #folder, true)
end

---@param source string
---@return boolean
caller.own = own

--- "file:line: " of the nearest line outside the library, "" if there is none.
---@return string
function caller.place()
  local level = 2
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then return "" end
    if info.currentline > 0 and not own(info.source) then return ("%s:%d: "):format(info.short_src, info.currentline) end
    level = level + 1
  end
end

--- Whether a message's "file:line: " is one of the library's lines.
---@param place string
function caller.is_own(place)
  if own("@" .. place) then return true end
  return place:match "^%.%.%..*/perilune/[^/]" ~= nil -- of a long path only the end is shown
end

--- Raises a message at the caller's line.
---@param text string
---@vararg any  what string.format takes
function caller.fail(text, ...)
  if select("#", ...) > 0 then text = text:format(...) end
  error(caller.place() .. text, 0)
end

return caller
