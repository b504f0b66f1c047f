-- SPDX-License-Identifier: MIT
-- The arena's own costs. Both loops time the part that counts.

local perilune = require "perilune"
local clock = require "perilune.clock"
local used = require "used"

local family = {}

--- Seconds of `n` resets, each with p.blocks dead blocks before it, less what reading the clock costs. Making a million blocks leaves none of the
--- arena's own data in the cache, so in front of each reset as much other memory is written, however few blocks there are.
function family.reset(eng, _, p)
  local add, x, reset, other = perilune.add, eng:persistent { 1 }, eng.reset, eng:persistent { 64 * 1024 * 1024 }
  return function(n)
    local passed = 0
    for _ = 1, n do
      for _ = 1, p.blocks do add(x, x) end
      eng:fill(other, 1)
      local begin = clock()
      local read = clock()
      reset(eng)
      passed = passed + (clock() - read) - (read - begin)
    end
    return passed
  end, function() end
end

--- Seconds of the resets that poison p.bytes each.
function family.poison(eng, _, p)
  eng:poison { on = { "reset" } }
  return function(n)
    local passed = 0
    for _ = 1, n do
      eng:empty { p.bytes / 4 }
      local begin = used()
      eng:reset()
      passed = passed + (used() - begin)
    end
    return passed
  end, function() end
end

return family
