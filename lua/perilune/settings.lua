-- SPDX-License-Identifier: MIT
-- settings: finds Lua files that return a table by name: schedules and poison settings. Looked for in the working directory's folder,
-- in the folders of an environment variable (separated by ":"), then in the installed folder.

local settings = {}

local function readable(path)
  local f = io.open(path, "r")
  if f then f:close() end
  return f ~= nil
end

local function installed_folder(folder)
  local path = package.searchpath("perilune.settings", package.path)
  return path and path:gsub("settings%.lua$", folder)
end

--- The folders that are searched, in order.
---@param folder string  "schedules" or "poison"
---@param variable string  environment variable with more folders
function settings.folders(folder, variable)
  local all = { folder }
  for extra in (os.getenv(variable) or ""):gmatch "[^:]+" do all[#all + 1] = extra end
  all[#all + 1] = installed_folder(folder)
  return all
end

--- The names of all files in those folders, sorted, each once.
---@return string[]
function settings.names(folder, variable)
  local names, seen = {}, {}
  for _, f in ipairs(settings.folders(folder, variable)) do
    local pipe = io.popen(("ls '%s' 2>/dev/null"):format((f:gsub("'", "'\\''"))))
    for name in pipe:read("*a"):gmatch "([^\n]+)%.lua\n" do
      if not seen[name] then names[#names + 1] = name end
      seen[name] = true
    end
    pipe:close()
  end
  table.sort(names)
  return names
end

--- Loads NAME.lua (or a path ending in .lua) and returns the table that it returns, and the file's path.
---@param name string
---@param folder string
---@param variable string
---@param level? integer  of errors
function settings.load(name, folder, variable, level)
  level = (level or 1) + 1
  local paths = {}
  if name:match "%.lua$" or name:match "/" then
    paths[1] = name
  else
    for _, f in ipairs(settings.folders(folder, variable)) do paths[#paths + 1] = f .. "/" .. name .. ".lua" end
  end
  for _, path in ipairs(paths) do
    if readable(path) then
      local chunk, message = loadfile(path)
      if not chunk then error(message, level) end
      local result = chunk()
      if type(result) ~= "table" then error(path .. " must return a table, it returned " .. type(result), level) end
      return result, path
    end
  end
  error(("no file for %q; looked for %s"):format(name, table.concat(paths, ", ")), level)
end

return settings
