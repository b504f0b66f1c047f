-- SPDX-License-Identifier: MIT
-- layouts: the same values in different memory, and values back as the reference's arrays.

local reference = require "spec.support.reference"

local layouts = {}

local function plain(e, r)
  return e:tensor(r, { dtype = r.dtype, shape = r.shape })
end

-- name -> function(engine, array): row-major; dims backwards in memory; gaps and an offset in every dim.
layouts.make = {
  contiguous = plain,
  transposed = function(e, r)
    local shape, dims, n = {}, {}, #r.shape
    for d = 1, n do shape[d], dims[d] = r.shape[n + 1 - d], n + 1 - d end
    return e:empty(shape, { dtype = r.dtype }):permute(dims):copy(plain(e, r))
  end,
  strided = function(e, r)
    if #r.shape == 0 or reference.numel(r.shape) == 0 then return plain(e, r) end
    local shape, ranges = {}, {}
    for d = 1, #r.shape do shape[d], ranges[d] = 2 * r.shape[d] + 1, { 2, 2 * r.shape[d], 2 } end
    return e:ones(shape, { dtype = r.dtype })[ranges]:copy(plain(e, r))
  end,
}

--- A tensor's values as an array of the reference.
function layouts.values(t)
  local out = { shape = t.shape, dtype = t.dtype }
  if t:numel() == 0 then return out end
  local flat = t:reshape({ -1 }):totable({ int64 = t.dtype == "i64" })
  for i, v in ipairs(flat) do out[i] = v == true and 1 or v == false and 0 or v end
  return out
end

--- Every element as text that tells any two values apart.
function layouts.text(t)
  local list = {}
  for i, v in ipairs(layouts.values(t)) do list[i] = type(v) == "number" and ("%.17g"):format(v) or tostring(v) end
  return table.concat(list, " ")
end

--- Raises unless the tensor equals the array within rtol * max(1, |b|); 0 means to the bit.
function layouts.same(want, got, rtol)
  local ok, message = reference.allclose(layouts.values(got), want, rtol or 0, rtol or 0)
  if not ok then error(message, 2) end
end

--- Calls fn(...) and raises unless it fails with a message that contains `text`.
function layouts.fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  if ok then error(("no error; expected %q"):format(text), 2) end
  if not tostring(message):find(text, 1, true) then error(("expected %q in: %s"):format(text, tostring(message)), 2) end
end

return layouts
