-- SPDX-License-Identifier: MIT
-- What one small op costs, called from Lua.

local perilune = require "perilune"

local eager = {}

--- `megabytes` of live Lua data: rows of sixteen numbers, as a script keeps its samples.
local function live(megabytes)
  local kept, before = {}, collectgarbage "count"
  while collectgarbage "count" - before < megabytes * 1024 do
    for _ = 1, 1000 do
      local row = {}
      for k = 1, 16 do row[k] = #kept + k end
      kept[#kept + 1] = row
    end
  end
  return kept
end

function eager.add(eng, t, p)
  local add, reset, a, b = perilune.add, eng.reset, t.a, t.b
  local kept = live(p.live or 0)
  return function(n)
    for i = 1, n do
      local _ = add(a, b)
      if i % 1024 == 0 then reset(eng) end
    end
    assert(kept)
  end, function() return add(a, b) end
end

function eager.add_into(eng, t)
  local add, a, b, out = perilune.add, t.a, t.b, eng:persistent { 8, 8 }
  return function(n)
    for _ = 1, n do add(a, b, out) end
  end, function() return add(a, b, out) end
end

function eager.get(eng, t)
  local x = t.a
  return function(n)
    for _ = 1, n do local _ = x:get(2, 3) end
  end, function() return eng:tensor(x:get(2, 3)) end
end

function eager.set(_, t)
  local x = t.a
  local function loop(n)
    for _ = 1, n do x:set(2, 3, 0.5) end
  end
  return loop, function()
    loop(1)
    return x
  end
end

return eager
