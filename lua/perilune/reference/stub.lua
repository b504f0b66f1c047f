-- SPDX-License-Identifier: MIT
-- stub: declarations of everything public for editors: a file that the Lua language server (LuaLS) reads as the types of `require "perilune"`.

local reference = require "perilune.reference"

local RECEIVERS = { eng = "perilune.Engine", x = "perilune.Tensor", step = "perilune.Step", module = "perilune.Module", arena = "perilune.Arena",
  optimizer = "perilune.Optimizer", schedule = "perilune.LrSchedule", batches = "perilune.Batches", vocabulary = "perilune.Vocabulary",
  figure = "perilune.Figure" }
local MODULES = { nn = true, optim = true, data = true, plot = true }
local NAMES = {}

local function local_name(class) return class:match "[%w_]+$" .. "_" end

local function comment(out, text)
  for line in text:gmatch "[^\n]+" do out[#out + 1] = "--- " .. line end
end

local function params(out, list)
  local names = {}
  for _, p in ipairs(list) do
    out[#out + 1] = ("---@param %s %s %s"):format(p.name, p.type, p.text):gsub("%s+$", "")
    names[#names + 1] = (p.name:gsub("%?$", ""))
  end
  return names
end

local function returns(out, list)
  for _, r in ipairs(list) do out[#out + 1] = "---@return " .. r end
end

--- Declares `function head(args) end`.
local function declare(out, e, head, list, args)
  comment(out, e.doc)
  local names = params(out, list)
  returns(out, e.returns)
  out[#out + 1] = ("function %s%s end\n"):format(head, args or "(" .. table.concat(names, ", ") .. ")")
end

local function args_of(e) return e.forms[1]:match "%b()$" or "()" end

--- The text of the stub.
---@return string
return function()
  local out = { "---@meta perilune", "-- Made by `perilune reference --stub`.", "" }
  local tables = {}
  for class in pairs { ["perilune.Engine"] = 1, ["perilune.Tensor"] = 1, ["perilune.Step"] = 1, ["perilune.Arena"] = 1, ["perilune.Module"] = 1,
    ["perilune.Optimizer"] = 1, ["perilune.LrSchedule"] = 1, ["perilune.Batches"] = 1, ["perilune.Vocabulary"] = 1, ["perilune.Figure"] = 1 } do
    NAMES[#NAMES + 1] = class
  end
  table.sort(NAMES)
  for _, class in ipairs(NAMES) do
    out[#out + 1] = "---@class " .. class
    if class == "perilune.Tensor" then
      for _, op in ipairs { "add", "sub", "mul", "div", "mod", "pow" } do
        out[#out + 1] = ("---@operator %s(perilune.Tensor|number): perilune.Tensor"):format(op)
      end
      out[#out + 1] = "---@operator unm: perilune.Tensor"
      out[#out + 1] = "---@operator len: integer"
    end
    for _, e in ipairs(reference.entries()) do
      local receiver, field = e.name:match "^(%a+)%.([%w_]+)$"
      if receiver and RECEIVERS[receiver] == class then out[#out + 1] = ("---@field %s %s %s"):format(field, e.type, e.doc) end
    end
    out[#out + 1] = ("local %s = {}\n"):format(local_name(class))
  end
  out[#out + 1] = "---@class perilune\nlocal perilune = {}\n"
  for _, e in ipairs(reference.entries()) do
    local receiver, method = e.name:match "^(%a+):([%w_]+)$"
    local path = e.name:match "^(.*)%.[%w_]+$"
    if e.row and not loadstring("return x." .. e.name) then
      out[#out + 1] = ("perilune[%q] = nil\n"):format(e.name)
    elseif e.row then
      local function with(skip)
        local list = {}
        for i = skip + 1, #e.params do list[#list + 1] = e.params[i] end
        return list
      end
      declare(out, e, local_name "perilune.Engine" .. ":" .. e.name, e.params)
      if not e.row.create then
        declare(out, e, "perilune." .. e.name, e.params)
        if e.forms[1]:find ":" or e.forms[2]:find "^%a+:" then declare(out, e, local_name "perilune.Tensor" .. ":" .. e.name, with(1)) end
      end
    elseif receiver and RECEIVERS[receiver] then
      declare(out, e, local_name(RECEIVERS[receiver]) .. ":" .. method, e.params, args_of(e))
    elseif path == "perilune" or (path and MODULES[path:match "^[%w_]+"]) then
      local full = path == "perilune" and e.name or "perilune." .. e.name
      for parent in full:gmatch "()%." do
        local name = full:sub(1, parent - 1)
        if name ~= "perilune" and not tables[name] then
          tables[name] = true
          out[#out + 1] = name .. " = {}\n"
        end
      end
      declare(out, e, full, e.params, args_of(e))
    end
  end
  out[#out + 1] = "return perilune"
  return table.concat(out, "\n") .. "\n"
end
