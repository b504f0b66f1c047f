-- SPDX-License-Identifier: MIT
-- One elementwise op into a destination.

local perilune = require "perilune"

local family = {}

function family.elementwise(eng, t, p)
  local op, a, b = perilune[p.op], t.a, t.b
  local out = eng:persistent(a.shape)
  local run = function() return op(a, out) end
  if b then run = function() return op(a, b, out) end end
  if p.op == "gelu" then run = function() return op(a, nil, out) end end
  return function(n)
    for _ = 1, n do run() end
  end, run
end

return family
