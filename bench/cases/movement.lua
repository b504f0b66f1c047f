-- SPDX-License-Identifier: MIT
-- Ops that move memory, into destinations.

local perilune = require "perilune"

local family = {}

local function case(run)
  return function(n)
    for _ = 1, n do run() end
  end, run
end

function family.transposed_copy(eng, t)
  local out, turned, copy = eng:persistent { 2048, 2048 }, t.x:t(), perilune.copy
  return case(function() return copy(out, turned) end)
end

function family.permuted_add(eng, t)
  local out, b, add = eng:persistent(t.a.shape), t.b:permute { 2, 3, 1 }, perilune.add
  return case(function() return add(t.a, b, out) end)
end

function family.plain_add(eng, t)
  local out, add = eng:persistent(t.a.shape), perilune.add
  return case(function() return add(t.a, t.b, out) end)
end

function family.gather(eng, t, p)
  local out, gather = eng:persistent(t.i.shape), perilune.gather
  return case(function() return gather(t.x, p.dim, t.i, out) end)
end

function family.scatter_add(eng, t, p)
  local out, scatter_add = eng:persistent(t.x.shape), perilune.scatter_add
  return case(function() return scatter_add(t.x, p.dim, t.i, t.s, out) end)
end

return family
