-- SPDX-License-Identifier: MIT
-- Gradient accumulation: each sample ends with a reset, the sums live on in persistent storage.
return {
  name = "reset-per-sample",
  run = function(s)
    for i = 1, s.n do
      s:forward(i)
      s:backward(i)
      s:reset()
    end
  end,
}
