-- SPDX-License-Identifier: MIT
-- A full collection between any two ops and before each node of the backward, over samples whose memory a reset took already.
return {
  name = "gc-between-ops",
  run = function(s)
    s:on("op", function() s:collect() end)
    s:on("node", function() s:collect() end)
    for i = 1, s.n do
      s:forward(i)
      s:reset()
      s:backward(i)
    end
  end,
}
