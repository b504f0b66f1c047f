-- SPDX-License-Identifier: MIT
-- Matrix products into a destination.

local perilune = require "perilune"

local family = {}

function family.matmul(eng, t, p)
  local a = p.turn == "a" and t.a:transpose(-1, -2) or t.a
  local b = p.turn == "b" and t.b:transpose(-1, -2) or t.b
  local shape = a.shape
  shape[#shape] = b.shape[#b.shape]
  local out, matmul = eng:persistent(shape), perilune.matmul
  return function(n)
    for _ = 1, n do matmul(a, b, out) end
  end, function() return matmul(a, b, out) end
end

return family
