-- SPDX-License-Identifier: MIT
-- The classic: all that forward left in the arena is gone when backward begins, but for what was saved.
return {
  name = "reset-between-fwd-bwd",
  run = function(s)
    for i = 1, s.n do
      s:forward(i)
      s:reset()
      s:backward(i)
      s:reset()
    end
  end,
}
