-- SPDX-License-Identifier: MIT
-- trace: the traceback of an error with runs of the library's own frames folded into one line between the user's, and left out at both ends.

local caller = require "perilune.caller"

local trace = {}

local MOST = 22 -- frames shown; of longer tracebacks both ends

local function describe(info)
  local where = info.currentline > 0 and ("%s:%d"):format(info.short_src, info.currentline) or info.short_src
  if info.what == "main" then return where .. ": in the main chunk" end
  local name = info.name and info.namewhat ~= "local" and ("%s '%s'"):format(info.namewhat ~= "" and info.namewhat or "function", info.name)
  return ("%s: in %s"):format(where, name or ("function <%s:%d>"):format(info.short_src, info.linedefined))
end

--- The frames from `level` on as lines, down to the frame whose function is `bottom`.
---@param level integer
---@param bottom? function
---@return string[]
function trace.lines(level, bottom)
  local frames, folded = {}, 0
  local function unfold()
    if folded > 0 and #frames > 0 then frames[#frames + 1] = ("(%d frame%s of perilune)"):format(folded, folded == 1 and "" or "s") end
    folded = 0
  end
  level = level + 1
  while true do
    local info = debug.getinfo(level, "Slnf")
    if not info or info.func == bottom then break end
    if caller.own(info.source) then
      folded = folded + 1
    elseif info.what ~= "C" then -- those have no line: the frame that called them says enough
      unfold()
      frames[#frames + 1] = describe(info)
    end
    level = level + 1
  end
  if #frames == 1 and frames[1] == "prompt:1: in the main chunk" then return {} end -- that is where one types
  if #frames <= MOST then return frames end
  local shown = {}
  for i = 1, MOST / 2 do shown[i] = frames[i] end
  shown[#shown + 1] = ("(%d more)"):format(#frames - MOST)
  for i = #frames - MOST / 2 + 1, #frames do shown[#shown + 1] = frames[i] end
  return shown
end

--- A handler for xpcall: what was raised, as text, with the frames above `bottom`. An error value that is a table or such stays what it is as second
--- field.
---@param bottom fun(): function?
---@return fun(raised: any): { message: string, raised: any, frames: string[] }
function trace.handler(bottom)
  return function(raised)
    local message = type(raised) == "string" and raised or nil
    if not message then
      local meta = debug.getmetatable(raised)
      message = type(meta) == "table" and rawget(meta, "__tostring") and tostring(raised) 
        or ("(error value: %s)"):format(raised == nil and "nil" or "a " .. type(raised))
    end
    return { message = message, raised = raised, frames = trace.lines(2, bottom()) }
  end
end

return trace
