-- SPDX-License-Identifier: MIT
-- Each sample's forward and backward is a captured step; they are replayed after resets, between other tensors' comings and goings.
return {
  name = "captured",
  run = function(s)
    for i = 1, s.n do s:capture(i) end
    for i = 1, s.n do
      s:reset()
      for k = 1, 8 do s.engine:full({ 173 * k }, 0 / 0) end
      s:replay(i)
      s:reset()
    end
  end,
}
