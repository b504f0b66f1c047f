-- SPDX-License-Identifier: MIT
-- script: runs Lua text with the launcher in a process of its own, for specs of what the environment decides.

local script = {}

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

--- What the code wrote, its errors included, and its exit status; `environment` is a list of assignments such as "A=1 B=2".
---@param environment string
---@param code string
---@return string output
---@return integer status
function script.run(environment, code)
  local path = os.tmpname()
  local file = assert(io.open(path .. ".lua", "w"))
  file:write(code)
  file:close()
  local pipe = assert(io.popen(("env %s '%s' %s.lua 2>&1; echo status $?"):format(environment, launcher, path)))
  local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  os.remove(path)
  os.remove(path .. ".lua")
  return output, tonumber(status)
end

return script
