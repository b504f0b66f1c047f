-- SPDX-License-Identifier: MIT
-- lanes: one array's values in memory laid out in ways that make a dim near, far, or gapped. `each(e, r, fn)` calls fn(tensor, name) for every
-- layout: row-major; the dims backwards; dims 1 and 2 exchanged; every second element of a larger tensor. `fresh(e, r)` is the row-major one,
-- `values(t)` a tensor in the reference's form.

local lanes = {}

local function fresh(e, r) return e:tensor(r, { dtype = r.dtype, shape = r.shape }) end

-- A view of memory whose dims are in another order.
local function ordered(e, r, dims)
  local shape = {}
  for d = 1, #dims do shape[dims[d]] = r.shape[d] end
  return e:empty(shape, { dtype = r.dtype }):permute(dims):copy(fresh(e, r))
end

local makers = {
  { "contiguous", fresh },
  { "backwards", function(e, r)
    local dims = {}
    for d = 1, #r.shape do dims[d] = #r.shape + 1 - d end
    return ordered(e, r, dims)
  end },
  { "exchanged", function(e, r)
    if #r.shape < 3 then return nil end
    local dims = { 2, 1 }
    for d = 3, #r.shape do dims[d] = d end
    return ordered(e, r, dims)
  end },
  { "strided", function(e, r)
    if #r.shape == 0 then return nil end
    local shape, ranges = {}, {}
    for d, n in ipairs(r.shape) do shape[d], ranges[d] = 2 * n + 1, { 2, n > 0 and 2 * n or 1, 2 } end
    return e:ones(shape, { dtype = r.dtype })[ranges]:copy(fresh(e, r))
  end },
}

lanes.fresh = fresh

function lanes.each(e, r, fn)
  for _, maker in ipairs(makers) do
    local t = maker[2](e, r)
    if t then
      local ok, message = pcall(fn, t, maker[1])
      if not ok then error(maker[1] .. " " .. r.dtype .. ": " .. tostring(message), 2) end
    end
  end
end

function lanes.values(t)
  local out = { shape = t.shape, dtype = t.dtype }
  if t:numel() == 0 then return out end
  for i, v in ipairs(t:reshape{ -1 }:totable()) do out[i] = v == true and 1 or v == false and 0 or v end
  return out
end

return lanes
