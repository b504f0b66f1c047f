-- SPDX-License-Identifier: MIT
-- A schedule of one's own: after each forward a reset, then the arena is filled with large numbers before the backward runs. What a backward
-- reads without having saved it is then wrong by a lot, even where poison is off.
--
--   PERILUNE_SCHEDULES=examples/schedules perilune parity --schedule garbage
return {
  name = "garbage",
  run = function(s)
    for i = 1, s.n do
      s:forward(i)
      s:reset()
      for size = 1, 12 do s.engine:full({ 2 ^ size }, 1e10) end
      s:backward(i)
    end
  end,
}
