-- SPDX-License-Identifier: MIT
-- compare: all elements of two arrays, |a - b| <= atol + rtol |b|. NaN never passes, unless the caller says that the right answer is NaN:
-- then it must be NaN in the same places.

local samples = require "perilune.samples"

local compare = {}

---@class perilune.Comparison
---@field pass boolean
---@field max_abs number largest |a - b|; NaN where one of them is NaN
---@field max_rel number largest |a - b| / |b|
---@field elements integer
---@field bits boolean whether all bytes agree
---@field at? integer first element that fails, with `got` and `want`

--- The candidate's array against the reference's.
---@param a perilune.samples.Array
---@param b perilune.samples.Array
---@return perilune.Comparison
function compare.arrays(a, b, rtol, atol, undefined)
  local r = { pass = true, max_abs = 0, max_rel = 0, elements = #b, bits = true }
  if a.dtype ~= b.dtype then return { pass = false, why = ("dtype %s instead of %s"):format(a.dtype, b.dtype), elements = 0 } end
  local shape_a, shape_b = table.concat(a.shape, ", "), table.concat(b.shape, ", ")
  if shape_a ~= shape_b then return { pass = false, why = ("shape (%s) instead of (%s)"):format(shape_a, shape_b), elements = 0 } end
  local worst_abs, worst_rel = 0, 0
  for i = 1, #b do
    local x, y = tonumber(a[i]), tonumber(b[i])
    if a[i] ~= b[i] then
      local good
      if x ~= x or y ~= y then
        good = undefined and x ~= x and y ~= y
        if not good then worst_abs, worst_rel = 0 / 0, 0 / 0 end
      else
        local d = math.abs(x - y)
        good = d <= atol + rtol * math.abs(y) and d < math.huge
        if d > worst_abs then worst_abs = d end
        if y ~= 0 and d / math.abs(y) > worst_rel then worst_rel = d / math.abs(y) end
      end
      if not good and r.pass then r.pass, r.at, r.got, r.want = false, i, x, y end
    end
  end
  r.max_abs, r.max_rel = worst_abs, worst_rel
  r.bits = samples.encode(a) == samples.encode(b)
  return r
end

--- One line about a comparison that failed.
function compare.text(r)
  if r.why then return r.why end
  return ("element %d is %.9g instead of %.9g (max_abs %.3g)"):format(r.at, r.got, r.want, r.max_abs)
end

return compare
