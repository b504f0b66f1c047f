-- SPDX-License-Identifier: MIT
-- suggest: the nearest name to a misspelt one, by edit distance where two swapped letters count once (Damerau 1964).

local function distance(a, b)
  local before, row = {}, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local new = { [0] = i }
    for j = 1, #b do
      local cost = a:byte(i) == b:byte(j) and 0 or 1
      new[j] = math.min(new[j - 1] + 1, row[j] + 1, row[j - 1] + cost)
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        new[j] = math.min(new[j], before[j - 2] + 1)
      end
    end
    before, row = row, new
  end
  return row[#b]
end

--- " (did you mean 'sum'?)" for a name close to one of the tables' string keys, else "".
---@param name string
---@vararg table
---@return string
return function(name, ...)
  local best, best_distance
  local limit = math.max(1, math.floor(#name / 3 + 0.5)) + 1
  for _, names in ipairs { ... } do
    for candidate in pairs(names) do
      if type(candidate) == "string" and candidate:sub(1, 2) ~= "__" then
        local d = distance(name, candidate)
        if d <= limit and d < #name and (not best or d < best_distance or (d == best_distance and candidate < best)) then
          best, best_distance = candidate, d
        end
      end
    end
  end
  return best and (" (did you mean '%s'?)"):format(best) or ""
end
