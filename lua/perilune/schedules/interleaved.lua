-- SPDX-License-Identifier: MIT
-- Two graphs alive on one arena all the time; the older one's backward runs while the newer one's saved tensors lie beside it.
return {
  name = "interleaved",
  run = function(s)
    s:forward(1)
    for i = 2, s.n do
      s:forward(i)
      s:reset()
      s:backward(i - 1)
      s:reset()
    end
    s:backward(s.n)
  end,
}
