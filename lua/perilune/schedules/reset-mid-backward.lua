-- SPDX-License-Identifier: MIT
-- A reset before each node of the backward: the tape must hold the gradients that are on their way, besides what was saved.
return {
  name = "reset-mid-backward",
  run = function(s)
    s:on("node", function() s:reset() end)
    for i = 1, s.n do
      s:forward(i)
      s:backward(i)
    end
  end,
}
