-- SPDX-License-Identifier: MIT
-- compare: all elements of two tensors, |a - b| <= atol + rtol |b|. NaN never passes, unless the caller says that the right answer is NaN:
-- then it must be NaN in the same places.

local cases = require "perilune.cases"
local samples = require "perilune.samples"

local compare = {}

---@class perilune.Comparison
---@field pass boolean
---@field max_abs number largest |a - b|; NaN where one of them is NaN
---@field max_rel number largest |a - b| / |b|
---@field elements integer
---@field bits boolean whether all bytes agree
---@field at? integer first element that fails, with `got` and `want`

---@class perilune.Copy what a tensor held: shape, dtype, bytes

--- What a tensor holds now; waits for it.
function compare.copy(t) return { shape = t.shape, dtype = t.dtype, bytes = t:bytes() } end

function compare.array(copy) return samples.decode(copy.bytes, copy.shape, copy.dtype) end

local function has_nan(copy)
  if copy.nan == nil then
    copy.nan = false
    if copy.dtype == "f32" or copy.dtype == "f64" then
      for _, v in ipairs(compare.array(copy)) do
        if v ~= v then copy.nan = true end
      end
    end
  end
  return copy.nan
end

--- The candidate's tensor against the reference's.
---@param a perilune.Copy
---@param b perilune.Copy
---@return perilune.Comparison
function compare.tensors(a, b, rtol, atol, undefined)
  local count = cases.count(b.shape)
  if a.dtype ~= b.dtype then return { pass = false, why = ("dtype %s instead of %s"):format(a.dtype, b.dtype), elements = 0 } end
  local shape_a, shape_b = table.concat(a.shape, ", "), table.concat(b.shape, ", ")
  if shape_a ~= shape_b then return { pass = false, why = ("shape (%s) instead of (%s)"):format(shape_a, shape_b), elements = 0 } end
  local r = { pass = true, max_abs = 0, max_rel = 0, elements = count, bits = a.bytes == b.bytes }
  if r.bits and (undefined or not has_nan(b)) then return r end
  local got, want, exact = compare.array(a), compare.array(b), a.dtype ~= "f32" and a.dtype ~= "f64"
  local worst_abs, worst_rel = 0, 0
  for i = 1, count do
    local x, y = tonumber(got[i]), tonumber(want[i])
    local good = got[i] == want[i]
    if not good and (x ~= x or y ~= y) then
      good = undefined and x ~= x and y ~= y
      if not good then worst_abs, worst_rel = 0 / 0, 0 / 0 end
    elseif not good then
      local d = math.abs(x - y)
      good = not exact and d <= atol + rtol * math.abs(y) and d < math.huge
      if not (d <= worst_abs) then worst_abs = d end
      if y ~= 0 and not (d / math.abs(y) <= worst_rel) then worst_rel = d / math.abs(y) end
    end
    if not good and r.pass then r.pass, r.at, r.got, r.want = false, i, x, y end
  end
  r.max_abs, r.max_rel = worst_abs, worst_rel
  return r
end

--- One line about a comparison that failed.
function compare.text(r)
  if r.why then return r.why end
  return ("element %d is %.9g instead of %.9g (max_abs %.3g)"):format(r.at, r.got, r.want, r.max_abs)
end

return compare
