-- SPDX-License-Identifier: MIT
-- chance: random choices that are the same on every machine for the same seed and name (xorshift32), for fuzzers.

local bit = require "bit"

local Chance = {}
Chance.__index = Chance

local chance = {}

--- A source of its own for each seed and name.
---@param seed integer
---@param name? string
function chance.new(seed, name)
  local state = bit.tobit(seed * 2654435 + 88172645)
  for k = 1, #(name or "") do state = bit.bxor(bit.rol(state, 5), name:byte(k) * 40503) end
  local self = setmetatable({ state = state ~= 0 and state or 1 }, Chance)
  for _ = 1, 8 do self:next() end
  return self
end

--- 32 bits.
function Chance:next()
  local x = self.state
  x = bit.bxor(x, bit.lshift(x, 13))
  x = bit.bxor(x, bit.rshift(x, 17))
  x = bit.bxor(x, bit.lshift(x, 5))
  self.state = x
  return x
end

--- A whole number from a to b.
function Chance:whole(a, b) return a + bit.band(self:next(), 0x7fffffff) % (b - a + 1) end

function Chance:one_in(n) return self:whole(1, n) == 1 end

function Chance:pick(list) return list[self:whole(1, #list)] end

return chance
