-- SPDX-License-Identifier: MIT
-- format: tensors as text.

local core = require "perilune.core"

local format = {}

local function rows(value, depth, out)
  if type(value) ~= "table" then
    out[#out + 1] = tostring(value)
  elseif type(value[1]) ~= "table" then
    local line = {}
    for i, v in ipairs(value) do line[i] = tostring(v) end
    out[#out + 1] = table.concat(line, "  ")
  else
    for _, v in ipairs(value) do rows(v, depth + 1, out) end
  end
end

function format.tensor(t)
  local out = {}
  rows(core.tensor.totable(t), 1, out)
  local shape = core.tensor.shape(t)
  out[#out + 1] = ("[%s tensor %s on %s]"):format(core.tensor.dtype(t), #shape == 0 and "()" or table.concat(shape, "x"),
    core.tensor.engine(t).kind)
  return table.concat(out, "\n")
end

return format
