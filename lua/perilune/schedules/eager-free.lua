-- SPDX-License-Identifier: MIT
-- No reset at all: each intermediate is freed as soon as its last reader was called, so that its block is used again within the pass.
return {
  name = "eager-free",
  run = function(s)
    s:on("op", function() s:free_dead() end)
    for i = 1, s.n do
      s:forward(i)
      s:backward(i)
      s:free_dead()
    end
  end,
}
