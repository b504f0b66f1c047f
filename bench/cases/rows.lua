-- SPDX-License-Identifier: MIT
-- Reductions and normalizations along a dim, with new results in the arena.

local perilune = require "perilune"

local family = {}

function family.rows(eng, t, p)
  local op, x, dim = perilune[p.op], t.x, p.dim
  local along = dim == 2 and x or x:t()
  local run = function() return op(x, dim) end
  if p.op == "max" then run = function() return (op(x, dim)) end end
  if p.op == "layer_norm" then run = function() return op(along, along.shape[2], t.w, t.b) end end
  if p.op == "cross_entropy" then run = function() return op(along, t.c) end end
  return function(n)
    for _ = 1, n do
      run()
      eng:reset()
    end
  end, run
end

return family
